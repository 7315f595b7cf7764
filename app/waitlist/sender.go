package waitlist

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nyaruka/phonenumbers"
)

// A shop's sender of a channel, its Twilio account or its mails, is looked after here: how fast it sends, and
// when it does not send at all.

const (
	// Rates of a shop that has set none: what one long code may send, and a fair share of the mail server.
	textsPerSecond  = 1
	emailsPerSecond = 100
	// burst is how far ahead of its rate a shop may be.
	burst = 10 * time.Second

	// A sender is judged by its messages of a day, once there are enough to tell a rate from bad luck.
	judgedSpan = 24 * time.Hour
	judgedFrom = 20
	// Above these rates mailbox providers and carriers punish all that comes from the same place.
	maxComplaints = 0.003
	maxBounces    = 0.05
	maxFiltered   = 0.02
	// So many failures in a row that are the sender's fault pause it for a while: whoever else is in line
	// would only be passed over.
	refusedInARow = 3
	refusedPause  = time.Hour
)

// refused is the outcome, in a message's row, of one that was given up for the sender's sake.
const refused = "refused"

// takeTurn counts a message against its shop's rate, or returns a *haltedError. The row is shared by all processes.
func (s *Service) takeTurn(ctx context.Context, tx pgx.Tx, n notice, now time.Time) error {
	standard := emailsPerSecond
	if n.Channel == SMS {
		standard = textsPerSecond
	}
	tag, err := tx.Exec(ctx, `
		INSERT INTO senders AS r (shop_id, channel, per_second, next_at) VALUES ($1, $2, $3, $4)
		ON CONFLICT (shop_id, channel) DO UPDATE SET next_at = greatest(r.next_at, $4) + make_interval(secs => 1.0 / r.per_second)
		WHERE r.next_at <= $4::timestamptz + $5::interval`, n.ShopID, n.Channel, standard, now, burst)
	if err != nil {
		return err
	}
	if tag.RowsAffected() == 0 {
		return &haltedError{ErrLater}
	}
	return nil
}

// pausedFor says why a message may not be sent now, or "".
func (s *Service) pausedFor(ctx context.Context, tx pgx.Tx, n notice, now time.Time) (why string, err error) {
	err = tx.QueryRow(ctx, `
		SELECT reason FROM pauses WHERE shop_id = $1 AND channel = $2 AND ended_at IS NULL AND (until IS NULL OR until > $4) AND starts_with($3, prefix)
		ORDER BY id LIMIT 1`, n.ShopID, n.Channel, n.To, now).Scan(&why)
	if errors.Is(err, pgx.ErrNoRows) {
		return "", nil
	}
	return why, err
}

// senderFailed does to the shop's sender what one failure means for it.
func (s *Service) senderFailed(ctx context.Context, tx pgx.Tx, n notice, f SendError) error {
	switch f.Sender {
	case SenderTold:
		what := "A " + word(n.Channel) + " was not accepted: " + f.Why + "."
		if err := s.note(ctx, tx, n.ShopID, "sender", string(n.Channel)+" "+f.Code, what); err != nil {
			return err
		}
	case SenderOff:
		if err := s.pause(ctx, tx, n.ShopID, n.Channel, "", f.Code, f.Why, 0); err != nil {
			return err
		}
	case SenderPaused:
		if err := s.pause(ctx, tx, n.ShopID, n.Channel, "", f.Code, f.Why, f.After); err != nil {
			return err
		}
	case SenderCountry:
		if err := s.pause(ctx, tx, n.ShopID, n.Channel, countryPrefix(n.To), f.Code, f.Why, 0); err != nil {
			return err
		}
	}
	return s.judge(ctx, tx, n.ShopID, n.Channel)
}

// judge pauses a sender for a day whose messages of the last day bounce, are complained about or are filtered
// too often, and for an hour one that was refused several times in a row.
func (s *Service) judge(ctx context.Context, tx pgx.Tx, shopID int64, channel Channel) error {
	now := s.now()
	var sent, complaints, bounces, filtered, refused int
	err := tx.QueryRow(ctx, `
		SELECT count(*), count(*) FILTER (WHERE complained_at IS NOT NULL), count(*) FILTER (WHERE outcome = 'dead'), count(*) FILTER (WHERE error_code = '30007'),
		       (SELECT count(*) FROM (
		          SELECT m.state, m.outcome FROM messages m WHERE m.shop_id = $1 AND m.channel = $2 AND m.sending_at > $3 AND m.state IN ('accepted', 'delivered', 'failed')
		          ORDER BY m.sending_at DESC, m.id DESC LIMIT $4) AS l WHERE l.state = 'failed' AND l.outcome = 'refused')
		FROM messages WHERE shop_id = $1 AND channel = $2 AND sending_at > $3 AND state IN ('accepted', 'delivered', 'failed')`,
		shopID, channel, now.Add(-judgedSpan), refusedInARow).Scan(&sent, &complaints, &bounces, &filtered, &refused)
	if err != nil {
		return err
	}
	above := func(n int, most float64) bool { return sent >= judgedFrom && float64(n) > most*float64(sent) }
	switch {
	case above(complaints, maxComplaints):
		return s.pause(ctx, tx, shopID, channel, "", "complaints", fmt.Sprintf("%d of the last day's %d were reported as spam", complaints, sent), judgedSpan)
	case above(bounces, maxBounces):
		return s.pause(ctx, tx, shopID, channel, "", "bounces", fmt.Sprintf("%d of the last day's %d went to addresses that do not exist", bounces, sent), judgedSpan)
	case above(filtered, maxFiltered):
		return s.pause(ctx, tx, shopID, channel, "", "filtered", fmt.Sprintf("carriers filtered %d of the last day's %d as spam", filtered, sent), judgedSpan)
	case refused >= refusedInARow:
		return s.pause(ctx, tx, shopID, channel, "", "refused", fmt.Sprintf("the last %d were refused for the sender's sake", refused), refusedPause)
	}
	return nil
}

// pause stops a shop's messages by a channel, those to numbers with a prefix alone, for a time, or for 0 until
// the merchant resumes them, and tells the merchant. The longer of two pauses counts.
func (s *Service) pause(ctx context.Context, tx pgx.Tx, shopID int64, channel Channel, prefix, code, why string, span time.Duration) error {
	now := s.now()
	var until *time.Time
	if span > 0 {
		end := now.Add(span)
		until = &end
	}
	_, err := tx.Exec(ctx, `
		INSERT INTO pauses AS p (shop_id, channel, prefix, code, reason, since, until) VALUES ($1, $2, $3, $4, $5, $6, $7)
		ON CONFLICT (shop_id, channel, prefix) WHERE ended_at IS NULL DO UPDATE SET code = excluded.code, reason = excluded.reason, until = excluded.until
		WHERE p.until IS NOT NULL AND (excluded.until IS NULL OR excluded.until > p.until)`, shopID, channel, prefix, code, why, now, until)
	if err != nil {
		return fmt.Errorf("pause %s: %w", channel, err)
	}
	what, ending := "Messages by "+word(channel), "They wait, in their places, until you have put this right under Settings, Senders."
	if prefix != "" {
		what += " to numbers that begin with " + prefix
	}
	if until != nil {
		ending = "They wait, in their places, until " + until.UTC().Format("2 January 15:04") + " UTC."
	}
	return s.note(ctx, tx, shopID, "sender", string(channel)+" "+code+prefix, what+" are paused: "+why+". "+ending)
}

// sweepPauses ends pauses whose time is over: whoever waited is offered what is free.
func (s *Service) sweepPauses(ctx context.Context, shopID int64, now time.Time) (int, error) {
	return 0, pgx.BeginFunc(ctx, s.db, func(tx pgx.Tx) error {
		return s.endPauses(ctx, tx, shopID, `until <= $2`, now)
	})
}

func (s *Service) endPauses(ctx context.Context, tx pgx.Tx, shopID int64, which string, args ...any) error {
	tag, err := tx.Exec(ctx, `UPDATE pauses SET ended_at = $2 WHERE shop_id = $1 AND ended_at IS NULL AND `+which, append([]any{shopID}, args...)...)
	if err != nil || tag.RowsAffected() == 0 {
		return err
	}
	return s.hintAll(ctx, tx, shopID)
}

// Resume ends the pauses of a channel that wait for the merchant, once the sender was checked. Those that have
// an end keep it: they protect others who send from the same place.
func (s *Service) Resume(ctx context.Context, shopID int64, channel Channel) error {
	err := pgx.BeginFunc(ctx, s.db, func(tx pgx.Tx) error {
		return s.endPauses(ctx, tx, shopID, `until IS NULL AND channel = $3`, s.now(), channel)
	})
	if err != nil {
		return fmt.Errorf("resume %s: %w", channel, err)
	}
	return nil
}

// TextsPerSecond is how many texts a shop's messaging service sends in a second.
func (s *Service) TextsPerSecond(ctx context.Context, shopID int64) (int, error) {
	n := textsPerSecond
	err := s.db.QueryRow(ctx, `SELECT per_second FROM senders WHERE shop_id = $1 AND channel = 'sms'`, shopID).Scan(&n)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return 0, fmt.Errorf("texts per second: %w", err)
	}
	return n, nil
}

// SetTextsPerSecond sets it, or returns an *Invalid.
func (s *Service) SetTextsPerSecond(ctx context.Context, shopID int64, n int) error {
	if n < 1 || n > 100 {
		return &Invalid{"invalid_rate", "per_second", "choose a whole number from 1 to 100"}
	}
	_, err := s.db.Exec(ctx, `INSERT INTO senders (shop_id, channel, per_second) VALUES ($1, 'sms', $2) ON CONFLICT (shop_id, channel) DO UPDATE SET per_second = $2`, shopID, n)
	if err != nil {
		return fmt.Errorf("set texts per second: %w", err)
	}
	return nil
}

// Pause is a pause as the merchant sees it.
type Pause struct {
	Channel Channel    `db:"channel"`
	Prefix  string     `db:"prefix"`
	Reason  string     `db:"reason"`
	Since   time.Time  `db:"since"`
	Until   *time.Time `db:"until"` // nil: until the merchant resumes it
}

// Pauses lists the pauses of a shop that are not over.
func (s *Service) Pauses(ctx context.Context, shopID int64) ([]Pause, error) {
	rows, _ := s.db.Query(ctx, `SELECT channel, prefix, reason, since, until FROM pauses WHERE shop_id = $1 AND ended_at IS NULL AND (until IS NULL OR until > $2) ORDER BY id`, shopID, s.now())
	all, err := pgx.CollectRows(rows, pgx.RowToStructByName[Pause])
	if err != nil {
		return nil, fmt.Errorf("pauses: %w", err)
	}
	return all, nil
}

// complained records that the reader of a message called it spam: they are never written to again.
func (s *Service) complained(ctx context.Context, n notice) error {
	err := s.untilSettled(ctx, "complained", func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, `UPDATE messages SET complained_at = $3 WHERE shop_id = $1 AND id = $2 AND complained_at IS NULL`, n.ShopID, n.MessageID, s.now())
		if err != nil || tag.RowsAffected() == 0 {
			return err
		}
		if err := s.suppressIn(ctx, tx, n.ShopID, Address{Channel: n.Channel, Key: n.ContactKey, Send: n.To}, Complained); err != nil {
			return err
		}
		return s.judge(ctx, tx, n.ShopID, n.Channel)
	})
	if err != nil {
		return fmt.Errorf("message %d: %w", n.MessageID, err)
	}
	return nil
}

func word(channel Channel) string {
	if channel == SMS {
		return "text"
	}
	return "email"
}

// countryPrefix is how the numbers of a number's country begin. Where several countries share a calling code
// it is longer, so that it never covers another country; it may then cover a part of the country alone, and
// the next number of another part adds to it.
func countryPrefix(number string) string {
	n, err := phonenumbers.Parse(number, "")
	if err != nil {
		return number // this one alone
	}
	code := fmt.Sprintf("+%d", n.GetCountryCode())
	if len(phonenumbers.GetRegionCodesForCountryCode(int(n.GetCountryCode()))) > 1 {
		return number[:min(len(number), len(code)+3)]
	}
	return code
}

package waitlist

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"

	"holdfast/app/shop"
)

const (
	// sendingSpan is how long a message may stand in sending before its outcome counts as unknown. It is
	// longer than any send may take.
	sendingSpan = SendTimeout + 10*time.Second
	// lookAgain is how long after the first look for a message of unknown outcome the provider is believed
	// when a second one does not find it either.
	lookAgain = time.Minute
	// maxDoubts bounds the copies of a message that may be on their way: when the outcome of the first stayed
	// unknown, the same link is sent once more.
	maxDoubts = 2
	// timeToAct is what must be left of an offer for a message that was not delivered to be sent again.
	timeToAct = 10 * time.Minute
	// maxReturns bounds how often a message is sent again that the provider took and did not deliver.
	maxReturns = 5
	// outOfTurn is how long the notices of younger holds wait for one that is being secured. One that takes
	// longer is in trouble with Shopify, and does not keep the others waiting.
	outOfTurn = 20 * time.Second
)

// notice is a message with all that its last checks look at.
type notice struct {
	Outgoing
	State      string
	SendingAt  *time.Time
	ContactKey string
	EntryState string
	OfferState string
	LapsesAt   time.Time
	Minutes    int // the offer's window
	OnSale     bool
	Installed  bool
	EntryID    int64
	OfferID    int64
	VariantID  int64
	Sellable   int       // S as last read
	AgreedTo   time.Time // the consent to be told ends with the entry's time-to-live
	ContactID  int64
	RestockID  int64
	Attempts   int
	Doubts     int        // copies that may have left: attempts of unknown outcome
	Returns    int        // attempts that were reported as not delivered, and made again
	LookedAt   *time.Time // when a message of unknown outcome was first not found
}

func (s *Service) loadNotice(ctx context.Context, q shop.Querier, shopID, messageID int64, lock string) (notice, error) {
	n := notice{Outgoing: Outgoing{ShopID: shopID, MessageID: messageID}}
	// Each row is named by a value that is known when it is looked for. As a plain join, in a database without
	// statistics, all of a shop's messages, contacts, offers and entries are paired: 50 ms for 400.
	rows, err := q.Query(ctx, `
		WITH m AS MATERIALIZED (SELECT * FROM messages WHERE shop_id = $1 AND id = $2)
		SELECT m.state, m.attempts, m.doubts, m.returns, m.looked_at, o.restock_id, m.sending_at, m.channel, c.id, c.key, c.address, e.id, e.state, e.name, e.locale, e.expires_at,
		       o.id, o.state, o.reserved, coalesce((SELECT h.hold_minutes FROM holds h WHERE h.shop_id = o.shop_id AND h.offer_id = o.id), t.hold_minutes), o.lapses_at, o.window_minutes, v.active AND v.published, v.id, coalesce(v.sellable, 0), v.product_title, v.title, v.image_url, v.price,
		       s.state = 'installed', s.name, s.locale, t.reply_to
		FROM m
		JOIN contacts c ON c.shop_id = $1 AND c.id = (SELECT contact_id FROM m)
		JOIN offers o ON o.shop_id = $1 AND o.id = (SELECT offer_id FROM m)
		JOIN entries e ON e.shop_id = $1 AND e.id = (SELECT entry_id FROM m)
		JOIN variants v ON v.shop_id = $1 AND v.id = e.variant_id
		JOIN shops s ON s.id = $1
		JOIN settings t ON t.shop_id = $1 `+lock, shopID, messageID)
	if err != nil {
		return n, err
	}
	defer rows.Close()
	if !rows.Next() {
		if rows.Err() != nil {
			return n, rows.Err()
		}
		return n, ErrNotFound
	}
	err = rows.Scan(&n.State, &n.Attempts, &n.Doubts, &n.Returns, &n.LookedAt, &n.RestockID, &n.SendingAt, &n.Channel, &n.ContactID, &n.ContactKey, &n.To, &n.EntryID, &n.EntryState, &n.Name, &n.Locale, &n.AgreedTo,
		&n.OfferID, &n.OfferState, &n.Reserved, &n.HoldMinutes, &n.LapsesAt, &n.Minutes, &n.OnSale, &n.VariantID, &n.Sellable, &n.ProductTitle, &n.VariantTitle, &n.ImageURL, &n.Price,
		&n.Installed, &n.ShopName, &n.ShopLocale, &n.ReplyTo)
	n.Window = time.Duration(n.Minutes) * time.Minute
	n.Attempt = n.Attempts
	if n.SendingAt != nil {
		n.AttemptedAt = *n.SendingAt
	}
	n.ReserveToken = s.keys.Token(shop.Reserve, n.OfferID)
	n.UnsubscribeToken = s.keys.Token(shop.Unsubscribe, n.ContactID)
	n.PlaceToken = s.keys.Token(shop.Place, n.EntryID)
	return n, err
}

// Notify sends the messages of a restock that were not sent yet, one after the other: whoever joined first
// is told first (promise 3). A message that cannot be sent now does not keep the others waiting.
//
// The intent to send is committed before the call, with the number of the attempt, so that a process that
// dies in between leaves a message of unknown outcome, not one that looks unsent, and two workers never call
// for one message. What became of it is learnt from the provider's report, which carries the attempt, or
// from its list of messages (texts). Only when two looks a minute apart find nothing is it sent once more,
// with the same link and, as a mail, the same Message-ID: a lost notice is a broken promise, and the second
// copy, if it is one, says the same. It is never sent a third time: its offer lapses and the unit goes on.
//
// A notice of a unit that is held is sent when its hold is active, and after those of older holds that are
// just being secured. The hold is marked and leased before the send: whatever happens then, its person counts
// as told, and the unit does not go on before the send has ended.
//
// The last checks are made in the step that sends (promise 6): the offer is open and not overdue, the
// entry still offered, the contact not suppressed, its consent not run out, the variant on sale and, unless its unit is held, in stock by
// a read of the last minute, the hour decent, the shop installed. A message that fails them is cancelled with
// the reason, and the unit goes on.
//
// It returns ErrLater when it should soon be run again, *Throttled when not before some time. A message that
// has a wait of its own, such as for its second look or for a full mailbox, is found by the sweep when that is
// over.
func (s *Service) Notify(ctx context.Context, shopID, restockID int64) error {
	const atOnce = 100
	var unsent error
	halted := map[Channel]bool{} // by which nothing goes at present
	for last := int64(0); ; {
		rows, _ := s.db.Query(ctx, `
			SELECT m.id, o.id, m.channel, EXISTS (
			         SELECT FROM holds h WHERE h.shop_id = $1 AND h.restock_id = $2 AND h.state = 'securing' AND NOT h.pressed
			         AND h.offer_id < o.id AND (h.expires_at IS NULL OR h.expires_at > $5::timestamptz + make_interval(mins => o.window_minutes)))
			FROM offers o JOIN messages m ON m.shop_id = o.shop_id AND m.offer_id = o.id
			WHERE o.shop_id = $1 AND o.restock_id = $2 AND o.state = 'open' AND o.id > $3
			  AND (m.state IN ('pending', 'sending') OR m.state = 'unknown' AND (m.looked_at IS NULL OR m.send_after IS NOT NULL))
			  AND (m.send_after IS NULL OR m.send_after <= $6)
			ORDER BY o.id LIMIT $4`, shopID, restockID, last, atOnce, s.now().Add(-outOfTurn), s.now())
		type row struct {
			ID, Offer int64
			Channel   Channel
			TooSoon   bool
		}
		unfinished, err := pgx.CollectRows(rows, pgx.RowToStructByPos[row])
		if err != nil {
			return fmt.Errorf("notify restock %d: %w", restockID, err)
		}
		for _, m := range unfinished {
			last = m.Offer
			if m.TooSoon {
				return ErrLater
			}
			if halted[m.Channel] {
				continue
			}
			if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < SendTimeout {
				return ErrLater // the job's own time, which is real time, would end in a send
			}
			err := s.send(ctx, shopID, m.ID)
			if errors.Is(err, errSending) {
				return ErrLater // another process is at it: not out of turn
			}
			if halt := (*haltedError)(nil); errors.As(err, &halt) {
				halted[m.Channel], err = true, halt.then
			}
			if err != nil && (unsent == nil || errors.Is(unsent, ErrLater)) {
				unsent = err
			}
		}
		if len(unfinished) == atOnce {
			continue
		}
		if unsent != nil {
			return unsent
		}
		done, err := s.toldAll(ctx, shopID, restockID)
		if err != nil {
			return fmt.Errorf("notify restock %d: %w", restockID, err)
		}
		if done {
			return nil
		}
		last = 0
	}
}

// tell queues the sending of a restock's notices with those that were just written, unless somebody is at it
// already, who finds these, too (toldAll).
func (s *Service) tell(ctx context.Context, tx pgx.Tx, shopID, restockID int64) error {
	tag, err := tx.Exec(ctx, `UPDATE restocks SET telling = true WHERE shop_id = $1 AND id = $2 AND NOT telling`, shopID, restockID)
	if err != nil || tag.RowsAffected() == 0 {
		return err
	}
	return s.queue(ctx, tx, []river.InsertManyParams{{Args: NoticeJob{ShopID: shopID, RestockID: restockID}}})
}

// toldAll says that nobody is sending a restock's notices any more, unless there are some to be sent: whoever
// writes one holds the same lock, and queues a job when nobody is at it.
func (s *Service) toldAll(ctx context.Context, shopID, restockID int64) (done bool, err error) {
	err = pgx.BeginFunc(ctx, s.db, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `SELECT FROM restocks WHERE shop_id = $1 AND id = $2 FOR UPDATE`, shopID, restockID); err != nil {
			return err
		}
		err := tx.QueryRow(ctx, `
			SELECT NOT EXISTS (
				SELECT FROM offers o JOIN messages m ON m.shop_id = o.shop_id AND m.offer_id = o.id
				WHERE o.shop_id = $1 AND o.restock_id = $2 AND o.state = 'open' AND m.state = 'pending' AND (m.send_after IS NULL OR m.send_after <= $3))`,
			shopID, restockID, s.now()).Scan(&done)
		if err != nil || !done {
			return err
		}
		_, err = tx.Exec(ctx, `UPDATE restocks SET telling = false WHERE shop_id = $1 AND id = $2 AND telling`, shopID, restockID)
		return err
	})
	return done, err
}

// haltedError is a message that could not be sent for a reason that holds for all others by its channel.
type haltedError struct{ then error } // what Notify then returns

func (e *haltedError) Error() string { return e.then.Error() }

// errSending is a message that is being sent by somebody else, or whose sender has died.
var errSending = errors.New("being sent")

// send sends one message, or settles what became of it.
func (s *Service) send(ctx context.Context, shopID, messageID int64) error {
	n, err := s.loadNotice(ctx, s.db, shopID, messageID, "")
	if err != nil {
		return fmt.Errorf("message %d: %w", messageID, err)
	}
	switch n.State {
	case "sending":
		return errSending // until the sweep says that whoever was at it is gone
	case "unknown":
		again, err := s.lookFor(ctx, n)
		if err != nil || !again {
			return err
		}
	case "pending":
	default:
		return nil
	}
	if err := s.readAgain(ctx, n); err != nil {
		return fmt.Errorf("message %d: %w", messageID, err)
	}
	ready, err := s.startSending(ctx, shopID, messageID)
	if err != nil {
		return fmt.Errorf("message %d: %w", messageID, err)
	}
	if ready == nil {
		return nil
	}
	if err := s.point(ctx, "send", "before"); err != nil {
		return err
	}
	provider, sendErr := s.sender.Send(ctx, ready.Outgoing)
	if err := s.point(ctx, "send", "after"); err != nil {
		return err
	}
	// What was sent is recorded even if the job's time is up.
	return s.sent(context.WithoutCancel(ctx), *ready, provider, sendErr)
}

const diedSending = "the process ended while it was being sent"

// Abandoned says that whoever was sending the messages of a restock is gone: the outcome of the one that was
// being sent is unknown.
func (s *Service) Abandoned(ctx context.Context, shopID, restockID int64) error {
	_, err := s.db.Exec(ctx, `
		UPDATE messages m SET state = 'unknown', doubts = doubts + 1, looked_at = NULL, reason = $3 FROM offers o
		WHERE o.shop_id = $1 AND o.restock_id = $2 AND m.shop_id = $1 AND m.offer_id = o.id AND m.state = 'sending'`, shopID, restockID, diedSending)
	if err != nil {
		return fmt.Errorf("abandon messages of restock %d: %w", restockID, err)
	}
	return nil
}

// lookFor asks the provider about a message of unknown outcome, and returns true when it may be sent again.
// The first look that does not find it only has it looked for again in a minute: the provider's list may lag,
// and a mail server cannot be asked at all, but reports bounces.
func (s *Service) lookFor(ctx context.Context, n notice) (again bool, err error) {
	id, found, known, err := s.sender.Find(ctx, n.Outgoing)
	switch {
	case err != nil:
		return false, fmt.Errorf("look for message %d: %w", n.MessageID, err)
	case found:
		return false, s.accepted(ctx, n, id)
	case n.LookedAt != nil && n.Doubts < maxDoubts:
		s.log.InfoContext(ctx, "message of unknown outcome is sent once more", "shop", n.ShopID, "message", n.MessageID, "attempts", n.Attempts, "provider_asked", known)
		return true, nil
	}
	_, err = s.db.Exec(ctx, `
		UPDATE messages SET looked_at = coalesce(looked_at, $3), send_after = CASE WHEN looked_at IS NULL THEN $4::timestamptz END
		WHERE shop_id = $1 AND id = $2 AND state = 'unknown'`, n.ShopID, n.MessageID, s.now(), s.now().Add(lookAgain))
	if err != nil {
		return false, fmt.Errorf("look for message %d: %w", n.MessageID, err)
	}
	return false, nil
}

// startSending makes the last checks and commits the intent to send. It returns nil when there is nothing
// to send: somebody else was there, or a check failed and the message is cancelled.
func (s *Service) startSending(ctx context.Context, shopID, messageID int64) (*notice, error) {
	var ready *notice
	err := s.untilSettled(ctx, "start sending", func(tx pgx.Tx) error {
		// The hold of a reserved offer is locked first, as everywhere. The offer is locked before its message
		// is touched: an observe that withdraws it comes wholly before or wholly after.
		if _, err := tx.Exec(ctx, `SELECT FROM holds WHERE shop_id = $1 AND offer_id = (SELECT offer_id FROM messages WHERE shop_id = $1 AND id = $2) FOR UPDATE`, shopID, messageID); err != nil {
			return err
		}
		n, err := s.loadNotice(ctx, tx, shopID, messageID, "FOR SHARE OF o")
		if err != nil {
			return err
		}
		if n.State != "pending" && n.State != "unknown" {
			return nil // somebody else was there
		}
		now := s.now()
		var suppressed bool
		err = tx.QueryRow(ctx, `SELECT EXISTS (SELECT FROM suppressions WHERE shop_id = $1 AND channel = $2 AND contact_hash = ANY ($3))`,
			shopID, n.Channel, s.keys.Hashes(shopID, string(n.Channel), n.ContactKey)).Scan(&suppressed)
		if err != nil {
			return err
		}
		if suppressed {
			if _, err := tx.Exec(ctx, `UPDATE messages SET state = 'cancelled', reason = 'opted out' WHERE shop_id = $1 AND id = $2 AND state = 'pending'`, shopID, messageID); err != nil {
				return err
			}
			return s.endContact(ctx, tx, shopID, n.ContactID)
		}
		var why string
		switch {
		case n.OfferState != "open" || n.EntryState != Offered:
			why = "the offer ended before it was sent"
		case !n.LapsesAt.After(now):
			why = "its time was over before it could be sent"
		case !n.AgreedTo.After(now):
			why = "what they agreed to has run out"
		case !n.OnSale:
			why = "the variant is not on sale"
		case !n.Installed:
			why = "the app was uninstalled"
		case !n.Reserved && n.Sellable < 1:
			why = "its unit was sold before it was sent"
		}
		set, err := shop.LoadSettings(ctx, tx, shopID)
		if err != nil {
			return err
		}
		if why == "" {
			if why, err = s.pausedFor(ctx, tx, n, now); err != nil {
				return err
			}
		}
		if why == "" {
			if err := s.takeTurn(ctx, tx, n, now); err != nil {
				return err
			}
			if why, err = s.notNow(ctx, tx, n, set, now); err != nil {
				return err
			}
		}
		if n.Wording, err = wordingOf(ctx, tx, shopID, languageOf(n.Outgoing)); err != nil {
			return err
		}
		segments := 0
		if n.Channel == SMS {
			segments = s.sender.Segments(n.Outgoing)
		}
		if why == "" {
			if why, err = s.overBudget(ctx, tx, n, set, segments, now); err != nil {
				return err
			}
		}
		if why == "" && n.Reserved {
			tag, err := tx.Exec(ctx, `
				UPDATE holds SET notice_at = coalesce(notice_at, $3), notice_lease = $4
				WHERE shop_id = $1 AND offer_id = $2 AND state = 'active' AND NOT pressed AND expires_at > $4`, shopID, n.OfferID, now, now.Add(sendingSpan))
			if err != nil {
				return err
			}
			if tag.RowsAffected() == 0 {
				why = "its unit was not held any more"
			}
		}
		if why != "" {
			return s.cancel(ctx, tx, n, why)
		}
		tag, err := tx.Exec(ctx, `
			UPDATE messages SET state = 'sending', attempts = attempts + 1, segments = segments + $6, sending_at = $3, send_after = NULL, looked_at = NULL, reason = NULL, error_code = NULL
			WHERE shop_id = $1 AND id = $2 AND state = $4 AND attempts = $5`, shopID, messageID, now, n.State, n.Attempts, segments)
		if err != nil || tag.RowsAffected() == 0 {
			return err
		}
		n.Attempts++
		n.Attempt, n.AttemptedAt = n.Attempts, now
		n.Window = min(n.Window, n.LapsesAt.Sub(now)) // late: never more than there is
		ready = &n
		return nil
	})
	return ready, err
}

// cancel ends a message that must not be sent. The unit goes on: an offer that is still open for a variant
// that went off sale is withdrawn.
func (s *Service) cancel(ctx context.Context, tx pgx.Tx, n notice, why string) error {
	tag, err := tx.Exec(ctx, `UPDATE messages SET state = 'cancelled', reason = $3 WHERE shop_id = $1 AND id = $2 AND state = 'pending'`, n.ShopID, n.MessageID, why)
	if err != nil || tag.RowsAffected() == 0 || n.OfferState != "open" {
		return err
	}
	if n.Reserved {
		if !n.Installed {
			return nil // a shop that has left is not called: its holds are left to their reserve date
		}
		return s.startRelease(ctx, tx, n.ShopID, `offer_id = ANY ($4)`, []int64{n.OfferID}, "released", false)
	}
	return s.endOffers(ctx, tx, n.ShopID, []int64{n.OfferID}, "withdrawn")
}

// sent records what became of a send.
func (s *Service) sent(ctx context.Context, n notice, provider string, sendErr error) error {
	if sendErr == nil {
		return s.accepted(ctx, n, provider)
	}
	var fault *SendError
	if !errors.As(sendErr, &fault) {
		fault = &SendError{Outcome: Unknown, Why: sendErr.Error()}
	}
	switch fault.Outcome {
	case Retry:
		err := pgx.BeginFunc(ctx, s.db, func(tx pgx.Tx) error {
			if err := s.sendEnded(ctx, tx, n); err != nil {
				return err
			}
			// One that may have left earlier stays in doubt, and is looked for again.
			_, err := tx.Exec(ctx, `
				UPDATE messages SET state = CASE WHEN doubts > 0 THEN 'unknown' ELSE 'pending' END, error_code = nullif($4, ''), reason = $5,
				       send_after = CASE WHEN $6::interval > '0' AND NOT $8 THEN $7::timestamptz + $6::interval END
				WHERE shop_id = $1 AND id = $2 AND state = 'sending' AND attempts = $3`,
				n.ShopID, n.MessageID, n.Attempts, fault.Code, fault.Why, fault.After, s.now(), fault.All)
			return err
		})
		if err != nil {
			return fmt.Errorf("message %d: %w", n.MessageID, err)
		}
		err = fmt.Errorf("message %d: %w", n.MessageID, sendErr)
		switch {
		case fault.All && fault.After > 0:
			return &haltedError{&Throttled{After: fault.After}}
		case fault.All:
			return &haltedError{err}
		case fault.After > 0:
			return nil // the sweep finds it
		}
		return err
	case Unknown:
		_, err := s.db.Exec(ctx, `
			UPDATE messages SET state = 'unknown', doubts = doubts + 1, looked_at = NULL, error_code = nullif($4, ''), reason = $5
			WHERE shop_id = $1 AND id = $2 AND state = 'sending' AND attempts = $3`,
			n.ShopID, n.MessageID, n.Attempts, fault.Code, fault.Why)
		if err != nil {
			return fmt.Errorf("message %d: %w", n.MessageID, err)
		}
		return ErrLater
	}
	return s.failed(ctx, n, *fault)
}

// sendEnded gives the lease of a reserved offer's hold back: no send is under way any more. After a send
// of unknown outcome it is left to its end.
func (s *Service) sendEnded(ctx context.Context, tx pgx.Tx, n notice) error {
	if !n.Reserved {
		return nil
	}
	_, err := tx.Exec(ctx, `UPDATE holds SET notice_lease = NULL WHERE shop_id = $1 AND offer_id = $2 AND notice_lease IS NOT NULL`, n.ShopID, n.OfferID)
	return err
}

// accepted records that the provider has the message. The offer's window is counted from now, and never
// ends later than it was going to.
func (s *Service) accepted(ctx context.Context, n notice, provider string) error {
	now := s.now()
	err := pgx.BeginFunc(ctx, s.db, func(tx pgx.Tx) error {
		if err := s.sendEnded(ctx, tx, n); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `UPDATE offers SET lapses_at = least(lapses_at, $3::timestamptz + make_interval(mins => window_minutes)) WHERE shop_id = $1 AND id = $2 AND state = 'open' AND NOT reserved`, n.ShopID, n.OfferID, now)
		if err != nil {
			return err
		}
		_, err = tx.Exec(ctx, `
			UPDATE messages SET state = 'accepted', provider_id = nullif($4, ''), accepted_at = $5, reason = NULL, error_code = NULL
			WHERE shop_id = $1 AND id = $2 AND state IN ('sending', 'unknown') AND attempts = $3`, n.ShopID, n.MessageID, n.Attempts, provider, now)
		return err
	})
	if err != nil {
		return fmt.Errorf("message %d: %w", n.MessageID, err)
	}
	return nil
}

// failed records a message that did not arrive, and all that follows, in one transaction.
//
// What was not delivered is sent again while there is time to act on it. Otherwise its offer ends at once, so
// that the unit goes on, and counts as told: a person who cannot be reached would else be served first, for
// ever. Only when nothing leaves the shop's sender at all does it not count, and nobody else is offered a
// unit this way meanwhile. A dead address and an opt-out that the provider knows of are suppressed.
func (s *Service) failed(ctx context.Context, n notice, f SendError) error {
	err := s.untilSettled(ctx, "failed", func(tx pgx.Tx) error {
		if err := s.sendEnded(ctx, tx, n); err != nil {
			return err
		}
		again, err := s.sendAgain(ctx, tx, n, f)
		if err != nil || again {
			return err
		}
		meaning := string(f.Outcome)
		if f.Outcome == GiveUp && f.Sender == SenderTold {
			meaning = refused
		}
		tag, err := tx.Exec(ctx, `
			UPDATE messages SET state = 'failed', outcome = $4, error_code = nullif($5, ''), reason = $6
			WHERE shop_id = $1 AND id = $2 AND state IN ('sending', 'unknown', 'accepted') AND attempts = $3`, n.ShopID, n.MessageID, n.Attempts, meaning, f.Code, f.Why)
		if err != nil || tag.RowsAffected() == 0 {
			return err
		}
		ended := "lapsed"
		if f.Outcome == ShopFault && n.Doubts == 0 {
			// Nothing was ever sent: the hold, too, is one that nobody was told of.
			ended = "withdrawn"
			if _, err := tx.Exec(ctx, `UPDATE holds SET notice_at = NULL WHERE shop_id = $1 AND offer_id = $2 AND state IN ('securing', 'active') AND NOT pressed`, n.ShopID, n.OfferID); err != nil {
				return err
			}
		}
		// A hold that was told of ends as lapsed, by Release. One that was pressed is somebody's who did hear.
		if err := s.startRelease(ctx, tx, n.ShopID, `NOT pressed AND offer_id = ANY ($4)`, []int64{n.OfferID}, "released", false); err != nil {
			return err
		}
		if err := s.endOffers(ctx, tx, n.ShopID, []int64{n.OfferID}, ended); err != nil {
			return err
		}
		if err := s.senderFailed(ctx, tx, n, f); err != nil {
			return err
		}
		reason := map[Outcome]string{DeadAddr: Bounced, OptedOut: Stop}[f.Outcome]
		if reason == Stop && n.Channel == Email {
			reason = Unsubscribed
		}
		if reason == "" && f.Strikes > 0 {
			var strikes int
			err := tx.QueryRow(ctx, `SELECT count(*) FROM messages WHERE shop_id = $1 AND contact_id = $2 AND state = 'failed' AND error_code = $3 AND created_at > $4`,
				n.ShopID, n.ContactID, f.Code, s.now().AddDate(0, 0, -30)).Scan(&strikes)
			if err != nil {
				return err
			}
			if strikes >= f.Strikes {
				reason = Bounced
			}
		}
		if reason == "" {
			return nil
		}
		return s.suppressIn(ctx, tx, n.ShopID, Address{Channel: n.Channel, Key: n.ContactKey, Send: n.To}, reason)
	})
	if err != nil {
		return fmt.Errorf("message %d: %w", n.MessageID, err)
	}
	return nil
}

// sendAgain puts a message back that was certainly not delivered, if that may help and its offer stands long
// enough. A hold that waits for its press stays as it is.
func (s *Service) sendAgain(ctx context.Context, tx pgx.Tx, n notice, f SendError) (bool, error) {
	now := s.now()
	most := map[Outcome]int{Retry: maxReturns, Once: 1, Unknown: 1}[f.Outcome]
	if n.Returns >= most || n.OfferState != "open" || n.LapsesAt.Before(now.Add(max(f.After, 0)+timeToAct)) {
		return false, nil
	}
	tag, err := tx.Exec(ctx, `
		UPDATE messages SET state = 'pending', returns = returns + 1, provider_id = NULL, send_after = $4, error_code = nullif($5, ''), reason = $6
		WHERE shop_id = $1 AND id = $2 AND state IN ('sending', 'unknown', 'accepted') AND attempts = $3`,
		n.ShopID, n.MessageID, n.Attempts, now.Add(f.After), f.Code, f.Why)
	if err != nil || tag.RowsAffected() == 0 {
		return false, err
	}
	return true, s.tell(ctx, tx, n.ShopID, n.RestockID)
}

// Delivery is what a provider reports of a message after it was accepted.
type Delivery struct {
	MessageID  int64     // ours, when the report carries it; else 0
	Attempt    int       // the attempt that it is about; 0 = not said
	ProviderID string    // the provider's
	To         string    // the address that it names, or "": a report on a message to another address is ignored
	Status     string    // accepted, delivered, failed or complained
	Failure    SendError // of a failed one
}

// Delivered records a provider's report. Reports may be late, doubled and out of order, and may come before
// the send has returned: a message only ever moves forward. A report of a message that this shop does
// not have, or of an attempt that was made again since, is ignored.
func (s *Service) Delivered(ctx context.Context, shopID int64, d Delivery) error {
	var id int64
	err := s.db.QueryRow(ctx, `
		SELECT id FROM messages WHERE shop_id = $1 AND ((id = $2 AND (provider_id IS NULL OR $3 = '' OR provider_id = $3)) OR ($3 <> '' AND provider_id = $3)) ORDER BY id LIMIT 1`,
		shopID, d.MessageID, d.ProviderID).Scan(&id)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("delivery report: %w", err)
	}
	n, err := s.loadNotice(ctx, s.db, shopID, id, "")
	if err != nil {
		return fmt.Errorf("delivery report: %w", err)
	}
	if n.To == "" || d.To != "" && !strings.EqualFold(d.To, n.To) {
		return nil // its person was erased meanwhile, and a report may name them
	}
	current := d.Attempt == 0 || d.Attempt == n.Attempts
	switch d.Status {
	case "failed":
		if !current || (n.State != "sending" && n.State != "unknown" && n.State != "accepted") {
			return nil
		}
		return s.failed(ctx, n, d.Failure)
	case "complained":
		return s.complained(ctx, n)
	case "accepted", "delivered":
		// That an earlier copy was accepted settles the doubt about the later one: the link is the same.
		if n.State == "unknown" || n.State == "sending" && current {
			if err := s.accepted(ctx, n, d.ProviderID); err != nil {
				return err
			}
		}
		if d.Status == "delivered" && current {
			_, err = s.db.Exec(ctx, `UPDATE messages SET state = 'delivered' WHERE shop_id = $1 AND id = $2 AND state = 'accepted'`, shopID, id)
		}
	}
	if err != nil {
		return fmt.Errorf("delivery report: %w", err)
	}
	return nil
}

package waitlist

import (
	"context"
	"slices"
	"strings"
	"time"
	_ "time/tzdata" // a machine without zones must not text people at night

	"github.com/jackc/pgx/v5"
	"github.com/nyaruka/phonenumbers"

	"holdfast/app/shop"
)

// Texts go at decent hours of whoever gets them: from the shop's first hour (9) until its last (20:00), on
// Sundays in North America from noon (47 CFR 64.1200(c)(1) says 8 to 21, several states less), and to one
// number at most 3 in 24 hours of one shop, 10 minutes apart. Nobody is offered a unit who could not be told
// of it now, so that no clock runs while a message may not go.

const (
	textsADay    = 3
	betweenTexts = 10 * time.Minute
	sundayFrom   = 12
)

// zonesOf is where the owner of a phone number may be: in the zone that their browser said, else in any zone
// of their number, else of mobile numbers of the shop's country. For a mail address it is empty: mails are
// silent.
func zonesOf(a Address, browser, country string) []string {
	if a.Channel != SMS {
		return []string{}
	}
	known := func(zones []string) []string {
		zones = slices.DeleteFunc(slices.Clone(zones), func(zone string) bool {
			_, err := time.LoadLocation(zone)
			return err != nil || zone == "" || zone == "Local"
		})
		slices.Sort(zones)
		return slices.Compact(zones)
	}
	if zones := known([]string{browser}); len(zones) > 0 && len(browser) <= 64 {
		return zones
	}
	for _, n := range []*phonenumbers.PhoneNumber{parsedPhone(a.Key, ""), phonenumbers.GetExampleNumberForType(strings.ToUpper(country), phonenumbers.MOBILE)} {
		if n == nil {
			continue
		}
		of, err := phonenumbers.GetTimezonesForNumber(n)
		if zones := known(of); err == nil && len(zones) > 0 {
			return zones
		}
	}
	return []string{"Etc/UTC"}
}

// awake says whether a text may go to a number whose owner is in one of the zones: it must be a decent hour
// in each. northAmerica is for a number of +1.
func awake(now time.Time, set shop.Settings, northAmerica bool, zones ...string) bool {
	for _, zone := range zones {
		at, err := time.LoadLocation(zone)
		if err != nil {
			return false // silence is better than a text at night
		}
		local := now.In(at)
		from := set.TextFrom
		if northAmerica && local.Weekday() == time.Sunday {
			from = max(from, sundayFrom)
		}
		if local.Hour() < from || local.Hour() >= set.TextUntil {
			return false
		}
	}
	return true
}

// asleep is the zones, of all in which somebody waits for a variant, where no text may go now: to numbers of
// +1, and to others.
func (s *Service) asleep(ctx context.Context, tx pgx.Tx, shopID, variantID int64, set shop.Settings, now time.Time) (northAmerica, elsewhere []string, err error) {
	northAmerica, elsewhere = []string{}, []string{}
	if !set.QuietHours {
		return northAmerica, elsewhere, nil
	}
	rows, _ := tx.Query(ctx, `
		SELECT DISTINCT zone FROM (SELECT DISTINCT zones FROM entries WHERE shop_id = $1 AND variant_id = $2 AND state = 'waiting' AND zones <> '{}') e, unnest(e.zones) zone`,
		shopID, variantID)
	zones, err := pgx.CollectRows(rows, pgx.RowTo[string])
	for _, zone := range zones {
		if !awake(now, set, true, zone) {
			northAmerica = append(northAmerica, zone)
		}
		if !awake(now, set, false, zone) {
			elsewhere = append(elsewhere, zone)
		}
	}
	return northAmerica, elsewhere, err
}

// untoldNow says that no text may go to entry e at $5, for the hour or for those it was sent already: $9 and $10
// are what asleep returned, $11 the setting that turns it all on. A text that is still to go counts, too.
const untoldNow = `($11::boolean AND EXISTS (
	SELECT FROM contacts qc WHERE qc.shop_id = $1 AND qc.id = e.contact_id AND qc.channel = 'sms' AND (
		e.zones && CASE WHEN starts_with(qc.address, '+1') THEN $9::text[] ELSE $10::text[] END
		OR (SELECT count(*) >= 3 OR coalesce(max(q.at) > $5::timestamptz - interval '10 minutes', false)
		    FROM (SELECT coalesce(m.sending_at, m.created_at) AS at FROM messages m WHERE m.shop_id = $1 AND m.contact_id = qc.id AND m.kind = 'notice' AND m.state <> 'cancelled') q
		    WHERE q.at > $5::timestamptz - interval '24 hours'))))`

// notNow says why a text may not go to its number at this moment, or "". It is asked once more in the step
// that sends, after the shop's turn was taken: whoever sends for the same shop has committed by then.
func (s *Service) notNow(ctx context.Context, tx pgx.Tx, n notice, set shop.Settings, now time.Time) (why string, err error) {
	if n.Channel != SMS || !set.QuietHours {
		return "", nil
	}
	var zones []string
	var sent int
	var last *time.Time
	err = tx.QueryRow(ctx, `
		SELECT e.zones, q.sent, q.last FROM entries e, LATERAL (
			SELECT count(*) AS sent, max(m.sending_at) AS last FROM messages m
			WHERE m.shop_id = $1 AND m.contact_id = $3 AND m.id <> $4 AND m.kind = 'notice' AND m.state <> 'cancelled' AND m.sending_at > $5) q
		WHERE e.shop_id = $1 AND e.id = $2`, n.ShopID, n.EntryID, n.ContactID, n.MessageID, now.Add(-24*time.Hour)).Scan(&zones, &sent, &last)
	switch {
	case err != nil:
		return "", err
	case !awake(now, set, strings.HasPrefix(n.To, "+1"), zones...):
		return "it is not an hour to text them at", nil
	case sent >= textsADay:
		return "they were sent 3 texts within 24 hours", nil
	case last != nil && now.Sub(*last) < betweenTexts:
		return "they were sent a text less than 10 minutes ago", nil
	}
	return "", nil
}

// freshStock is how old the read of a variant may be that a message about it is sent by.
const freshStock = time.Minute

// readAgain reads a message's variant again, unless that was done within the last minute. What the read shows
// is acted on before it returns: offers of units that are gone are withdrawn.
func (s *Service) readAgain(ctx context.Context, n notice) error {
	stale := func() (old bool, err error) {
		err = s.db.QueryRow(ctx, `SELECT observed_at IS NULL OR observed_at <= $3 FROM variants WHERE shop_id = $1 AND id = $2`, n.ShopID, n.VariantID, s.now().Add(-freshStock)).Scan(&old)
		return old, err
	}
	old, err := stale()
	if err != nil || !old {
		return err
	}
	err = s.Observe(ctx, n.ShopID, n.VariantID)
	if err != nil && err != ErrLater { // ErrLater: it was read, and something moved meanwhile
		return err
	}
	if old, err = stale(); err == nil && old {
		return ErrLater
	}
	return err
}

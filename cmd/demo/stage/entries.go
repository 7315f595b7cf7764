package stage

import (
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
)

// Entry is a row of GET /sim/entries, in order of the queue.
type Entry struct {
	ID          int64     `json:"id"`
	VariantID   string    `json:"variant_id"`
	Contact     string    `json:"contact"`
	Channel     string    `json:"channel"`
	Name        string    `json:"name"`
	State       string    `json:"state"`
	Place       int       `json:"place"` // position among the waiting, from 1; 0 when it is not waiting
	JoinedAt    time.Time `json:"joined_at"`
	ExpiresAt   time.Time `json:"expires_at"`
	ToldRestock *int64    `json:"told_restock"` // the last restock in which it has an offer that is neither missed nor withdrawn
	Offers      []Offer   `json:"offers"`
	Holds       []Hold    `json:"holds"`
}

// Offer is an offer of an Entry.
type Offer struct {
	ID        int64     `json:"id"`
	RestockID int64     `json:"restock_id"`
	State     string    `json:"state"`
	LapsesAt  time.Time `json:"lapses_at"`
}

// Hold is a hold of an Entry.
type Hold struct {
	ID        int64      `json:"id"`
	RestockID int64      `json:"restock_id"`
	State     string     `json:"state"`
	ExpiresAt *time.Time `json:"expires_at"`
	DraftID   *string    `json:"draft_id"`
}

func (s *Stage) getEntries(r *http.Request) (any, error) {
	sh, err := s.shopOf(r.Context(), r.URL.Query().Get("shop"))
	if err != nil {
		return nil, err
	}
	var variant *int64
	if given := r.URL.Query().Get("variant_id"); given != "" {
		id, err := strconv.ParseInt(given, 10, 64)
		if err != nil {
			return nil, refuse(http.StatusBadRequest, "variant_id: %q is no number", given)
		}
		variant = &id
	}
	rows, _ := s.db.Query(r.Context(), `
		SELECT e.id, e.variant_id::text AS variant_id, c.address AS contact, c.channel, e.name, e.state,
		       CASE WHEN e.state = 'waiting' THEN count(*) FILTER (WHERE e.state = 'waiting') OVER (PARTITION BY e.variant_id ORDER BY e.joined_at, e.id) ELSE 0 END AS place,
		       e.joined_at, e.expires_at,
		       (SELECT max(o.restock_id) FROM offers o WHERE o.shop_id = e.shop_id AND o.entry_id = e.id AND o.state NOT IN ('missed', 'withdrawn')) AS told_restock,
		       coalesce((SELECT jsonb_agg(jsonb_build_object('id', o.id, 'restock_id', o.restock_id, 'state', o.state, 'lapses_at', o.lapses_at) ORDER BY o.id)
		                 FROM offers o WHERE o.shop_id = e.shop_id AND o.entry_id = e.id), '[]') AS offers,
		       coalesce((SELECT jsonb_agg(jsonb_build_object('id', h.id, 'restock_id', h.restock_id, 'state', h.state, 'expires_at', h.expires_at, 'draft_id', h.draft_id::text) ORDER BY h.id)
		                 FROM holds h WHERE h.shop_id = e.shop_id AND h.entry_id = e.id), '[]') AS holds
		FROM entries e JOIN contacts c ON c.shop_id = e.shop_id AND c.id = e.contact_id
		WHERE e.shop_id = $1 AND ($2::bigint IS NULL OR e.variant_id = $2)
		ORDER BY e.joined_at, e.id`, sh.ID, variant)
	entries, err := pgx.CollectRows(rows, pgx.RowToStructByName[Entry])
	if err != nil {
		return nil, fmt.Errorf("read entries: %w", err)
	}
	if entries == nil {
		entries = []Entry{}
	}
	return entries, nil
}

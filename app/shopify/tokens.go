package shopify

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"sync"
	"time"

	goshopify "github.com/bold-commerce/go-shopify/v4"

	"holdfast/app/shop"
	"holdfast/app/waitlist"
)

const (
	// renewBefore is how long before its end an access token is renewed, as in Shopify's own libraries. In
	// that time it is good still, so nobody waits for the renewal.
	renewBefore = 5 * time.Minute
	// renewLease is how long the claim to renew a grant stands: longer than the call takes (Timeout) and
	// what is stored after it, so that it ends of itself only when its process has died.
	renewLease = 30 * time.Second
	// renewPoll is how often a process looks whether another one has renewed a token that nobody can use
	// any more.
	renewPoll = 50 * time.Millisecond
	// renewWait is the longest that a call waits for a new token.
	renewWait = Timeout + 5*time.Second
)

// TokenSource hands out access tokens of shops that are good now. One that expires (Shopify: after an hour)
// is renewed by whoever needs it first, once at a time for a shop, also among processes: a row says who
// has claimed to renew it, until when. The call to Shopify stands between two statements:
//
//	claim ─▶ ask Shopify ─▶ store both tokens, if the claim still stands
//
// A process that dies in between leaves a claim that ends by itself, and a refresh token that Shopify
// takes again as long as nobody has used what replaced it (shopify.dev: for up to 30 days, since August
// 2026). A refresh that Shopify refuses marks the shop: only its merchant can help, by opening the app.
type TokenSource struct {
	app       goshopify.App
	sim       *url.URL // nil in production
	transport http.RoundTripper
	shops     Shops
	now       func() time.Time
	log       *slog.Logger

	mu       sync.Mutex
	renewals map[int64]*renewal // under way in this process
}

// renewal is what callers of one process wait for together.
type renewal struct {
	done  chan struct{}
	grant shop.Grant
	err   error
}

// Grant returns a shop's grant with an access token that is good now, or *waitlist.ShopRefused when there
// is none and only the merchant can help, or *waitlist.Throttled when another process is renewing it and
// took too long, or why renewing failed.
func (t *TokenSource) Grant(ctx context.Context, sh shop.Shop) (shop.Grant, error) {
	g, err := t.shops.Grant(ctx, sh.ID)
	if errors.Is(err, shop.ErrNotFound) || (err == nil && g.Token == "") {
		return shop.Grant{}, notInstalled()
	}
	if err != nil || g.Expires.IsZero() {
		return g, err
	}
	left := g.Expires.Sub(t.now())
	switch {
	case left > renewBefore:
		return g, nil
	case g.Refused && left > 0:
		return g, nil
	case g.Refused:
		return shop.Grant{}, mustReopen()
	}
	renewed, err := t.renew(ctx, sh, g, left > 0)
	if err != nil && left > 0 && ctx.Err() == nil {
		t.log.WarnContext(ctx, "an access token was not renewed yet; it is good still", "shop", sh.ID, "left", left.Round(time.Second), "err", err)
		return g, nil
	}
	return renewed, err
}

// After401 returns the grant to try again with when Shopify has answered 401 to a call with used: the one
// that has replaced it meanwhile, or a renewed one. An error means that there is none; then it is recorded
// that the merchant must open the app again, unless renewing may still succeed.
func (t *TokenSource) After401(ctx context.Context, sh shop.Shop, used shop.Grant) (shop.Grant, error) {
	g, err := t.shops.Grant(ctx, sh.ID)
	if errors.Is(err, shop.ErrNotFound) {
		return shop.Grant{}, notInstalled()
	}
	if err != nil {
		return shop.Grant{}, err
	}
	if g.Token != used.Token {
		return g, nil
	}
	if g.Refresh == "" || g.Refused {
		return shop.Grant{}, errors.Join(mustReopen(), t.refuse(ctx, sh, g))
	}
	for {
		other, err := t.renew(ctx, sh, g, false)
		// A renewal that somebody else had begun for a token that seemed good still may end with the same one.
		if err != nil || other.Token != used.Token {
			return other, err
		}
	}
}

// refuse records that only the merchant can help.
func (t *TokenSource) refuse(ctx context.Context, sh shop.Shop, g shop.Grant) error {
	t.log.WarnContext(ctx, "Shopify refuses a shop's tokens: its merchant must open the app again", "shop", sh.ID)
	return t.shops.RefuseGrant(ctx, sh.ID, g, t.now())
}

func notInstalled() error {
	return &waitlist.ShopRefused{Status: http.StatusUnauthorized, Why: "the app is not installed in the shop"}
}

func mustReopen() error {
	return &waitlist.ShopRefused{Status: http.StatusUnauthorized, Why: refusal(http.StatusUnauthorized)}
}

// renew replaces old, together with everybody in this process who wants the same. usable says that old is
// good still: then nobody waits for another process.
func (t *TokenSource) renew(ctx context.Context, sh shop.Shop, old shop.Grant, usable bool) (shop.Grant, error) {
	t.mu.Lock()
	r := t.renewals[sh.ID]
	if r == nil {
		r = &renewal{done: make(chan struct{})}
		t.renewals[sh.ID] = r
		// It goes on when the one who has begun it gives up: others wait for it.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), renewWait)
		go func() {
			defer cancel()
			r.grant, r.err = t.renewOnce(ctx, sh, old, usable)
			t.mu.Lock()
			delete(t.renewals, sh.ID)
			t.mu.Unlock()
			close(r.done)
		}()
	}
	t.mu.Unlock()
	select {
	case <-r.done:
		return r.grant, r.err
	case <-ctx.Done():
		return shop.Grant{}, ctx.Err()
	}
}

func (t *TokenSource) renewOnce(ctx context.Context, sh shop.Shop, old shop.Grant, usable bool) (shop.Grant, error) {
	var until time.Time
	for {
		now := t.now()
		until = now.Add(renewLease).Truncate(time.Microsecond) // as PostgreSQL keeps it
		claimed, err := t.shops.ClaimRefresh(ctx, sh.ID, old, now, until)
		if err != nil {
			return shop.Grant{}, err
		}
		if claimed {
			break
		}
		g, err := t.shops.Grant(ctx, sh.ID)
		switch {
		case errors.Is(err, shop.ErrNotFound):
			return shop.Grant{}, notInstalled()
		case err != nil:
			return shop.Grant{}, err
		case g.Token != old.Token || usable:
			return g, nil
		case g.Refused:
			return shop.Grant{}, mustReopen()
		}
		select {
		case <-time.After(renewPoll):
		case <-ctx.Done():
			return shop.Grant{}, &waitlist.Throttled{After: time.Second}
		}
	}
	fresh, err := t.ask(ctx, sh.Domain, map[string]string{"grant_type": "refresh_token", "refresh_token": old.Refresh})
	switch {
	case err == nil:
		return t.store(ctx, sh, until, fresh)
	case isAuth(err, InvalidGrant):
		return shop.Grant{}, errors.Join(mustReopen(), t.refuse(ctx, sh, old))
	case isAuth(err, InvalidClient):
		// The shop has left and its webhook is on its way, or our secret is wrong: the grant is not to blame.
		err = errors.Join(notInstalled(), err)
	}
	err = fmt.Errorf("renew the access token: %w", err)
	if usable {
		return shop.Grant{}, err // the claim stands until it ends: so often is it tried again
	}
	return shop.Grant{}, errors.Join(err, t.shops.Unclaim(ctx, sh.ID, until))
}

// store stores a renewed pair. When the claim was lost meanwhile, what the shop has now is returned
// instead.
func (t *TokenSource) store(ctx context.Context, sh shop.Shop, until time.Time, fresh shop.Grant) (shop.Grant, error) {
	// Shopify has given the pair: it is worth more than the deadline of whoever asked first.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), Timeout)
	defer cancel()
	if fresh.Refresh == "" {
		return shop.Grant{}, errors.New("renew the access token: Shopify has given one that cannot be renewed")
	}
	stored, err := t.shops.Renew(ctx, sh.ID, until, fresh, t.now())
	if err != nil {
		return shop.Grant{}, err
	}
	g, err := t.shops.Grant(ctx, sh.ID)
	if errors.Is(err, shop.ErrNotFound) {
		return shop.Grant{}, notInstalled()
	}
	if err == nil && !stored && !g.Expires.IsZero() && !g.Expires.After(t.now()) {
		return shop.Grant{}, &waitlist.Throttled{After: time.Second} // somebody else is renewing it now
	}
	return g, err
}

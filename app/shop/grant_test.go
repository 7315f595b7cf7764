package shop_test

import (
	"bytes"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"holdfast/app/db/dbtest"
	"holdfast/app/shop"
)

var (
	noon  = time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)
	lease = noon.Add(30 * time.Second)
	pair  = shop.Grant{Token: "access 1", Refresh: "refresh 1", Expires: noon.Add(time.Hour), Scopes: "read_products,write_draft_orders"}
)

func masterKey(fill byte) []byte { return bytes.Repeat([]byte{fill}, 32) }

func newStore(t *testing.T, db *pgxpool.Pool, masters ...[]byte) *shop.Store {
	t.Helper()
	keys, err := shop.NewKeys(masters...)
	if err != nil {
		t.Fatal(err)
	}
	return shop.NewStore(db, keys)
}

type installation struct {
	*testing.T
	*shop.Store
	db *pgxpool.Pool
	id int64
}

func install(t *testing.T, g shop.Grant) *installation {
	t.Helper()
	i := &installation{T: t, db: dbtest.New(t)}
	i.Store = newStore(t, i.db, masterKey(1))
	i.install(g, noon)
	return i
}

func (i *installation) ok(err error) {
	i.Helper()
	if err != nil {
		i.Fatal(err)
	}
}

func (i *installation) install(g shop.Grant, at time.Time) {
	i.Helper()
	id, err := i.InstallGrant(i.Context(), shop.Profile{Domain: "chairs.myshopify.com", Name: "Chairs", Currency: "EUR", Country: "IE", Locale: "en"}, g, at)
	i.ok(err)
	i.id = id
}

func (i *installation) grant() shop.Grant {
	i.Helper()
	g, err := i.Grant(i.Context(), i.id)
	i.ok(err)
	return g
}

func (i *installation) claim(g shop.Grant, now, until time.Time) bool {
	i.Helper()
	ok, err := i.ClaimRefresh(i.Context(), i.id, g, now, until)
	i.ok(err)
	return ok
}

func (i *installation) shop() shop.Shop {
	i.Helper()
	sh, err := i.ByID(i.Context(), i.id)
	i.ok(err)
	return sh
}

func TestAGrantIsReadAsItWasInstalled(t *testing.T) {
	t.Parallel()
	for _, want := range []shop.Grant{pair, {Token: "for ever"}} {
		got := install(t, want).grant()
		if got.Token != want.Token || got.Refresh != want.Refresh || !got.Expires.Equal(want.Expires) || got.Scopes != want.Scopes || got.Refused {
			t.Errorf("read %+v, want %+v", got, want)
		}
	}
}

func TestTokensAreSealedAndOpenAfterTheKeyWasChanged(t *testing.T) {
	t.Parallel()
	i := install(t, pair)
	var stored []byte
	i.ok(i.db.QueryRow(t.Context(), `SELECT sealed_token || sealed_refresh FROM shops`).Scan(&stored))
	if bytes.Contains(stored, []byte("access 1")) || bytes.Contains(stored, []byte("refresh 1")) {
		t.Error("a token can be read in the row")
	}
	rotated := newStore(t, i.db, masterKey(2), masterKey(1))
	if g, err := rotated.Grant(t.Context(), i.id); err != nil || g.Token != pair.Token || g.Refresh != pair.Refresh {
		t.Errorf("with the new key first: %+v, %v", g, err)
	}
	if _, err := newStore(t, i.db, masterKey(2)).Grant(t.Context(), i.id); !errors.Is(err, shop.ErrSealed) {
		t.Errorf("without the old key: %v", err)
	}
}

func TestOneOfManyClaimsTheRefresh(t *testing.T) {
	t.Parallel()
	i := install(t, pair)
	g := i.grant()
	var claimed atomic.Int32
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			ok, err := i.ClaimRefresh(t.Context(), i.id, g, noon, lease)
			if err != nil {
				t.Error(err)
			}
			if ok {
				claimed.Add(1)
			}
		})
	}
	all.Wait()
	if claimed.Load() != 1 {
		t.Errorf("%d of 20 have claimed", claimed.Load())
	}
}

func TestAClaimEndsWithItsTimeOrWhenItIsGivenUp(t *testing.T) {
	t.Parallel()
	i := install(t, pair)
	g := i.grant()
	if !i.claim(g, noon, lease) || i.claim(g, noon.Add(time.Second), lease.Add(time.Second)) {
		t.Fatal("the claim is not alone")
	}
	if !i.claim(g, lease, lease.Add(time.Minute)) {
		t.Error("a claim outlives its time: a process that died would keep the shop")
	}
	i.ok(i.Unclaim(t.Context(), i.id, lease)) // by the one whose time was over
	if i.claim(g, lease, lease.Add(2*time.Minute)) {
		t.Error("a claim was given up by somebody else")
	}
	i.ok(i.Unclaim(t.Context(), i.id, lease.Add(time.Minute)))
	if !i.claim(g, lease, lease.Add(2*time.Minute)) {
		t.Error("a claim that was given up still stands")
	}
}

func TestAPairIsStoredByWhoHoldsTheClaimAlone(t *testing.T) {
	t.Parallel()
	i := install(t, pair)
	old := i.grant()
	late, next := shop.Grant{Token: "access 2", Refresh: "refresh 2", Expires: noon.Add(2 * time.Hour)}, shop.Grant{Token: "access 3", Refresh: "refresh 3", Expires: noon.Add(3 * time.Hour)}
	i.claim(old, noon, lease)
	i.claim(old, lease, lease.Add(time.Minute)) // by another process, after the first one slept through its time
	if stored, err := i.Renew(t.Context(), i.id, lease, late, lease); stored || err != nil {
		t.Errorf("who came late has stored: %v, %v", stored, err)
	}
	if stored, err := i.Renew(t.Context(), i.id, lease.Add(time.Minute), next, lease); !stored || err != nil {
		t.Errorf("who holds the claim has not stored: %v, %v", stored, err)
	}
	if g := i.grant(); g.Token != next.Token || g.Refresh != next.Refresh || !g.Expires.Equal(next.Expires) || g.Scopes != pair.Scopes {
		t.Errorf("stored %+v", g)
	}
	if i.claim(old, lease.Add(time.Hour), lease.Add(2*time.Hour)) {
		t.Error("a grant that was replaced can be claimed")
	}
}

func TestAReinstallationEndsAClaim(t *testing.T) {
	t.Parallel()
	i := install(t, pair)
	i.claim(i.grant(), noon, lease)
	i.install(shop.Grant{Token: "new", Refresh: "new too", Expires: noon.Add(time.Hour)}, noon.Add(time.Second))
	if stored, err := i.Renew(t.Context(), i.id, lease, shop.Grant{Token: "of the former installation", Refresh: "r", Expires: noon.Add(time.Hour)}, noon); stored || err != nil {
		t.Errorf("stored %v, %v", stored, err)
	}
	if g := i.grant(); g.Token != "new" {
		t.Errorf("the token is %q", g.Token)
	}
}

func TestARefusedGrantIsSeenUntilAnotherOneReplacesIt(t *testing.T) {
	t.Parallel()
	i := install(t, pair)
	old := i.grant()
	i.ok(i.RefuseGrant(t.Context(), i.id, old, noon))
	if !i.shop().Refused || !i.grant().Refused {
		t.Error("the refusal is not seen")
	}
	i.ok(i.AcceptGrant(t.Context(), i.id, old))
	if i.shop().Refused {
		t.Error("a grant that was accepted after all counts as refused")
	}
	i.ok(i.RefuseGrant(t.Context(), i.id, old, noon))
	i.install(shop.Grant{Token: "new"}, noon)
	if i.shop().Refused {
		t.Error("a new grant counts as refused")
	}
	i.ok(i.RefuseGrant(t.Context(), i.id, old, noon)) // about the one before
	if i.shop().Refused {
		t.Error("the refusal of the former grant fell on the new one")
	}
}

func TestUninstallingDropsTheTokensAndKeepsTheSettings(t *testing.T) {
	t.Parallel()
	i := install(t, pair)
	before, err := i.Settings(t.Context(), i.id)
	i.ok(err)
	i.ok(shop.Uninstall(t.Context(), i.db, i.id, noon.Add(time.Hour)))
	if sh := i.shop(); sh.Installed || sh.HasToken || sh.Scopes != "" {
		t.Errorf("after uninstalling: %+v", sh)
	}
	if _, err := i.Grant(t.Context(), i.id); !errors.Is(err, shop.ErrNotFound) {
		t.Errorf("the grant: %v", err)
	}
	id := i.id
	i.install(pair, noon.Add(2*time.Hour))
	after, err := i.Settings(t.Context(), i.id)
	i.ok(err)
	if i.id != id || !i.shop().Installed || after.HoldMinutes != before.HoldMinutes {
		t.Errorf("installed again as %d: %+v", i.id, i.shop())
	}
}

func TestALateWebhookDoesNotEndAYoungerInstallation(t *testing.T) {
	t.Parallel()
	i := install(t, pair)
	i.install(pair, noon.Add(time.Minute))
	i.ok(shop.Uninstall(t.Context(), i.db, i.id, noon.Add(30*time.Second)))
	if !i.shop().Installed {
		t.Error("it is uninstalled by what happened before it was installed")
	}
}

func TestScopesAreThoseThatWereToldLast(t *testing.T) {
	t.Parallel()
	i := install(t, pair)
	i.ok(shop.RecordScopes(t.Context(), i.db, i.id, []string{"read_products", "read_orders"}, noon.Add(2*time.Minute)))
	i.ok(shop.RecordScopes(t.Context(), i.db, i.id, []string{"read_products"}, noon.Add(time.Minute))) // delivered late
	if got := i.shop().Scopes; got != "read_products,read_orders" {
		t.Errorf("scopes are %q", got)
	}
}

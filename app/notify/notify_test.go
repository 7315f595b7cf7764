package notify

import (
	"log/slog"
	"strings"
	"testing"

	"holdfast/app/waitlist"
)

func TestAnUnknownChannelIsGivenUp(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	m := mailNotice()
	m.Channel = "fax"
	w.wantFailed(m, waitlist.GiveUp, 0)
}

func TestAConfigurationIsRefusedWithAllItsFaultsAndNoSecret(t *testing.T) {
	t.Parallel()
	good := Config{PublicURL: "https://holdfast.example.com", SMTPURL: "smtp://user:secret@smtp.example.com", EmailFrom: "Restock <restock@example.com>"}
	for _, c := range []struct {
		change func(*Config)
		says   []string
	}{
		{func(c *Config) {}, nil},
		{func(c *Config) { c.PublicURL = "https://holdfast.example.com/" }, nil},
		{func(c *Config) { c.SMTPURL = "smtps://user:secret@smtp.example.com" }, nil},
		{func(c *Config) {
			c.PublicURL, c.Sim, c.SMTPURL, c.EmailFrom = "http://127.0.0.1:8080", "http://127.0.0.1:8081", "smtp://127.0.0.1:2525", "restock@localhost"
		}, nil},
		{func(c *Config) { *c = Config{} }, []string{"public URL:", "mail server:", "sender's mail address:"}},
		{func(c *Config) { c.PublicURL = "http://holdfast.example.com" }, []string{"https"}},
		{func(c *Config) { c.PublicURL = "https://holdfast.example.com/app" }, []string{"scheme and host alone"}},
		{func(c *Config) { c.PublicURL = "https://user:secret@holdfast.example.com" }, []string{"scheme and host alone"}},
		{func(c *Config) { c.PublicURL = "://secret" }, []string{"scheme and host alone"}},
		{func(c *Config) { c.SMTPURL = "http://user:secret@smtp.example.com" }, []string{"smtp://"}},
		{func(c *Config) { c.SMTPURL = "smtp://user@smtp.example.com" }, []string{"user and password"}},
		{func(c *Config) { c.SMTPURL = "smtp://user:se%cret@smtp.example.com" }, []string{"encode special characters"}},
		{func(c *Config) { c.SMTPURL = "smtp://user:secret@smtp.example.com/path" }, []string{"give a URL"}},
		{func(c *Config) { c.EmailFrom = "restock" }, []string{"restock@example.com"}},
		{func(c *Config) { c.EmailFrom = `"a b"@example.com` }, []string{"space"}},
		{func(c *Config) { c.Sim = "https://sim.example.com" }, []string{"on this machine"}},
		{func(c *Config) { c.Sim = "http://127.0.0.1:8081" }, []string{"on this machine"}}, // the public URL is not
	} {
		cfg := good
		c.change(&cfg)
		sender, err := New(cfg, shops{}, slog.New(slog.DiscardHandler))
		if len(c.says) == 0 {
			if err != nil || sender == nil {
				t.Errorf("%+v: %v", cfg, err)
			}
			continue
		}
		if err == nil || sender != nil {
			t.Errorf("%+v: was taken", cfg)
			continue
		}
		for _, want := range c.says {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%+v: %q is missing in %q", cfg, want, err)
			}
		}
		if strings.Contains(err.Error(), "secret") {
			t.Errorf("a secret is shown: %q", err)
		}
	}
}

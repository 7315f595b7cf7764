package main

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func good() map[string]string {
	return map[string]string{
		"HOLDFAST_URL": "https://app.example.com", "DATABASE_URL": "postgres://u:db-secret@db.example/holdfast",
		"SHOPIFY_CLIENT_ID": "id", "SHOPIFY_CLIENT_SECRET": "shopify-secret",
		"HOLDFAST_KEYS": base64.StdEncoding.EncodeToString(bytes.Repeat([]byte("k"), 32)),
		"SMTP_URL":      "smtps://u:smtp-secret@smtp.example.com:465", "EMAIL_FROM": "restock@mail.example.com",
	}
}

func env(values map[string]string) func(string) string {
	return func(name string) string { return values[name] }
}

func TestAWholeEnvironmentIsRead(t *testing.T) {
	t.Parallel()
	c, err := readConfig(env(good()), false)
	if err != nil {
		t.Fatal(err)
	}
	if c.listen != ":8080" || c.opsListen != "127.0.0.1:9090" || c.directURL != c.databaseURL || c.keys == nil || c.public.Host != "app.example.com" {
		t.Fatalf("%+v", c)
	}
}

func TestAllFaultsAreSaidAtOnceAndNoSecretIs(t *testing.T) {
	t.Parallel()
	bad := good()
	bad["HOLDFAST_URL"], bad["EMAIL_FROM"], bad["HOLDFAST_KEYS"], bad["TRUSTED_HOPS"] = "http://app.example.com/x", "Shop <a@b.c>", "not-a-key-but-secret", "many"
	delete(bad, "SHOPIFY_CLIENT_ID")
	_, err := readConfig(env(bad), false)
	if err == nil {
		t.Fatal("it was read")
	}
	for _, name := range []string{"HOLDFAST_URL", "EMAIL_FROM", "HOLDFAST_KEYS", "TRUSTED_HOPS", "SHOPIFY_CLIENT_ID"} {
		if !strings.Contains(err.Error(), name) {
			t.Errorf("nothing is said about %s:\n%v", name, err)
		}
	}
	if strings.Contains(err.Error(), "secret") && strings.Contains(err.Error(), "not-a-key") {
		t.Errorf("a secret is printed:\n%v", err)
	}
}

func TestTheKeyThatSignsMailsIsReadFromItsFile(t *testing.T) {
	t.Parallel()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	file := func(name string, raw []byte) string {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, raw, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for name, c := range map[string]struct {
		path, selector, says string
	}{
		"a key":         {file("key.pem", pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})), "s1", ""},
		"no file":       {"/nowhere/key.pem", "s1", "DKIM_KEY_FILE"},
		"a name alone":  {"", "s1", "DKIM_KEY_FILE"},
		"not PEM":       {file("raw", der), "s1", "not in PEM"},
		"another thing": {file("cert.pem", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("secret")})), "s1", "no private key"},
	} {
		values := good()
		values["DKIM_KEY_FILE"], values["DKIM_SELECTOR"] = c.path, c.selector
		cfg, err := readConfig(env(values), false)
		if c.says == "" && (err != nil || cfg.dkimKey == nil) || c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, k := range []string{"short", "twenty-four/and/a/slash/or/two"} {
		values := good()
		values["EMAIL_WEBHOOK_KEY"] = k
		if _, err := readConfig(env(values), false); err == nil || !strings.Contains(err.Error(), "EMAIL_WEBHOOK_KEY") || strings.Contains(err.Error(), k) {
			t.Errorf("%q: %v", k, err)
		}
	}
}

func TestADatabaseOfItsOwnIsForOneMachine(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		url      string
		embedded bool
		ok       bool
	}{
		{"https://app.example.com", false, false}, // two machines would each promise every unit
		{"https://app.example.com", true, true},
		{"http://127.0.0.1:8080", false, true},
		{"http://localhost:8080", false, true},
		{"http://app.example.com", true, false}, // links carry tokens
	} {
		values := good()
		values["HOLDFAST_URL"] = c.url
		delete(values, "DATABASE_URL")
		if _, err := readConfig(env(values), c.embedded); (err == nil) != c.ok {
			t.Errorf("%s, embedded %t: %v", c.url, c.embedded, err)
		}
	}
}

func TestSimulatorsAreForThisMachine(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		url, sim string
		ok       bool
	}{
		{"http://127.0.0.1:8080", "http://127.0.0.1:8081", true},
		{"https://app.example.com", "http://127.0.0.1:8081", false},
		{"http://127.0.0.1:8080", "http://sim.example.com", false},
	} {
		values := good()
		values["HOLDFAST_URL"], values["HOLDFAST_SIM"] = c.url, c.sim
		if _, err := readConfig(env(values), false); (err == nil) != c.ok {
			t.Errorf("%s with %s: %v", c.url, c.sim, err)
		}
	}
}

func TestAnUnknownCommandSaysWhichThereAre(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{nil, {"server"}, {"serve", "now"}} {
		if err := run(t.Context(), args, env(good())); err == nil {
			t.Errorf("%q ran", args)
		}
	}
}

func TestCrashPointsAreTheSimulators(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		sim, crash string
		ok, asked  bool
	}{
		{"http://127.0.0.1:8081", "", true, true},
		{"http://127.0.0.1:8081", "off", true, false},
		{"http://127.0.0.1:8081", "perhaps", false, false},
		{"", "off", false, false},
	} {
		values := good()
		values["HOLDFAST_URL"], values["HOLDFAST_SIM"], values["HOLDFAST_SIM_CRASH"] = "http://127.0.0.1:8080", c.sim, c.crash
		got, err := readConfig(env(values), false)
		if (err == nil) != c.ok || (c.ok && got.crash != c.asked) {
			t.Errorf("%+v: %v, asked %t", c, err, got.crash)
		}
	}
}

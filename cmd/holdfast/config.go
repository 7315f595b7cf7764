package main

import (
	"crypto"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/mail"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"holdfast/app/shop"
)

// config is everything that the environment says. It is read once, here; secrets are never printed.
type config struct {
	databaseURL string // of the pool; empty: the embedded PostgreSQL
	directURL   string // for migrations and River's listener, past a pooler; default: databaseURL
	embedded    bool   // -embedded: keep the database on this machine although the address is public
	data        string // folder of the embedded PostgreSQL

	public    *url.URL // HOLDFAST_URL
	listen    string
	opsListen string
	hops      int // our own proxies in front of us

	clientID, clientSecret, clientSecretOld string

	keys *shop.Keys

	smtpURL, emailFrom string
	dkimKey            crypto.Signer // of EMAIL_FROM's domain; nil: the mail server signs
	dkimSelector       string
	emailWebhookKey    string // unguessable part of the address of Postmark's reports; empty: none are taken

	sim   string // HOLDFAST_SIM: base of the simulators; empty in production
	crash bool   // HOLDFAST_SIM_CRASH: the simulators are asked at each named crash point; measurements go without
}

// readConfig reads the environment and returns every fault of it at once.
func readConfig(env func(string) string, embedded bool) (config, error) {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	or := func(name, otherwise string) string {
		if v := env(name); v != "" {
			return v
		}
		return otherwise
	}
	needed := func(name, what string) string {
		v := env(name)
		if v == "" {
			fault("%s is missing: %s", name, what)
		}
		return v
	}

	c := config{
		databaseURL: env("DATABASE_URL"), embedded: embedded,
		listen: or("LISTEN", ":8080"), opsListen: or("OPS_LISTEN", "127.0.0.1:9090"),
		clientID:     needed("SHOPIFY_CLIENT_ID", "the client id of the Shopify app, from its page in the Dev Dashboard"),
		clientSecret: needed("SHOPIFY_CLIENT_SECRET", "the client secret of the Shopify app, from the same page"), clientSecretOld: env("SHOPIFY_CLIENT_SECRET_OLD"),
		smtpURL:         needed("SMTP_URL", "where mails go, such as smtps://user:password@smtp.example.com:465"),
		emailWebhookKey: env("EMAIL_WEBHOOK_KEY"), dkimSelector: env("DKIM_SELECTOR"),
		sim: strings.TrimSuffix(env("HOLDFAST_SIM"), "/"),
	}
	c.directURL = or("DATABASE_DIRECT_URL", c.databaseURL)
	c.data = or("HOLDFAST_DATA", dataFolder())

	if raw := needed("HOLDFAST_URL", "the public address of this program, such as https://app.example.com"); raw != "" {
		u, err := url.Parse(raw)
		if err != nil || (u.Scheme != "https" && u.Scheme != "http") || u.Host == "" || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.User != nil {
			fault("HOLDFAST_URL must be scheme and host alone, such as https://app.example.com")
		} else {
			u.Path = ""
			c.public = u
			if u.Scheme == "http" && !loopback(u) {
				fault("HOLDFAST_URL must begin with https: links carry tokens")
			}
		}
	}
	if from := needed("EMAIL_FROM", "the address that mails come from, such as restock@mail.example.com"); from != "" {
		if a, err := mail.ParseAddress(from); err != nil || a.Address != from {
			fault("EMAIL_FROM must be one mail address and no name, such as restock@mail.example.com")
		}
		c.emailFrom = from
	}
	if path := env("DKIM_KEY_FILE"); path != "" || c.dkimSelector != "" {
		var err error
		if c.dkimKey, err = readSigner(path); err != nil {
			fault("DKIM_KEY_FILE and DKIM_SELECTOR belong together: %w", err)
		}
	}
	if k := c.emailWebhookKey; k != "" && (len(k) < 24 || url.PathEscape(k) != k) {
		fault("EMAIL_WEBHOOK_KEY is a secret of 24 or more letters and digits: openssl rand -hex 24")
	}
	var masters [][]byte
	for i, k := range strings.Split(needed("HOLDFAST_KEYS", "one or more keys of 32 bytes in base64, the newest first: openssl rand -base64 32"), ",") {
		raw, err := base64.StdEncoding.DecodeString(strings.TrimSpace(k))
		if err != nil || (len(raw) != 32 && k != "") {
			fault("HOLDFAST_KEYS: key %d is not 32 bytes in base64: make one with openssl rand -base64 32", i+1)
			continue
		}
		masters = append(masters, raw)
	}
	if env("HOLDFAST_KEYS") != "" && len(faults) == 0 {
		var err error
		if c.keys, err = shop.NewKeys(masters...); err != nil {
			fault("HOLDFAST_KEYS: %w", err)
		}
	}
	var err error
	if c.hops, err = strconv.Atoi(or("TRUSTED_HOPS", "0")); err != nil || c.hops < 0 || c.hops > 10 {
		fault("TRUSTED_HOPS is the number of your own proxies in front of this program, 0 to 10")
	}
	if c.databaseURL == "" && !embedded && c.public != nil && !loopback(c.public) {
		fault("DATABASE_URL is missing: at a public address the database must be one that all machines share, since two with a database of their own would each promise every unit. (-embedded keeps one on this machine alone.)")
	}
	if c.sim != "" {
		u, err := url.Parse(c.sim)
		if err != nil || u.Host == "" || !loopback(u) || (c.public != nil && !loopback(c.public)) {
			fault("HOLDFAST_SIM is for the demo: it and HOLDFAST_URL must be addresses of this machine (127.0.0.1)")
		}
	}
	switch crash := or("HOLDFAST_SIM_CRASH", "on"); {
	case crash != "on" && crash != "off":
		fault("HOLDFAST_SIM_CRASH is on or off")
	case env("HOLDFAST_SIM_CRASH") != "" && c.sim == "":
		fault("HOLDFAST_SIM_CRASH says something about simulators, and HOLDFAST_SIM names none")
	default:
		c.crash = crash == "on"
	}
	return c, errors.Join(faults...)
}

// readSigner reads a private key from a file in PEM, PKCS #8 or PKCS #1. Its errors show nothing of it.
func readSigner(path string) (crypto.Signer, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(raw)
	if block == nil {
		return nil, errors.New("the file is not in PEM: openssl genpkey -algorithm RSA -pkeyopt rsa_keygen_bits:2048")
	}
	if key, err := x509.ParsePKCS1PrivateKey(block.Bytes); err == nil {
		return key, nil
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	signer, ok := key.(crypto.Signer)
	if err != nil || !ok {
		return nil, errors.New("the file has no private key of PKCS #8 or PKCS #1")
	}
	return signer, nil
}

// dataFolder is where the embedded PostgreSQL keeps its data unless HOLDFAST_DATA says otherwise. root's own
// home is closed to the unprivileged user that PostgreSQL runs as.
func dataFolder() string {
	if os.Geteuid() == 0 {
		return "/var/lib/holdfast"
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return filepath.Join(os.TempDir(), "holdfast")
	}
	return filepath.Join(home, ".holdfast")
}

// loopback says whether an address can be reached from this machine alone.
func loopback(u *url.URL) bool {
	ip := net.ParseIP(u.Hostname())
	return u.Hostname() == "localhost" || (ip != nil && ip.IsLoopback())
}

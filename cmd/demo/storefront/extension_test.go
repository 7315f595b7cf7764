package storefront_test

import (
	"compress/gzip"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/BurntSushi/toml"

	"holdfast/app/waitlist"
)

func read(t *testing.T, path string) []byte {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

func TestShopifysThemeCheckFindsNothingInTheExtension(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat(filepath.Join(nodeDir, "node_modules", "@shopify", "theme-check-node")); err != nil {
		t.Fatal("theme check is not installed: npm ci --prefix cmd/demo/storefront/node")
	}
	extension, err := filepath.Abs(extensionDir)
	if err != nil {
		t.Fatal(err)
	}
	check := exec.Command("node", "check.js", extension)
	check.Dir = nodeDir
	said, err := check.CombinedOutput()
	if err != nil || !strings.Contains(string(said), " 0 offenses") {
		t.Errorf("%v\n%s", err, said)
	}
}

// schema is what theme check does not look at in a block's schema.
type schema struct {
	Name, Target, JavaScript, Stylesheet string
	Settings                             []struct {
		Type, ID, Label, Info, Content string
	}
}

func TestTheBlocksSchemaIsOneThatShopifyTakes(t *testing.T) {
	t.Parallel()
	_, rest, found := strings.Cut(string(read(t, filepath.Join(extensionDir, "blocks", "notify-me.liquid"))), "{% schema %}")
	source, _, closed := strings.Cut(rest, "{% endschema %}")
	if !found || !closed {
		t.Fatal("the block has no schema")
	}
	var s schema
	if err := json.Unmarshal([]byte(source), &s); err != nil {
		t.Fatal(err)
	}
	texts := translations(t, "en.default.schema.json")
	resolve := func(text string) string {
		key, isKey := strings.CutPrefix(text, "t:")
		if !isKey {
			if text != "" {
				t.Errorf("%q is not a translation", text)
			}
			return text
		}
		if texts[key] == "" {
			t.Errorf("no text for %s", key)
		}
		return texts[key]
	}

	if name := resolve(s.Name); name == "" || len(name) > 25 {
		t.Errorf("the block's name %q is not 1 to 25 characters long", name)
	}
	if !slices.Contains([]string{"section", "head", "body", "compliance_head"}, s.Target) {
		t.Errorf("unknown target %q", s.Target)
	}
	for _, asset := range []string{s.JavaScript, s.Stylesheet} {
		read(t, filepath.Join(extensionDir, "assets", asset))
	}
	seen := map[string]bool{}
	for _, setting := range s.Settings {
		if setting.ID == "" || seen[setting.ID] {
			t.Errorf("the setting id %q is empty or not unique", setting.ID)
		}
		seen[setting.ID] = true
		if !slices.Contains([]string{"product", "text", "textarea", "checkbox"}, setting.Type) {
			t.Errorf("setting %s has the type %q: add it here if Shopify knows it", setting.ID, setting.Type)
		}
		if resolve(setting.Label) == "" {
			t.Errorf("setting %s has no label", setting.ID)
		}
		resolve(setting.Info)
	}
}

// translations are a locale file's texts by their full keys.
func translations(t *testing.T, file string) map[string]string {
	t.Helper()
	var tree map[string]any
	if err := json.Unmarshal(read(t, filepath.Join(extensionDir, "locales", file)), &tree); err != nil {
		t.Fatal(err)
	}
	texts := map[string]string{}
	var walk func(prefix string, tree map[string]any)
	walk = func(prefix string, tree map[string]any) {
		for key, value := range tree {
			switch value := value.(type) {
			case string:
				texts[prefix+key] = value
			case map[string]any:
				walk(prefix+key+".", value)
			}
		}
	}
	walk("", tree)
	return texts
}

func TestEveryTextOfTheBlockIsUsedAndThere(t *testing.T) {
	t.Parallel()
	block := string(read(t, filepath.Join(extensionDir, "blocks", "notify-me.liquid")))
	texts := translations(t, "en.default.json")
	used := map[string]bool{}
	for _, m := range regexp.MustCompile(`'(notify_me\.\w+)' \| t\b`).FindAllStringSubmatch(block, -1) {
		used[m[1]] = true
		if texts[m[1]] == "" {
			t.Errorf("no text for %s", m[1])
		}
	}
	for key := range texts {
		if !used[key] {
			t.Errorf("%s is never shown", key)
		}
	}
	if len(used) == 0 {
		t.Error("the block has no texts at all")
	}
}

func TestTheScriptAndTheStylesheetAreSmall(t *testing.T) {
	t.Parallel()
	for asset, most := range map[string]int{"notify-me.js": 10_000, "notify-me.css": 10_000} {
		if size := len(read(t, filepath.Join(extensionDir, "assets", asset))); size >= most {
			t.Errorf("%s has %d bytes, fewer than %d are allowed", asset, size, most)
		}
	}
}

func TestTheLockfileNamesNoRegistry(t *testing.T) {
	t.Parallel()
	lock := string(read(t, filepath.Join(nodeDir, "package-lock.json")))
	if strings.Contains(lock, `"resolved"`) || regexp.MustCompile(`https?://[^"]*\.tgz`).MatchString(lock) {
		t.Error("the lockfile names the hosts that it was made with: set omit-lockfile-registry-resolved=true and make it again")
	}
	if !strings.Contains(lock, `"integrity": "sha512-`) {
		t.Error("the lockfile has no checksums")
	}
}

// appConfig is every key that shopify.app.toml may have here: Shopify's CLI accepts unknown ones
// without a word.
type appConfig struct {
	ClientID       string `toml:"client_id"`
	Name           string `toml:"name"`
	ApplicationURL string `toml:"application_url"`
	Embedded       bool   `toml:"embedded"`
	Build          struct {
		UpdateURLs bool `toml:"automatically_update_urls_on_dev"`
	} `toml:"build"`
	AccessScopes struct {
		Scopes string `toml:"scopes"`
	} `toml:"access_scopes"`
	Auth struct {
		RedirectURLs []string `toml:"redirect_urls"`
	} `toml:"auth"`
	Webhooks struct {
		APIVersion    string `toml:"api_version"`
		Subscriptions []struct {
			Topics           []string `toml:"topics"`
			ComplianceTopics []string `toml:"compliance_topics"`
			URI              string   `toml:"uri"`
			IncludeFields    []string `toml:"include_fields"`
		} `toml:"subscriptions"`
	} `toml:"webhooks"`
	AppProxy struct {
		URL     string `toml:"url"`
		Subpath string `toml:"subpath"`
		Prefix  string `toml:"prefix"`
	} `toml:"app_proxy"`
}

func TestTheAppsConfigurationAsksForWhatTheProgramServes(t *testing.T) {
	t.Parallel()
	var app appConfig
	meta, err := toml.Decode(string(read(t, "../../../storefront-extension/shopify.app.toml")), &app)
	if err != nil {
		t.Fatal(err)
	}
	if unknown := meta.Undecoded(); len(unknown) > 0 {
		t.Errorf("keys that Shopify does not know: %v", unknown)
	}
	if !regexp.MustCompile(`^[0-9a-f]{32}$`).MatchString(app.ClientID) || app.Name == "" || len(app.Name) > 30 || !app.Embedded {
		t.Errorf("client_id %q, name %q, embedded %v", app.ClientID, app.Name, app.Embedded)
	}
	if app.AppProxy.URL != "/proxy" || app.AppProxy.Prefix != "apps" || app.AppProxy.Subpath != "notify" {
		t.Errorf("the app proxy is %v; the block's default is /apps/notify", app.AppProxy)
	}
	if want := "read_inventory,read_locations,read_orders,read_products,write_app_proxy,write_draft_orders"; app.AccessScopes.Scopes != want {
		t.Errorf("scopes %s, want %s", app.AccessScopes.Scopes, want)
	}
	topics := webhookTopics(t)
	seen, fields := map[string]bool{}, map[string][]string{}
	for _, s := range app.Webhooks.Subscriptions {
		if s.URI != "/webhooks/shopify" {
			t.Errorf("a webhook goes to %s", s.URI)
		}
		for _, topic := range append(s.Topics, s.ComplianceTopics...) {
			if seen[topic] {
				t.Errorf("%s is subscribed to twice", topic)
			}
			seen[topic], fields[topic] = true, s.IncludeFields
			if !waitlist.KnownTopic(topic) {
				t.Errorf("nothing follows from %s", topic)
			}
		}
		for _, topic := range s.Topics { // compliance topics are not in the enum
			if name := strings.ToUpper(strings.ReplaceAll(topic, "/", "_")); !topics[name] {
				t.Errorf("Shopify has no topic %s", topic)
			}
		}
	}
	for _, topic := range []string{
		"inventory_levels/update", "inventory_items/update", "products/create", "products/update", "products/delete",
		"draft_orders/create", "draft_orders/update", "draft_orders/delete", "orders/create", "orders/cancelled",
		"shop/update", "app/uninstalled", "app/scopes_update", "customers/data_request", "customers/redact", "shop/redact",
	} {
		if !seen[topic] {
			t.Errorf("%s is not subscribed to", topic)
		}
	}
	// What the program reads of a trimmed payload has to be asked for.
	for topic, read := range map[string][]string{
		"draft_orders/create": {"id", "tags", "note_attributes"},
		"draft_orders/update": {"id", "status", "order_id", "line_items"},
		"draft_orders/delete": {"id"},
		"orders/create":       {"id", "tags", "note_attributes", "line_items", "source_name", "email", "contact_email", "phone", "customer"},
		"orders/cancelled":    {"id", "tags", "note_attributes", "line_items"},
	} {
		for _, field := range read {
			if !slices.Contains(fields[topic], field) {
				t.Errorf("%s comes without %s", topic, field)
			}
		}
	}
}

// webhookTopics are those of Shopify's Admin schema, as its enum WebhookSubscriptionTopic spells them.
func webhookTopics(t *testing.T) map[string]bool {
	t.Helper()
	file, err := os.Open("../../../app/shopify/shopifysim/admin_2026-10.nodesc.graphql.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	unzipped, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	admin, err := io.ReadAll(unzipped)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(admin), "enum WebhookSubscriptionTopic {")
	enum, _, closed := strings.Cut(rest, "}")
	if !found || !closed {
		t.Fatal("the schema has no enum WebhookSubscriptionTopic")
	}
	topics := map[string]bool{}
	for _, name := range regexp.MustCompile(`(?m)^\s*([A-Z_]+)`).FindAllStringSubmatch(enum, -1) {
		topics[name[1]] = true
	}
	return topics
}

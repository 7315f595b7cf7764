package storefront

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

func testRenderer(t *testing.T, extension string) *renderer {
	t.Helper()
	r, err := newRenderer("node", extension)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.close)
	return r
}

func theExtension() string { return "../../../storefront-extension/extensions/notify-me" }

func soldOut() block {
	p := Product{ID: "1", Handle: "chair", Title: "Chair", Variants: []Variant{{ID: "12", Title: "Walnut"}},
		Shop: Shop{Currency: "GBP", Country: "GB", Locale: "en"}}
	return notifyMe(productPage{Product: p, Path: "/shops/north", Locale: "en", Chosen: p.Variants[0]})
}

// extensionOf writes an extension with one block, "it".
func extensionOf(t *testing.T, liquid string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "blocks"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "blocks", "it.liquid"), []byte(liquid), 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestAMerchantsTextsReplaceTheTranslationsAndAreEscaped(t *testing.T) {
	t.Parallel()
	r := testRenderer(t, theExtension())
	b := soldOut()
	b.Settings["heading"] = `"><script>`
	b.Settings["submit"] = "Tell me"
	b.Settings["proxy"] = `/a"b`

	got, err := r.render(b)

	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(got.HTML, `"><script>`) || strings.Contains(got.HTML, `a"b`) {
		t.Error("a setting's markup went through unescaped")
	}
	if !strings.Contains(got.HTML, "Tell me") || strings.Contains(got.HTML, "Get one when") {
		t.Errorf("the merchant's texts are not used:\n%s", got.HTML)
	}
}

func TestABlockWithoutAProductShowsNothing(t *testing.T) {
	t.Parallel()
	r := testRenderer(t, theExtension())
	b := soldOut()
	b.Settings["product"] = nil

	got, err := r.render(b)

	if err != nil || strings.TrimSpace(got.HTML) != "" {
		t.Errorf("got %q, %v", got.HTML, err)
	}
}

func TestTheThemeEditorAlwaysShowsTheBlock(t *testing.T) {
	t.Parallel()
	r := testRenderer(t, theExtension())
	b := soldOut()
	b.Settings["product"].(map[string]any)["selected_or_first_available_variant"].(map[string]any)["available"] = true
	b.Globals["request"].(map[string]any)["design_mode"] = true

	got, err := r.render(b)

	if err != nil {
		t.Fatal(err)
	}
	if tag, _, _ := strings.Cut(got.HTML, ">"); strings.Contains(tag, " hidden") || !strings.Contains(tag, "data-preview") {
		t.Errorf("the merchant cannot see what they edit: %s", tag)
	}
}

func TestWhatIsNotSimulatedIsAnError(t *testing.T) {
	t.Parallel()
	const schema = `{% schema %}{"name": "It", "settings": []}{% endschema %}`
	for liquid, want := range map[string]string{
		`{{ 'a' | payment_button }}` + schema: "payment_button",
		`{{ customer.email }}` + schema:       "customer",
		`{{ 'no.such.key' | t }}` + schema:    "no.such.key",
		`{% stylesheet %}{% endstylesheet %}`: "stylesheet",
		`no schema`:                           "no schema",
	} {
		r := testRenderer(t, extensionOf(t, liquid))
		b := soldOut()
		b.Block = "it"
		if _, err := r.render(b); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want an error about %s", liquid, err, want)
		}
	}
}

func TestJSONCannotEndItsScriptElement(t *testing.T) {
	t.Parallel()
	r := testRenderer(t, extensionOf(t, `{{ block.settings.a | json }}{% schema %}{"name": "It", "settings": []}{% endschema %}`))
	b := soldOut()
	b.Block, b.Settings = "it", map[string]any{"a": "</script>&"}

	got, err := r.render(b)

	if want := `"\u003c/script\u003e\u0026"`; err != nil || got.HTML != want {
		t.Errorf("got %q, %v; want %s", got.HTML, err, want)
	}
}

func TestARendererThatDiedIsReplaced(t *testing.T) {
	t.Parallel()
	r := testRenderer(t, theExtension())
	first, err := r.render(soldOut())
	if err != nil {
		t.Fatal(err)
	}
	dead := r.child.cmd.Process
	if err := dead.Kill(); err != nil {
		t.Fatal(err)
	}

	second, err := r.render(soldOut())

	if err != nil || second != first {
		t.Fatalf("after the child was killed: %v", err)
	}
	if r.child.cmd.Process.Pid == dead.Pid {
		t.Error("the dead child answered")
	}
}

func TestTheChildEndsWhenNobodyHoldsItsStdin(t *testing.T) {
	t.Parallel()
	r := testRenderer(t, theExtension())
	c, err := r.start()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.stdin.Close(); err != nil { // as the system does when this process is killed
		t.Fatal(err)
	}
	if err := c.cmd.Wait(); err != nil {
		t.Errorf("the child did not end well: %v, %s", err, c.stderr)
	}
}

func TestManyPagesAtOnceEachGetTheirOwnBlock(t *testing.T) {
	t.Parallel()
	r := testRenderer(t, theExtension())
	var wait sync.WaitGroup
	for _, heading := range []string{"one", "two", "three", "four", "five", "six"} {
		wait.Go(func() {
			b := soldOut()
			b.Settings["heading"] = "It is " + heading
			got, err := r.render(b)
			if err != nil || !strings.Contains(got.HTML, "It is "+heading+"<") {
				t.Errorf("%s: %v", heading, err)
			}
		})
	}
	wait.Wait()
}

func TestAClosedRendererStartsNothing(t *testing.T) {
	t.Parallel()
	r := testRenderer(t, theExtension())
	r.close()
	if _, err := r.render(soldOut()); err == nil || r.child != nil {
		t.Errorf("rendered after it was closed: %v", err)
	}
}

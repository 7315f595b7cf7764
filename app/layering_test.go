// Package app holds nothing but the test that keeps its packages apart.
package app

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// rooms are the parts of the program, and which other parts the code of each may import. A package
// belongs to the room with the longest name that begins its path. A room may import itself.
var rooms = map[string][]string{
	"migrations":           {},
	"app/words":            {},
	"app/db":               {"migrations"},
	"app/db/embedded":      {"app/db"},
	"app/shop":             {"app/db"},
	"app/waitlist":         {"app/shop", "app/db", "app/words"},
	"templates":            {"app/waitlist", "app/shop", "app/words"},
	"app/shopify":          {"app/waitlist", "app/shop"},
	"app/notify":           {"app/waitlist", "app/shop", "app/words", "templates"},
	"app/jobs":             {"app/waitlist", "app/shop", "app/db"},
	"web":                  {"app/waitlist", "app/shop", "app/words", "app/db", "app/shopify", "app/notify", "templates"},
	"storefront-extension": {},
	"cmd/holdfast":         {"app/db", "app/db/embedded", "app/shop", "app/waitlist", "app/shopify", "app/notify", "app/jobs", "web"},

	// What is not the program.
	"app/db/dbtest":          {"app/db", "app/db/embedded", "migrations"},
	"app/browsertest":        {},
	"app/simkit":             {},
	"app/shopify/shopifysim": {"app/simkit", "app/shopify"},
	"app/notify/inbox":       {"app/simkit"},
	"app/notify/twiliosim":   {"app/simkit", "app/notify/inbox"},
	"app/notify/smtpsim":     {"app/simkit", "app/notify/inbox"},
	"cmd/demo":               {"app/db", "app/db/embedded", "app/shop", "app/waitlist", "app/shopify", "app/notify", "app/simkit", "app/shopify/shopifysim", "app/notify/inbox", "app/notify/twiliosim", "app/notify/smtpsim", "storefront-extension"},
	"cmd/bench":              {"cmd/demo", "app/db", "app/db/embedded", "app/shop", "app/waitlist", "app/shopify", "app/notify", "app/jobs", "web", "app/simkit", "app/shopify/shopifysim", "app/notify/twiliosim", "app/notify/smtpsim"},
	"scripts":                {"app/shopify"},
}

// libraries may be imported in one room each.
var libraries = map[string]string{
	"github.com/bold-commerce/go-shopify":        "app/shopify",
	"github.com/twilio/twilio-go":                "app/notify",
	"github.com/wneessen/go-mail":                "app/notify",
	"github.com/emersion/go-msgauth":             "app/notify",
	"github.com/vektah/gqlparser":                "app/shopify/shopifysim",
	"github.com/emersion/go-smtp":                "app/notify/smtpsim",
	"github.com/fergusstrange/embedded-postgres": "app/db/embedded",
	"github.com/pressly/goose":                   "app/db",
	"github.com/riverqueue/river/rivermigrate":   "app/db",
	"github.com/gorilla/sessions":                "web",
}

// foreign is what the domain must not know of: how it is reached, and what is on the other side of its ports.
var foreign = []string{"net/http", "net/smtp", "html/template", "github.com/a-h/templ", "github.com/bold-commerce/go-shopify", "github.com/twilio/twilio-go", "github.com/wneessen/go-mail"}

const module = "holdfast/"

type pkg struct {
	ImportPath, Dir string
	GoFiles         []string
	Imports         []string // of its code
	Deps            []string // of its code, all the way down
}

func packages(t *testing.T) []pkg {
	t.Helper()
	cmd := exec.Command("go", "list", "-e", "-deps", "-json=ImportPath,Dir,GoFiles,Imports,Deps", "./...")
	cmd.Dir = ".."
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v: %s", err, &stderr)
	}
	var ours []pkg
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(p.ImportPath, module) {
			ours = append(ours, p)
		}
	}
	if len(ours) < 3 {
		t.Fatalf("go list finds only %d packages", len(ours))
	}
	return ours
}

// roomOf returns the room of a package of ours, or "".
func roomOf(path string) string {
	path = strings.TrimPrefix(path, module)
	best := ""
	for room := range rooms {
		if within(path, room) && len(room) > len(best) {
			best = room
		}
	}
	return best
}

func within(path, parent string) bool { return path == parent || strings.HasPrefix(path, parent+"/") }

func TestThePackagesKeepApart(t *testing.T) {
	t.Parallel()
	all := packages(t)
	for name, check := range map[string]func(*testing.T, []pkg){
		"each imports only what its room may":                     eachImportsOnlyWhatItsRoomMay,
		"the simulators are unknown to the program":               theSimulatorsAreUnknownToTheProgram,
		"each library is known in one room":                       eachLibraryIsKnownInOneRoom,
		"the domain knows neither web, nor Shopify, nor messages": theDomainKnowsNeitherWebNorShopifyNorMessages,
		"the environment is read in commands alone":               theEnvironmentIsReadInCommandsAlone,
	} {
		t.Run(name, func(t *testing.T) { check(t, all) })
	}
}

func eachImportsOnlyWhatItsRoomMay(t *testing.T, all []pkg) {
	for _, p := range all {
		if p.ImportPath == module+"app" {
			continue // this test
		}
		room := roomOf(p.ImportPath)
		if room == "" {
			t.Errorf("%s belongs to no room: say in app/layering_test.go which, and what it may import", p.ImportPath)
			continue
		}
		for _, i := range p.Imports {
			if !strings.HasPrefix(i, module) {
				continue
			}
			if other := roomOf(i); other != room && !slices.Contains(rooms[room], other) {
				t.Errorf("%s imports %s, which %s may not", p.ImportPath, i, room)
			}
		}
	}
}

func theSimulatorsAreUnknownToTheProgram(t *testing.T, all []pkg) {
	not := []string{"app/simkit", "app/shopify/shopifysim", "app/notify/inbox", "app/notify/twiliosim", "app/notify/smtpsim", "app/db/dbtest", "app/browsertest"}
	for _, p := range all {
		if room := roomOf(p.ImportPath); slices.Contains(not, room) || room == "cmd/demo" || room == "cmd/bench" {
			continue
		}
		for _, d := range p.Deps {
			if slices.Contains(not, roomOf(d)) && strings.HasPrefix(d, module) {
				t.Errorf("%s depends on %s, which is for tests, the demo and the measurements", p.ImportPath, d)
			}
		}
	}
}

func eachLibraryIsKnownInOneRoom(t *testing.T, all []pkg) {
	for _, p := range all {
		room := roomOf(p.ImportPath)
		for _, i := range p.Imports {
			for library, only := range libraries {
				if within(i, library) && room != only {
					t.Errorf("%s imports %s, which only %s may", p.ImportPath, i, only)
				}
			}
		}
	}
}

func theDomainKnowsNeitherWebNorShopifyNorMessages(t *testing.T, all []pkg) {
	for _, p := range all {
		if room := roomOf(p.ImportPath); room != "app/waitlist" && room != "app/shop" {
			continue
		}
		for _, i := range p.Imports {
			for _, f := range foreign {
				if within(i, f) {
					t.Errorf("%s imports %s", p.ImportPath, i)
				}
			}
		}
		for _, d := range p.Deps { // net/http is below many a library, and says nothing there
			for _, f := range foreign[3:] {
				if within(d, f) {
					t.Errorf("%s depends on %s", p.ImportPath, d)
				}
			}
		}
	}
}

func theEnvironmentIsReadInCommandsAlone(t *testing.T, all []pkg) {
	for _, p := range all {
		if room := roomOf(p.ImportPath); strings.HasPrefix(room, "cmd/") || room == "scripts" || room == "app/db/dbtest" {
			continue
		}
		for _, name := range p.GoFiles {
			if name == "fortest.go" { // what only tests call, in a room that is not the program
				continue
			}
			files := token.NewFileSet()
			f, err := parser.ParseFile(files, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			ast.Inspect(f, func(n ast.Node) bool {
				s, ok := n.(*ast.SelectorExpr)
				if !ok {
					return true
				}
				x, ok := s.X.(*ast.Ident)
				if ok && x.Name == "os" && slices.Contains([]string{"Getenv", "LookupEnv", "Environ", "ExpandEnv"}, s.Sel.Name) {
					t.Errorf("%s: os.%s: the environment is read in cmd, and handed down as parameters", files.Position(s.Pos()), s.Sel.Name)
				}
				return true
			})
		}
	}
}

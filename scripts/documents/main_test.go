package main

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestADocumentThatWasNotSentAndOneThatIsNotOursAreFaults(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{"1.graphql": "{ shop { id } }", "2.graphql": "{ shop { name } }", "part-3": "{ sho"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		documents map[string]string
		want      []string
	}{
		"as it should be": {map[string]string{"id": "{ shop { id } }", "name": "{ shop { name } }"}, nil},
		"never sent": {map[string]string{"id": "{ shop { id } }", "name": "{ shop { name } }", "plan": "{ shop { plan } }"},
			[]string{"never sent by any test: plan"}},
		"not ours": {map[string]string{"id": "{ shop { id } }"},
			[]string{"sent, and not one of the embedded documents:\n{ shop { name } }"}},
	} {
		got, err := compare(dir, c.documents)
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, %v, want %q", name, got, err, c.want)
		}
	}
	got, err := compare(t.TempDir(), map[string]string{"id": "{ shop { id } }"})
	if err != nil || len(got) != 1 {
		t.Errorf("nothing was sent at all: %q, %v", got, err)
	}
}

package web

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"net/http"
)

//go:embed static
var staticFiles embed.FS

// assets serves the files of web/static. A page asks for a file by the hash of its content, so a
// browser may keep it for ever and a new release is seen at once.
type assets struct {
	files  http.Handler
	hashes map[string]string
}

func newAssets() (*assets, error) {
	dir, err := fs.Sub(staticFiles, "static")
	if err != nil {
		return nil, err
	}
	names, err := fs.Glob(dir, "*")
	if err != nil {
		return nil, err
	}
	a := &assets{files: http.StripPrefix("/static/", http.FileServerFS(dir)), hashes: map[string]string{}}
	for _, name := range names {
		content, err := fs.ReadFile(dir, name)
		if err != nil {
			return nil, fmt.Errorf("static file %s: %w", name, err)
		}
		sum := sha256.Sum256(content)
		a.hashes[name] = hex.EncodeToString(sum[:6])
	}
	return a, nil
}

// url is where a page finds a file. It panics for a file that is not there: a page names only our own.
func (a *assets) url(name string) string {
	hash, ok := a.hashes[name]
	if !ok {
		panic("no static file " + name)
	}
	return "/static/" + name + "?v=" + hash
}

func (a *assets) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	hash, ok := a.hashes[r.PathValue("*")]
	switch {
	case !ok:
		http.NotFound(w, r)
		return
	case r.URL.Query().Get("v") == hash:
		w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	default:
		w.Header().Set("Cache-Control", "public, max-age=300")
	}
	w.Header().Set("ETag", `"`+hash+`"`)
	a.files.ServeHTTP(w, r)
}

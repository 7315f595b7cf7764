// Package migrations holds the schema of Holdfast, and nothing else describes it: goose files, in
// order, run by db.Migrate. A file that has been released is never edited; the next one changes it.
package migrations

import "embed"

// FS holds the goose files.
//
//go:embed *.sql
var FS embed.FS

package shopify

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"holdfast/app/shop"
	"holdfast/app/waitlist"
)

const (
	maxBatch = 500     // variants that are handed over at once
	maxLine  = 1 << 20 // bytes of one variant; one of ours has about 700

	// busyExports is how long to wait when Shopify writes as many exports for us as it will at once (five
	// of a shop since 2026-01). We ask for one at a time, so they are left over from what went wrong.
	busyExports = time.Minute
	// stalled is how long a file may keep us waiting for its next bytes.
	stalled = 30 * time.Second
)

// StartCatalogue asks Shopify to write out every variant of a shop (a bulk query) and returns the id of
// that export. *waitlist.Throttled means that Shopify writes as many as it will already.
func (c *Client) StartCatalogue(ctx context.Context, shopID int64) (operation string, err error) {
	query, err := catalogue.text()
	if err != nil {
		return "", err
	}
	var data struct {
		BulkOperationRunQuery struct {
			BulkOperation *idNode `json:"bulkOperation"`
			UserErrors    []struct {
				Code string `json:"code"`
				userError
			} `json:"userErrors"`
		} `json:"bulkOperationRunQuery"`
	}
	if err := c.call(ctx, shopID, startBulkQuery, map[string]any{"query": query}, &data); err != nil {
		return "", err
	}
	started := data.BulkOperationRunQuery
	if started.BulkOperation != nil && started.BulkOperation.ID != "" {
		return started.BulkOperation.ID, nil
	}
	var errs []userError
	for _, e := range started.UserErrors {
		if e.Code == "OPERATION_IN_PROGRESS" || e.Code == "LIMIT_REACHED" {
			return "", fmt.Errorf("shopify: export the catalogue of shop %d: %s: %w", shopID, e.Message, &waitlist.Throttled{After: busyExports})
		}
		errs = append(errs, e.userError)
	}
	err = rejected(errs)
	if err == nil {
		err = errors.New("the answer names neither an operation nor a reason")
	}
	return "", fmt.Errorf("shopify: export the catalogue of shop %d: %w", shopID, err)
}

// Catalogue reads how far an export is. One that Shopify does not know any more has failed.
func (c *Client) Catalogue(ctx context.Context, shopID int64, operation string) (waitlist.CatalogueExport, error) {
	e := waitlist.CatalogueExport{Operation: operation}
	var data struct {
		BulkOperation *struct {
			Status      string      `json:"status"`
			ErrorCode   string      `json:"errorCode"`
			ObjectCount json.Number `json:"objectCount"` // UnsignedInt64, which JSON has as a string
			URL         string      `json:"url"`
		} `json:"bulkOperation"`
	}
	if err := c.call(ctx, shopID, readBulkQuery, map[string]any{"id": operation}, &data); err != nil {
		return e, err
	}
	op := data.BulkOperation
	if op == nil {
		e.State, e.Why = waitlist.ExportFailed, "Shopify does not know this export any more"
		return e, nil
	}
	count, err := op.ObjectCount.Int64()
	if err != nil {
		return e, fmt.Errorf("shopify: read export %s of shop %d: %q is no number of objects", operation, shopID, op.ObjectCount)
	}
	e.Objects = int(count)
	switch op.Status {
	case "CREATED", "RUNNING":
		e.State = waitlist.ExportRunning
	case "COMPLETED":
		e.State, e.URL = waitlist.ExportFinished, op.URL
	default: // FAILED, CANCELING, CANCELED, EXPIRED, or a word of a later version
		e.State, e.Why = waitlist.ExportFailed, op.Status
		if op.ErrorCode != "" {
			e.Why += ": " + op.ErrorCode
		}
	}
	return e, nil
}

// ReadCatalogue reads the file of a finished export line by line and hands its variants to each, at most
// 500 at a time; the slice is good until each returns, and an error of each ends the reading and is
// returned. Memory does not grow with the file. Only when the error is nil has each seen every variant: a
// file that ends early is an error, also between two lines.
//
// What a reading lacks: SharedItem is always false, since one line does not tell; ImageURL is the
// product's picture, not the variant's own; and Sellable was true while the file was written, for all
// online sales: it must not be taken for S.
func (c *Client) ReadCatalogue(ctx context.Context, shopID int64, e waitlist.CatalogueExport, each func([]waitlist.VariantReading) error) error {
	if e.State != waitlist.ExportFinished {
		return fmt.Errorf("shopify: export %s of shop %d is not finished", e.Operation, shopID)
	}
	read, err := 0, error(nil)
	if e.URL != "" {
		read, err = c.readFile(ctx, shopID, e.URL, each)
	}
	if err == nil && read < e.Objects {
		err = fmt.Errorf("the file ends after %d of %d variants", read, e.Objects)
	}
	if err != nil {
		return fmt.Errorf("shopify: read export %s of shop %d: %w", e.Operation, shopID, err)
	}
	return nil
}

// readFile returns how many variants were read.
func (c *Client) readFile(ctx context.Context, shopID int64, address string, each func([]waitlist.VariantReading) error) (int, error) {
	sh, err := c.shops.ByID(ctx, shopID)
	if errors.Is(err, shop.ErrNotFound) {
		return 0, notInstalled()
	}
	if err != nil {
		return 0, err
	}
	u, err := c.fileURL(sh.Domain, address)
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watch := time.AfterFunc(stalled, func() { cancel(fmt.Errorf("the file has stopped for %v", stalled)) })
	defer watch.Stop()
	// Whoever has the address may read it: no token is sent.
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u, nil)
	if err != nil {
		return 0, err
	}
	resp, err := c.transport.RoundTrip(req) // which follows no redirect
	if err != nil {
		return 0, because(ctx, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("the file is answered with HTTP status %d", resp.StatusCode)
	}

	lines := bufio.NewScanner(progress{resp.Body, watch})
	lines.Buffer(make([]byte, 0, 64<<10), maxLine)
	batch, read := make([]waitlist.VariantReading, 0, maxBatch), 0
	hand := func() error {
		if len(batch) == 0 {
			return nil
		}
		watch.Stop() // each may take its time
		err := each(batch)
		watch.Reset(stalled)
		read, batch = read+len(batch), batch[:0]
		return err
	}
	for lines.Scan() {
		line := bytes.TrimSpace(lines.Bytes())
		if len(line) == 0 {
			continue
		}
		var n variantNode
		if err := json.Unmarshal(line, &n); err != nil {
			return read, fmt.Errorf("line %d: %w", read+len(batch)+1, err)
		}
		r, err := c.reading(&n)
		if err != nil {
			return read, fmt.Errorf("line %d: %w", read+len(batch)+1, err)
		}
		if batch = append(batch, r); len(batch) == maxBatch {
			if err := hand(); err != nil {
				return read, err
			}
		}
	}
	if err := lines.Err(); err != nil {
		return read, because(ctx, err)
	}
	return read, hand()
}

// because puts the cause of a context's end in the place of what it led to.
func because(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

// progress is a body that is watched: each read that brings something winds the watch up again.
type progress struct {
	io.Reader
	watch *time.Timer
}

func (p progress) Read(b []byte) (int, error) {
	n, err := p.Reader.Read(b)
	if n > 0 {
		p.watch.Reset(stalled)
	}
	return n, err
}

// fileURL checks the address of an export's file, which is Shopify's word, and yet no reason to ask any
// machine for anything. Shopify keeps these files in its buckets of Google's Cloud Storage (shopify.dev,
// bulk operations); the shop itself and Shopify's own hosts would do, too. With a simulator it is one
// of its paths.
func (c *Client) fileURL(domain, address string) (string, error) {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.User != nil {
		return "", errors.New("the file's address is no URL that can be used")
	}
	if c.sim != nil {
		if u.Scheme != c.sim.Scheme || u.Host != c.sim.Host {
			return "", fmt.Errorf("the file is at %s, which is not the simulated Shopify", u.Host)
		}
		return u.String(), nil
	}
	ours := u.Host == domain || strings.HasSuffix(u.Host, ".shopify.com") ||
		(u.Host == "storage.googleapis.com" && strings.HasPrefix(u.Path, "/shopify"))
	if u.Scheme != "https" || !ours {
		return "", fmt.Errorf("refused to read the file from %s://%s: it is none of the places where Shopify keeps such files", u.Scheme, u.Host)
	}
	return u.String(), nil
}

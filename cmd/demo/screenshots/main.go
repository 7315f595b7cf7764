// Command screenshots plays a short story on a stage of its own and photographs what people see in it: each
// page of the list below in Chromium, on a phone (390 px wide) and on a desk (1,280 px).
//
//	make screenshots                 # all of them, into docs/screenshots
//	make screenshots ARGS='reserve'  # those whose names contain a word
//
// A page that shows an error, is too large a file, or does not get ready fails it. Pictures of pages with a
// clock differ from run to run.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"image/png"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/chromedp/chromedp"

	"holdfast/cmd/demo/stage"
)

// view is a page to be photographed.
type view struct {
	name    string // of the file
	address string
	act     string // JavaScript that brings the page into the state to be shown; may be empty
	ready   string // JavaScript: true once the page is as it is to be shown
}

// widths are those that the pages are designed at, with the height of their window.
var widths = [][2]int64{{390, 844}, {1280, 800}}

// largest is how large a picture may be: they are read on the project's page, and each version of one is kept.
const largest = 150_000

const pageTime = 30 * time.Second

func main() {
	out := flag.String("o", filepath.Join("docs", "screenshots"), "folder to write to")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *out, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "screenshots:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out string, words []string) (err error) {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	bin := filepath.Dir(self)
	var appLog bytes.Buffer
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	s, err := stage.Start(ctx, stage.Options{
		Binary: filepath.Join(bin, "holdfast"), Apps: 1, CacheDir: filepath.Join(cache, "holdfast"), Source: filepath.Dir(bin),
		AppLog: &appLog, Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	if err != nil {
		return errors.Join(err, errors.New(tail(appLog.String())))
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	views, err := story(ctx, s.Client())
	if err != nil {
		return fmt.Errorf("the story: %w", err)
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	browser, stop, err := openBrowser(ctx)
	if err != nil {
		return err
	}
	defer stop()
	taken := 0
	for _, v := range views {
		if len(words) > 0 && !slices.ContainsFunc(words, func(w string) bool { return strings.Contains(v.name, w) }) {
			continue
		}
		for _, size := range widths {
			file := filepath.Join(out, v.name+"-"+strconv.FormatInt(size[0], 10)+".png")
			picture, err := photograph(browser, v, size)
			if err != nil {
				return fmt.Errorf("%s: %w", file, err)
			}
			if len(picture) > largest {
				return fmt.Errorf("%s: %d bytes, more than the %d that are allowed", file, len(picture), largest)
			}
			if err := os.WriteFile(file, picture, 0o644); err != nil {
				return err
			}
			fmt.Printf("%-44s %4d kB\n", file, (len(picture)+999)/1000)
			taken++
		}
	}
	if taken == 0 {
		return fmt.Errorf("no page's name contains %q", words)
	}
	return nil
}

// tail is the end of a log.
func tail(s string) string { return s[max(0, len(s)-2000):] }

func openBrowser(ctx context.Context) (context.Context, func(), error) {
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.DisableGPU, chromedp.Flag("hide-scrollbars", true))
	if os.Geteuid() == 0 {
		options = append(options, chromedp.NoSandbox) // Chromium refuses to run as root with it
	}
	allocator, stop := chromedp.NewExecAllocator(ctx, options...)
	browser, stopTab := chromedp.NewContext(allocator)
	if err := chromedp.Do(browser); err != nil {
		stop()
		return nil, nil, fmt.Errorf("no browser: apt-get install -y chromium (Debian), brew install --cask chromium (macOS): %w", err)
	}
	return browser, func() { stopTab(); stop() }, nil
}

// photograph opens a page in a tab of its own.
func photograph(browser context.Context, v view, size [2]int64) ([]byte, error) {
	ctx, stop := chromedp.NewContext(browser)
	defer stop()
	if err := chromedp.Do(ctx, chromedp.EmulateViewport(size[0], size[1])); err != nil {
		return nil, err
	}
	ctx, stopClock := context.WithTimeout(ctx, pageTime)
	defer stopClock()
	if err := chromedp.Do(ctx, chromedp.Navigate(v.address)); err != nil {
		return nil, err
	}
	if v.act != "" {
		if _, err := chromedp.Run(ctx, chromedp.Evaluate[any]("(async () => {"+v.act+"})()", chromedp.EvalAwaitPromise)); err != nil {
			return nil, fmt.Errorf("to get there: %w", err)
		}
	}
	if _, err := chromedp.Run(ctx, chromedp.Poll[bool](v.ready, chromedp.WithPollingTimeout(pageTime))); err != nil {
		text, _ := chromedp.Run(ctx, chromedp.Evaluate[string]("document.body.innerText")) // only to say more
		return nil, fmt.Errorf("never true: %s: %w; the page: %s", v.ready, err, text)
	}
	shot, err := chromedp.Run(ctx, chromedp.FullScreenshot(100))
	if err != nil {
		return nil, err
	}
	return smaller(shot)
}

// smaller is a PNG with as few bytes as its pixels need.
func smaller(picture []byte) ([]byte, error) {
	pixels, err := png.Decode(bytes.NewReader(picture))
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	encoder := png.Encoder{CompressionLevel: png.BestCompression}
	if err := encoder.Encode(&out, pixels); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

package storefront

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// renderTime is how long one block may take. Node answers in milliseconds; after this it hangs, and is
// replaced.
const renderTime = 20 * time.Second

// renderer renders app blocks in a child process that runs node/render.js. The child is started when it
// is first needed and again when it has died. It ends when its stdin does, so it never outlives this
// process, however this process ends. A renderer is safe for use by many goroutines; it renders one
// block at a time, as Node would.
type renderer struct {
	node      string // the program
	dir       string // the folder of render.js and node_modules
	extension string // the folder of the theme app extension

	mu     sync.Mutex
	child  *child // nil when none runs
	closed bool
}

type child struct {
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stdout *bufio.Reader
	stderr *tail
}

// block is what the storefront knows when it renders an app block.
type block struct {
	Extension string         `json:"extension"`
	Block     string         `json:"block"`    // the file's name under blocks, without its ending
	Settings  map[string]any `json:"settings"` // what the merchant has set; the schema's defaults for the rest
	Globals   map[string]any `json:"globals"`  // Liquid's global objects
}

// rendered is a block's markup and the asset files that its schema asks the page to load.
type rendered struct {
	HTML       string `json:"html"`
	JavaScript string `json:"javascript"`
	Stylesheet string `json:"stylesheet"`
	Error      string `json:"error"`
}

// newRenderer checks that everything is there; it starts nothing yet.
func newRenderer(dir, extension string) (*renderer, error) {
	node, err := exec.LookPath("node")
	if err != nil {
		return nil, errors.New("the storefront needs Node 20 or newer to render the theme block: apt-get install -y nodejs npm (Debian), brew install node (macOS)")
	}
	for _, path := range []*string{&dir, &extension} {
		if *path, err = filepath.Abs(*path); err != nil {
			return nil, fmt.Errorf("storefront: %w", err)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "node_modules", "liquidjs", "package.json")); err != nil {
		return nil, fmt.Errorf("the storefront's npm packages are not installed: npm ci --prefix %s", dir)
	}
	if _, err := os.Stat(filepath.Join(extension, "blocks")); err != nil {
		return nil, fmt.Errorf("no theme app extension in %s: %w", extension, err)
	}
	return &renderer{node: node, dir: dir, extension: extension}, nil
}

// render renders a block of the extension. A child that turns out to be dead is replaced once.
func (r *renderer) render(b block) (rendered, error) {
	b.Extension = r.extension
	line, err := json.Marshal(b)
	if err != nil {
		return rendered{}, fmt.Errorf("render block %s: %w", b.Block, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for attempt := 1; ; attempt++ {
		if r.closed {
			return rendered{}, fmt.Errorf("render block %s: the storefront is closed", b.Block)
		}
		if r.child == nil {
			if r.child, err = r.start(); err != nil {
				return rendered{}, fmt.Errorf("render block %s: %w", b.Block, err)
			}
		}
		answer, err := r.child.ask(append(line, '\n'))
		if err == nil {
			if answer.Error != "" {
				return rendered{}, fmt.Errorf("render block %s: %s", b.Block, answer.Error)
			}
			return answer, nil
		}
		err = errors.Join(err, r.child.end())
		r.child = nil
		if attempt == 2 {
			return rendered{}, fmt.Errorf("render block %s: %w", b.Block, err)
		}
	}
}

func (r *renderer) start() (*child, error) {
	c := &child{cmd: exec.Command(r.node, "render.js"), stderr: new(tail)}
	c.cmd.Dir = r.dir
	c.cmd.Stderr = c.stderr
	// A child may leave stderr open to a process of its own; do not wait for that.
	c.cmd.WaitDelay = time.Second
	var err error
	if c.stdin, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	stdout, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	c.stdout = bufio.NewReader(stdout)
	if err := c.cmd.Start(); err != nil {
		return nil, err
	}
	return c, nil
}

func (c *child) ask(line []byte) (rendered, error) {
	hung := time.AfterFunc(renderTime, func() { c.cmd.Process.Kill() })
	defer hung.Stop()
	if _, err := c.stdin.Write(line); err != nil {
		return rendered{}, fmt.Errorf("node does not listen: %w", err)
	}
	answer, err := c.stdout.ReadBytes('\n')
	if err != nil {
		return rendered{}, fmt.Errorf("node did not answer: %w", err)
	}
	var out rendered
	if err := json.Unmarshal(answer, &out); err != nil {
		return rendered{}, fmt.Errorf("node answered %q: %w", answer, err)
	}
	return out, nil
}

// end stops the child and returns what it had to say about its end, if anything.
func (c *child) end() error {
	c.stdin.Close()
	c.cmd.Process.Kill()
	c.cmd.Wait() // it was killed: its status says nothing
	if said := c.stderr.String(); said != "" {
		return fmt.Errorf("node said: %s", said)
	}
	return nil
}

func (r *renderer) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	if r.child != nil {
		r.child.end() // what it said no longer matters
		r.child = nil
	}
}

// tail keeps the end of what is written to it.
type tail struct {
	mu   sync.Mutex
	kept []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kept = append(t.kept, p...)
	if over := len(t.kept) - 4096; over > 0 {
		t.kept = t.kept[over:]
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(string(t.kept))
}

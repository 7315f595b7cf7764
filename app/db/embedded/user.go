package embedded

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	osuser "os/user"
	"path/filepath"
	"strconv"
	"syscall"
)

// user is whom the server runs as.
type user struct {
	name     string
	uid, gid int
	other    bool // than this process's own
}

// unprivileged is this process's user, or another when that is root, as which PostgreSQL refuses to run.
func unprivileged() (user, error) {
	if os.Geteuid() != 0 {
		return user{name: "this user", uid: os.Geteuid(), gid: os.Getegid()}, nil
	}
	for _, name := range []string{"postgres", "_postgres", "nobody"} {
		u, err := osuser.Lookup(name)
		if err != nil {
			continue
		}
		uid, err1 := strconv.Atoi(u.Uid)
		gid, err2 := strconv.Atoi(u.Gid)
		if err := errors.Join(err1, err2); err != nil {
			return user{}, err
		}
		return user{name: "user " + name, uid: uid, gid: gid, other: true}, nil
	}
	return user{}, errors.New("PostgreSQL does not run as root, and there is neither a user postgres nor nobody")
}

func (u user) credential() *syscall.Credential {
	if !u.other {
		return nil
	}
	return &syscall.Credential{Uid: uint32(u.uid), Gid: uint32(u.gid)}
}

// own makes dir, if need be, and sees to it that it belongs to the user and can be reached.
func (u user) own(dir string) error {
	if err := makeAll(filepath.Dir(dir)); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	if err := u.mayEnter(filepath.Dir(dir)); err != nil {
		return fmt.Errorf("%w: choose another data folder", err)
	}
	if u.other {
		if err := os.Chown(dir, u.uid, u.gid); err != nil {
			return err
		}
	}
	return os.Chmod(dir, 0o700)
}

// makeAll is os.MkdirAll, but what it makes can be entered by everybody, whatever the umask.
func makeAll(dir string) error {
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	if err := makeAll(filepath.Dir(dir)); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		if errors.Is(err, os.ErrExist) { // another process was quicker
			return nil
		}
		return err
	}
	return os.Chmod(dir, 0o755)
}

func (u user) mayRun(bin string) error {
	if err := u.mayEnter(bin); err != nil {
		return fmt.Errorf("%w: the server's programs must be readable for it", err)
	}
	return nil
}

// mayEnter checks that the user can reach what is in dir: that it may search dir and every folder above.
func (u user) mayEnter(dir string) error {
	if !u.other {
		return nil
	}
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return err
	}
	for ; ; dir = filepath.Dir(dir) {
		i, err := os.Stat(dir)
		if err != nil {
			return err
		}
		if owner, group := ownerOf(i); !mayUse(i.Mode(), 0o1, owner == u.uid, group == u.gid) {
			return fmt.Errorf("%s, as whom the server must run, cannot enter %s", u.name, dir)
		}
		if dir == filepath.Dir(dir) {
			return nil
		}
	}
}

// mayUse looks at the one triple of permission bits that counts.
func mayUse(mode os.FileMode, bit os.FileMode, owner, group bool) bool {
	switch {
	case owner:
		return mode&(bit<<6) != 0
	case group:
		return mode&(bit<<3) != 0
	}
	return mode&bit != 0
}

func ownerOf(i os.FileInfo) (uid, gid int) {
	s := i.Sys().(*syscall.Stat_t) // what os.Stat returns on every Unix
	return int(s.Uid), int(s.Gid)
}

// socketDir is the folder of the server's socket: dir itself when its path is short enough for the
// kernel, else a folder with a short name, the same for every process, that only the user may enter.
func (u user) socketDir(dir string) (string, error) {
	const socket = "/.s.PGSQL.5432"
	if len(dir)+len(socket) <= socketPathMax {
		return dir, nil
	}
	sum := sha256.Sum256([]byte(dir))
	short := filepath.Join(os.TempDir(), "holdfast-"+hex.EncodeToString(sum[:6]))
	if len(short)+len(socket) > socketPathMax {
		short = filepath.Join("/tmp", filepath.Base(short))
	}
	if err := os.Mkdir(short, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return "", err
	}
	// Where everybody may make folders, somebody else may have made this one, to be connected to.
	i, err := os.Lstat(short)
	if err != nil {
		return "", err
	}
	owner, _ := ownerOf(i)
	if u.other && owner == os.Geteuid() && i.IsDir() { // made just now, here or by another process of ours
		if err := os.Chown(short, u.uid, u.gid); err != nil {
			return "", err
		}
		owner = u.uid
	}
	if !i.IsDir() || owner != u.uid || i.Mode().Perm() != 0o700 {
		return "", fmt.Errorf("%s must be a folder of %s that nobody else may enter: remove it, or choose a data folder with a shorter name", short, u.name)
	}
	return short, nil
}

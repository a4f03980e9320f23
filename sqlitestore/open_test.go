package sqlitestore_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/holdfast-lock/holdfast/internal/testing/suites"
	"github.com/holdfast-lock/holdfast/sqlitestore"
	"github.com/holdfast-lock/holdfast/store"
)

func TestURLsThatNameNoFileAreInvalid(t *testing.T) {
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o600))
	for url, says := range map[string]string{
		"sqlite:":                               "/var/lib/myapp/locks.db",
		"sqlite::memory:":                       "use the memory store",
		"sqlite:" + dir:                         "not a regular file",
		"sqlite:" + dir + "/none/locks.db":      "create it first",
		"sqlite:" + dir + "/file/locks.db":      "directory",
		"sqlite:" + dir + "/locks.db?mode=ro":   "it takes none",
		"sqlite:" + dir + "/locks.db?_pragma=x": "it takes none",
		"sqlite://host/locks.db":                "sqlite:/absolute/path",
		"sqlite://u:secret@/locks.db":           "sqlite:/absolute/path",
		"sqlite:redis://u:secret@host":          "sqlite:/absolute/path",
		"sqlite:a%00b":                          "null byte",
	} {
		s, err := store.Open(t.Context(), url)
		if err == nil {
			s.Close()
		}
		if !errors.Is(err, store.ErrInvalid) && !errors.Is(err, fs.ErrInvalid) || !strings.Contains(fmt.Sprint(err), says) {
			t.Errorf("%s: %v, want an ErrInvalid that says %q", url, err, says)
		}
		if strings.Contains(fmt.Sprint(err), "secret") {
			t.Errorf("%s: the error shows the password: %v", url, err)
		}
	}
}

// No character of a path has a special meaning.
func TestPathsAreTakenLiterally(t *testing.T) {
	t.Chdir(t.TempDir())
	must(t, os.Mkdir("sub", 0o700))
	names := []string{"a.db", "sub/b.db", "with space", "é日本", "per%20cent", "hash#1", "quote'\"", "file:x", "a&b=c"}
	if runtime.GOOS != "windows" {
		names = append(names, "question?mark", `back\slash`, "colon:", "a?mode=memory")
	}
	for _, name := range names {
		t.Log(name)
		take(t, open(t, name), "order")
		info, err := os.Stat(name)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if mode := info.Mode().Perm(); runtime.GOOS != "windows" && mode != 0o600 {
			t.Errorf("%s: mode %v, want 0600", name, mode)
		}
		refused(t, open(t, name), request("order")) // it has the same locks
	}
}

func TestARelativePathOutlivesAChangeOfDirectory(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	s, err := store.Open(t.Context(), "sqlite:locks.db")
	must(t, err)
	defer s.Close()
	t.Chdir(t.TempDir())
	if _, err := s.Acquire(t.Context(), request("order")); err != nil {
		t.Error(err)
	}
	if _, err := s.List(t.Context(), store.Query{}); err != nil { // opens its own connection
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "locks.db")); err != nil {
		t.Error(err)
	}
}

func TestASymlinkOpensTheFileThatItPointsTo(t *testing.T) {
	dir := t.TempDir()
	path, link := filepath.Join(dir, "locks.db"), filepath.Join(dir, "link.db")
	must(t, os.Symlink(path, link))
	must(t, os.WriteFile(path, nil, 0o600))
	a, b := open(t, path), open(t, link)
	take(t, a, "order")
	refused(t, b, request("order")) // they have the same locks
}

// SQLite derives the names of the -wal and -shm files from the path.
func TestAFileWithSeveralHardLinksIsRefused(t *testing.T) {
	if runtime.GOOS == "windows" {
		return // hard links are not checked on this system
	}
	dir := t.TempDir()
	path, link := filepath.Join(dir, "locks.db"), filepath.Join(dir, "link.db")
	open(t, path).Close()
	must(t, os.Link(path, link))
	for _, p := range []string{path, link} {
		if _, err := sqlitestore.Open(t.Context(), p); !errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), "hard links") {
			t.Errorf("error %v, want an ErrInvalid", err)
		}
	}
}

func TestANewerFileIsRefused(t *testing.T) {
	path := newPath(t)
	open(t, path).Close()
	must(t, sqlitestore.Script(path, "PRAGMA user_version = 7"))
	_, err := sqlitestore.Open(t.Context(), path)
	if !errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), "update this program") || !strings.Contains(err.Error(), "7") {
		t.Errorf("error %v, want an ErrInvalid that says to update", err)
	}
}

func TestADatabaseOfAnotherProgramIsRefusedAndNotChanged(t *testing.T) {
	for name, make := range map[string]string{
		"tables":  "CREATE TABLE mine (a); INSERT INTO mine VALUES (1)",
		"mark":    "PRAGMA application_id = 12345",
		"version": "PRAGMA user_version = 1",
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "app.db")
			must(t, os.WriteFile(path, nil, 0o600))
			must(t, sqlitestore.Script(path, make))
			before, err := os.ReadFile(path)
			must(t, err)
			_, err = sqlitestore.Open(t.Context(), path)
			if !errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), "another program") {
				t.Errorf("error %v, want an ErrInvalid", err)
			}
			if after, err := os.ReadFile(path); err != nil || string(after) != string(before) {
				t.Errorf("the file has changed (%v)", err)
			}
		})
	}
}

func TestAFileThatIsNotADatabaseIsRefusedAndNotChanged(t *testing.T) {
	for name, text := range map[string]string{
		"short":   "root:x:0:0:root:/root:/bin/bash\n",
		"long":    strings.Repeat("root:x:0:0:root:/root:/bin/bash\n", 1000),
		"damaged": "SQLite format 3\x00" + strings.Repeat("noise", 1000),
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "passwd")
			must(t, os.WriteFile(path, []byte(text), 0o600))
			_, err := sqlitestore.Open(t.Context(), path)
			if !errors.Is(err, store.ErrInvalid) || strings.Contains(err.Error(), "remove") {
				t.Errorf("error %v, want an ErrInvalid that does not suggest to remove the file", err)
			}
			if after, err := os.ReadFile(path); err != nil || string(after) != text {
				t.Errorf("the file has changed (%v)", err)
			}
			if files, err := os.ReadDir(dir); err != nil || len(files) != 1 {
				t.Errorf("files beside it: %v (%v)", files, err)
			}
		})
	}
}

func TestACancelledContextOpensNothing(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	path := newPath(t)
	if _, err := sqlitestore.Open(ctx, path); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want context.Canceled", err)
	}
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file was created (%v)", err)
	}
}

// The last handle to be closed locks the file to remove the files beside it. The first handle to
// be opened locks it to create or recover them.
func TestHandlesThatAreOpenedAndClosedAtOnceDoNotDisturbEachOther(t *testing.T) {
	for range 3 {
		path := newPath(t)
		var wg sync.WaitGroup
		for g := range 8 {
			wg.Go(func() {
				for i := range 40 {
					s, err := sqlitestore.Open(t.Context(), path)
					if err != nil {
						t.Errorf("open %d: %v", i, err)
						return
					}
					req := request(fmt.Sprint(g))
					if a, err := s.Acquire(t.Context(), req); err != nil || !a.Granted() {
						t.Errorf("acquire %d: granted %v, %v", i, err == nil && a.Granted(), err)
					}
					if _, err := s.List(t.Context(), store.Query{Name: req.Name}); err != nil {
						t.Errorf("list %d: %v", i, err)
					}
					if err := s.Release(t.Context(), req.Name, req.ID, store.Keep{}); err != nil {
						t.Errorf("release %d: %v", i, err)
					}
					if err := s.Close(); err != nil {
						t.Errorf("close %d: %v", i, err)
					}
				}
			})
		}
		wg.Wait()
	}
}

func TestManyProcessesOpenANewFileAtOnce(t *testing.T) {
	path := newPath(t)
	var children []*child
	for i := range 10 {
		children = append(children, start(t, "open", path, "order:"+strconv.Itoa(i)))
	}
	tokens := map[string]bool{}
	for _, c := range children {
		tokens[c.hears("token")] = true
	}
	if len(tokens) != 10 {
		t.Errorf("%d different tokens of 10 grants", len(tokens))
	}
}

// A newer version changes the tables while an older program has the file open.
func TestAProgramThatHasTheFileOpenRefusesTheTablesOfANewerVersion(t *testing.T) {
	path, s := newFile(t)
	held := take(t, s, "held")
	_, err := s.List(t.Context(), store.Query{}) // both connections know the old tables
	must(t, err)
	must(t, sqlitestore.Script(path, "BEGIN; ALTER TABLE names RENAME TO names2; PRAGMA user_version = 2; COMMIT"))
	for what, call := range suites.Calls(s, held) {
		if err := call(t.Context()); !errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), "update this program") {
			t.Errorf("%s: %v, want an ErrInvalid that says to update", what, err)
		}
	}
}

package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/cmd/holdfast/internal/cli"
	_ "github.com/holdfast-lock/holdfast/etcdstore"  // etcd: URLs
	_ "github.com/holdfast-lock/holdfast/memstore"   // memory: URLs, to say why they are of no use here
	_ "github.com/holdfast-lock/holdfast/redisstore" // redis: URLs
	_ "github.com/holdfast-lock/holdfast/sqlstore"   // sqlite: URLs
	"github.com/holdfast-lock/holdfast/store"
	_ "github.com/holdfast-lock/holdfast/zkstore" // zk: URLs
)

const (
	// openTimeout bounds how long a server may take to say hello.
	openTimeout = 10 * time.Second

	defaultStorePlace = "~/.local/state/holdfast/locks.db, or under XDG_STATE_HOME; ~/Library/Application Support on macOS, %LocalAppData% on Windows"
)

// storeURLs are the stores to choose from. The schemes that the URLs begin with are those
// that the imported packages register.
var storeURLs = cli.Section{Title: "Stores", Terms: []cli.Term{
	{Word: "sqlite:PATH", Text: "a file, between processes of one host"},
	{Word: "redis://[USER:PASSWORD@]HOST[:PORT][/DB]", Text: "one Redis server; rediss:// with TLS"},
	{Word: "redis+sentinel://HOST,HOST,…/NAME[/DB]", Text: "Redis with Sentinel; rediss+sentinel:// with TLS"},
	{Word: "redis+cluster://HOST,HOST,…", Text: "Redis Cluster; rediss+cluster:// with TLS"},
	{Word: "quorum+redis://HOST,HOST,HOST…", Text: "a majority of independent Redis servers; quorum+rediss:// with TLS"},
	{Word: "etcd://[USER:PASSWORD@]HOST,HOST,…[/PREFIX]", Text: "etcd; etcds:// with TLS"},
	{Word: "zk://[USER:PASSWORD@]HOST,HOST,…[/ROOT]", Text: "ZooKeeper; zks:// with TLS"},
}}

// A storeFlag is the choice of a store.
type storeFlag struct {
	url  string
	from string        // where it was named
	ttl  time.Duration // of the lock that is wanted; 0 if it is not known
}

func (s *storeFlag) flag() *cli.Flag {
	return cli.Func("store", 0, "URL", func(url string) error {
		if url == "" { // a variable that was not set: the default would be another store than the others use
			return errors.New("want the URL of a store; leave the flag out for the default")
		}
		s.url = url
		return nil
	}, "where the locks are, such as sqlite:PATH; default: HOLDFAST_STORE, or an SQLite file in your state directory")
}

// check finds mistakes in the URL before anything is touched.
func (s *storeFlag) check() error {
	s.from = "--store"
	if s.url == "" {
		s.url, s.from = os.Getenv("HOLDFAST_STORE"), "HOLDFAST_STORE"
	}
	if s.url == "" {
		return nil
	}
	if !strings.Contains(s.url, ":") { // as the path of a file
		return fmt.Errorf("%s: want the URL of a store, such as sqlite:/var/lib/locks.db for a file", s.from)
	}
	u, err := store.ParseURL(s.url)
	if err != nil {
		return fmt.Errorf("%s: %w", s.from, err)
	}
	if known := store.Schemes(); !slices.Contains(known, u.Scheme) {
		known = slices.DeleteFunc(known, func(scheme string) bool { return scheme == "memory" }) // of no use here
		return fmt.Errorf("%s %s: there is no store of the kind %q; known are: %s; see holdfast help for their URLs",
			s.from, u, u.Scheme, strings.Join(known, ", "))
	}
	return nil
}

// open opens the store. Check comes first.
func (s *storeFlag) open(ctx context.Context) (*ttlStore, error) {
	if s.url == "" {
		path, err := defaultStore()
		if err != nil {
			return nil, err
		}
		s.url = "sqlite:" + (&url.URL{Path: path}).EscapedPath()
	}
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	st, err := store.Open(ctx, withSession(s.url, s.ttl))
	if cause := context.Cause(ctx); err != nil && cause != nil && !errors.Is(err, cause) {
		err = fmt.Errorf("%w: %w", err, cause)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot open the store: %w", err)
	}
	if caps := st.Capabilities(); !caps.Features.Has(store.FeatureProcesses) {
		st.Close()
		return nil, fmt.Errorf("%w: the %s store keeps locks within one process, and this is one for itself; name another with --store or HOLDFAST_STORE", holdfast.ErrUnsupported, caps.Store)
	}
	return &ttlStore{Store: st}, nil
}

// A ttlStore notes the TTL of the last grant or renewal. A process has one lock at a time.
type ttlStore struct {
	store.Store
	granted atomic.Int64 // a time.Duration
}

func (s *ttlStore) Acquire(ctx context.Context, req store.Request) (store.Answer, error) {
	answer, err := s.Store.Acquire(ctx, req)
	if err == nil && answer.Granted() {
		s.granted.Store(int64(answer.TTL))
	}
	return answer, err
}

func (s *ttlStore) Renew(ctx context.Context, grants []store.Renewal) ([]store.Renewed, error) {
	outcomes, err := s.Store.Renew(ctx, grants)
	for _, out := range outcomes {
		if err == nil && out.Status == store.Extended {
			s.granted.Store(int64(out.TTL))
		}
	}
	return outcomes, err
}

func (s *ttlStore) ttl() time.Duration { return time.Duration(s.granted.Load()) }

// withSession adds to the URL of a ZooKeeper the timeout of a session that a lock with this
// TTL fits into, unless the URL has one. The server may grant less.
func withSession(url string, ttl time.Duration) string {
	const (
		least = 10 * time.Second // five ticks of a server with default settings
		most  = time.Hour
		param = "session"
	)
	u, err := store.ParseURL(url)
	if err != nil || u.Scheme != "zk" && u.Scheme != "zks" || ttl == 0 || u.Query.Has(param) {
		return url
	}
	before := "?"
	if strings.Contains(url, "?") {
		before = "&"
	}
	// A TTL is at most four fifths of the session.
	session := min(max(ttl*5/4+time.Second, least), most)
	return url + before + param + "=" + session.String()
}

// connect opens the store for a client that closes it.
func (s *storeFlag) connect(ctx context.Context) (*holdfast.Client, func(), error) {
	st, err := s.open(ctx)
	if err != nil {
		return nil, nil, err
	}
	c, err := holdfast.New(st)
	if err != nil {
		st.Close()
		return nil, nil, err
	}
	return c, func() {
		c.Close()
		st.Close()
	}, nil
}

// defaultStore returns the file of a user who named no store, and makes its directory.
func defaultStore() (string, error) {
	const instead = "name a store with --store or HOLDFAST_STORE, such as sqlite:/var/lib/locks.db"
	dir, err := stateDir()
	if err != nil {
		return "", fmt.Errorf("%w: no directory for the default store: %v; %s", holdfast.ErrInvalid, err, instead)
	}
	dir = filepath.Join(dir, "holdfast")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("cannot make the directory of the default store: %w; %s", err, instead)
	}
	return filepath.Join(dir, "locks.db"), nil
}

func stateDir() (string, error) {
	switch runtime.GOOS {
	case "windows":
		if dir := os.Getenv("LocalAppData"); dir != "" {
			return dir, nil
		}
		return "", errors.New("%LocalAppData% is not set")
	case "darwin", "ios":
		return os.UserConfigDir()
	}
	// The specification has relative paths ignored.
	if dir := os.Getenv("XDG_STATE_HOME"); strings.HasPrefix(dir, "/") {
		return dir, nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(home, ".local", "state"), nil
}

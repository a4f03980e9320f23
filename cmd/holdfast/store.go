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

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/holdfast-lock/holdfast"
	_ "github.com/holdfast-lock/holdfast/etcdstore"   // etcd: URLs
	_ "github.com/holdfast-lock/holdfast/memstore"    // memory: URLs, for the error that open returns
	_ "github.com/holdfast-lock/holdfast/mysqlstore"  // mysql: URLs
	_ "github.com/holdfast-lock/holdfast/pgstore"     // postgres: URLs
	_ "github.com/holdfast-lock/holdfast/redisstore"  // redis: URLs
	_ "github.com/holdfast-lock/holdfast/sqlitestore" // sqlite: URLs
	"github.com/holdfast-lock/holdfast/store"
	_ "github.com/holdfast-lock/holdfast/zkstore" // zk: URLs
)

const (
	openTimeout     = 10 * time.Second // for connecting to a server
	completeTimeout = 2 * time.Second  // for all calls together, while a shell waits for completions
)

type storeFlag struct {
	flag *pflag.Flag
	url  string
	ttl  time.Duration // of the lock to acquire; 0 if it is unknown
}

func (s *storeFlag) addTo(cmd *cobra.Command) {
	const name = "store"
	cmd.Flags().StringVar(&s.url, name, "", "`URL` of the store, such as sqlite:PATH (default HOLDFAST_STORE, or an SQLite file in your state directory)")
	s.flag = cmd.Flags().Lookup(name)
}

// addWithName adds the flag to a command whose argument is the name of a lock.
func (s *storeFlag) addWithName(cmd *cobra.Command) {
	s.addTo(cmd)
	cmd.Args, cmd.ValidArgsFunction = lockArgument, s.completeName
}

// check returns a usageError if the URL is wrong. It does not open the store.
func (s *storeFlag) check() error {
	from := "--store"
	if !s.flag.Changed {
		s.url, from = os.Getenv("HOLDFAST_STORE"), "HOLDFAST_STORE"
		if s.url == "" {
			return nil
		}
	}
	if s.url == "" {
		// A shell variable may be unset. The user does not want the default store.
		return usagef("--store: the URL is empty; leave out the flag to use the default store")
	}
	if !strings.Contains(s.url, ":") {
		return usagef("%s: want the URL of a store, such as sqlite:/var/lib/locks.db for a file", from)
	}
	u, err := store.ParseURL(s.url)
	if err != nil {
		return usagef("%s: %w", from, err)
	}
	if known := store.Schemes(); !slices.Contains(known, u.Scheme) {
		known = slices.DeleteFunc(known, func(scheme string) bool { return scheme == "memory" }) // see open
		return usagef("%s: unknown scheme %q; want one of %s, which holdfast help describes",
			from, u.Scheme, strings.Join(known, ", "))
	}
	return nil
}

// open opens the store. The caller has called check.
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
		return nil, fmt.Errorf("%w: the %s store works within one process only; name another with --store or HOLDFAST_STORE", holdfast.ErrUnsupported, caps.Store)
	}
	return &ttlStore{Store: st}, nil
}

// text returns the URL of an open store without its password and parameters.
func (s *storeFlag) text() string {
	u, err := store.ParseURL(s.url)
	if err != nil {
		return ""
	}
	return clean(u.String())
}

// A ttlStore records the TTL of the last grant or renewal. A process holds one lock at a time.
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

// withSession adds a session timeout that allows this TTL to the URL of a ZooKeeper server,
// unless the URL has one. The server may grant less.
func withSession(url string, ttl time.Duration) string {
	const shortest = 10 * time.Second // five ticks of a server with default settings
	const longest, param = time.Hour, "session"
	u, err := store.ParseURL(url)
	if err != nil || u.Scheme != "zk" && u.Scheme != "zks" || ttl == 0 || u.Query.Has(param) {
		return url
	}
	separator := "?"
	if strings.Contains(url, "?") {
		separator = "&"
	}
	// A TTL is at most four fifths of the session.
	session := min(max(ttl*5/4+time.Second, shortest), longest)
	return url + separator + param + "=" + session.String()
}

// A connection is a client with the store that it uses.
type connection struct {
	*holdfast.Client
	store *ttlStore
}

func (c *connection) Close() {
	c.Client.Close()
	c.store.Close()
}

// connect opens the store. The caller has called check.
func (s *storeFlag) connect(ctx context.Context, opts ...holdfast.Option) (*connection, error) {
	st, err := s.open(ctx)
	if err != nil {
		return nil, err
	}
	c, err := holdfast.New(st, opts...)
	if err != nil {
		st.Close()
		return nil, err
	}
	return &connection{c, st}, nil
}

// withStore calls do with the store, and reports its error. Name is the lock that do uses, if any.
func (s *storeFlag) withStore(ctx context.Context, name string, do func(st *ttlStore) error) error {
	if err := s.check(); err != nil {
		return err
	}
	st, err := s.open(ctx)
	if err == nil {
		defer st.Close()
		err = do(st)
	}
	return fail(err, name)
}

// withClient does the same with a client.
func (s *storeFlag) withClient(name string, do func(ctx context.Context, c *connection) error) error {
	ctx := context.Background()
	return s.withStore(ctx, name, func(st *ttlStore) error {
		c, err := holdfast.New(st)
		if err != nil {
			return err
		}
		defer c.Close()
		return do(ctx, &connection{c, st})
	})
}

// completeName completes the first argument of a command with the names of locks in the store.
func (s *storeFlag) completeName(_ *cobra.Command, args []string, prefix string) (names []cobra.Completion, _ cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(context.Background(), completeTimeout)
	defer cancel()
	if len(args) > 0 || s.check() != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	c, err := s.connect(ctx)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	defer c.Close()
	for info, err := range c.List(ctx, prefix) { // an error is its last result
		if err == nil && isCompletion(info.Name) {
			names = append(names, info.Name)
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// isCompletion reports whether a shell may insert a text into a command line. The completion scripts
// evaluate the words of that line, and a shell inserts what several completions have in common
// without quotes, so a name such as "`CMD`" would run CMD. A name with a dash first would be a flag.
func isCompletion(s string) bool { return isShellWord(s) && s[0] != '-' }

func defaultStore() (string, error) {
	const instead = "name a store with --store or HOLDFAST_STORE, such as sqlite:/var/lib/locks.db"
	dir, err := stateDir()
	if err != nil {
		return "", fmt.Errorf("%w: there is no directory for the default store: %v; %s", holdfast.ErrInvalid, err, instead)
	}
	dir = filepath.Join(dir, "holdfast")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("cannot create the directory of the default store: %w; %s", err, instead)
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
	// The XDG specification says to ignore relative paths.
	if dir := os.Getenv("XDG_STATE_HOME"); strings.HasPrefix(dir, "/") {
		return dir, nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(home, ".local", "state"), nil
}

package zkstore

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/holdfast-lock/holdfast/store"
)

const (
	// defaultSession is the longest that a server with default settings grants. It covers the
	// default TTL of 30 s.
	defaultSession = 40 * time.Second

	defaultRoot = "/holdfast"
	defaultPort = "2181"

	paramSession = "session"
)

func init() { store.Register("zk", open) }

// open opens what a URL names.
func open(ctx context.Context, u *store.URL) (store.Store, error) {
	s, err := openWith(ctx, u, defaultHeartbeat)
	if err != nil {
		return nil, err
	}
	return s, nil
}

// An address is what a URL says.
type address struct {
	hosts   []string
	root    string
	session time.Duration
}

// addressOf reads a URL: see the package comment.
func addressOf(u *store.URL) (a address, err error) {
	fail := func(format string, args ...any) (address, error) {
		return a, fmt.Errorf("%w: %s URL: %s", store.ErrInvalid, u.Scheme, fmt.Sprintf(format, args...))
	}
	if err := u.Only(paramSession); err != nil {
		return a, err
	}
	if len(u.Hosts) == 0 {
		return fail("no host: write zk://HOST:%s, several with commas between", defaultPort)
	}
	for _, host := range u.Hosts {
		if _, _, err := net.SplitHostPort(host); err != nil {
			host = net.JoinHostPort(strings.Trim(host, "[]"), defaultPort)
		}
		a.hosts = append(a.hosts, host)
	}
	if (u.User == "") != (u.Password() == "") {
		return fail("user and password go together: write zk://USER:PASSWORD@HOST")
	}
	if strings.Contains(u.User, ":") {
		return fail("a user has no colon")
	}
	a.root = strings.TrimRight(u.Path, "/")
	if a.root == "" {
		a.root = defaultRoot
	}
	for _, part := range strings.Split(a.root, "/")[1:] {
		if part == "" || part == "." || part == ".." || encode(part) != part {
			return fail("path %.60q: want the node below which all is kept, of plain letters, such as %s", u.Path, defaultRoot)
		}
	}
	a.session = defaultSession
	if text := u.Query.Get(paramSession); text != "" {
		if a.session, err = time.ParseDuration(text); err != nil || a.session < time.Second || a.session > time.Hour {
			return fail("%s=%.40q: want a time from 1s to 1h, such as 40s", paramSession, text)
		}
	}
	return a, nil
}

// quiet keeps the library from writing to the program's log. What goes wrong is in errors.
type quiet struct{}

func (quiet) Printf(string, ...any) {}

func openWith(ctx context.Context, u *store.URL, heartbeat time.Duration) (*Store, error) {
	a, err := addressOf(u)
	if err != nil {
		return nil, err
	}
	s := &Store{
		root: a.root, heartbeat: heartbeat, acl: zk.WorldACL(zk.PermAll),
		slots: make(chan struct{}, slots),
		done:  make(chan struct{}), ready: make(chan struct{}), lost: make(chan struct{}),
		mine: make(map[key]*claim), busy: make(map[key]chan struct{}), watches: make(map[watchKey]*watch),
	}
	s.timeout.Store(int64(a.session))
	if u.User != "" {
		s.secret = true
		s.acl = zk.DigestACL(zk.PermAll, u.User, u.Password())
	}
	s.dialer = &dialer{store: s}
	conn, _, err := zk.Connect(a.hosts, a.session,
		zk.WithDialer(s.dialer.dial), zk.WithHostProvider(&hosts{}), zk.WithEventCallback(s.event),
		zk.WithLogger(quiet{}), zk.WithLogInfo(false))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", u, err)
	}
	s.conn = conn
	s.keeper.start(s)
	if err := s.begin(ctx, u); err != nil {
		s.Close()
		return nil, fmt.Errorf("%s: %w", u, err)
	}
	return s, nil
}

// begin waits for a session, and tries whether it may do what is needed.
func (s *Store) begin(ctx context.Context, u *store.URL) error {
	select {
	case <-s.ready:
	case <-ctx.Done():
		return fmt.Errorf("no server has begun a session: %w; see whether a majority of them is up and can be reached", ctx.Err())
	}
	_, err := do(ctx, s, func() (struct{}, error) {
		if u.User != "" {
			if err := s.conn.AddAuth("digest", []byte(u.User+":"+u.Password())); err != nil {
				return struct{}{}, err
			}
		}
		_, err := s.tokenBase()
		if errors.Is(err, zk.ErrNoAuth) {
			return struct{}{}, err
		}
		if err == nil {
			_, _, err = s.conn.Children(s.root)
		}
		if errors.Is(err, zk.ErrNoNode) {
			err = s.ensure(s.root)
		}
		return struct{}{}, err
	})
	return err
}

func isInvalid(err error) bool { return errors.Is(err, store.ErrInvalid) }

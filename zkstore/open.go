package zkstore

import (
	"cmp"
	"context"
	"crypto/sha1"
	"encoding/base64"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast/internal/stores/batch"
	"github.com/holdfast-lock/holdfast/internal/stores/tlsurl"
	"github.com/holdfast-lock/holdfast/internal/stores/wake"
	"github.com/holdfast-lock/holdfast/store"
	"github.com/holdfast-lock/holdfast/zkstore/internal/wire"
)

const (
	defaultSession = 40 * time.Second // the longest session that a server grants by default; covers the default TTL
	defaultRoot    = "/holdfast"
	defaultPort    = "2181"
	schemeTLS      = "zks"
	paramSession   = "session"
)

func init() {
	store.Register("zk", open)
	store.Register(schemeTLS, open)
}

// configure parses a URL; see the package documentation.
func configure(u *store.URL) (root string, opts wire.Options, err error) {
	fail := func(format string, args ...any) (string, wire.Options, error) {
		return "", opts, fmt.Errorf("%w: %s URL: %s", store.ErrInvalid, u.Scheme, fmt.Sprintf(format, args...))
	}
	known := []string{paramSession}
	if u.Scheme == schemeTLS {
		known = append(known, tlsurl.Params...)
	}
	if err := u.Only(known...); err != nil {
		return "", opts, err
	}
	if opts.Servers, err = u.Addresses(defaultPort); err != nil {
		return "", opts, err
	}
	if (u.User == "") != (u.Password() == "") {
		return fail("want both user and password, or neither: write zk://USER:PASSWORD@HOST")
	}
	if strings.Contains(u.User, ":") {
		return fail("the user contains a colon, which ZooKeeper does not allow")
	}
	if u.User != "" {
		opts.Auth = u.User + ":" + u.Password()
	}
	if root = strings.TrimRight(u.Path, "/"); root == "" {
		root = defaultRoot
	}
	for _, part := range strings.Split(root, "/")[1:] {
		if part == "" || encode(part) != part {
			return fail("path %.60q: want the path of a node, of plain letters, such as %s", u.Path, defaultRoot)
		}
	}
	opts.Timeout = defaultSession
	if text := u.Query.Get(paramSession); text != "" {
		if opts.Timeout, err = time.ParseDuration(text); err != nil || opts.Timeout < time.Second || opts.Timeout > time.Hour {
			return fail("%s=%.40q: want a time from 1s to 1h, such as 40s", paramSession, text)
		}
	}
	if u.Scheme == schemeTLS {
		files, err := tlsurl.NewSource(u)
		if err != nil {
			return fail("%v", err)
		}
		opts.TLS = files.Config
	}
	return root, opts, nil
}

func open(ctx context.Context, u *store.URL) (store.Store, error) {
	root, opts, err := configure(u)
	if err != nil {
		return nil, err
	}
	s := &Store{
		root: root, heartbeat: defaultHeartbeat, acl: wire.ACL{Scheme: "world", ID: "anyone"},
		claims: make(map[wake.Key]*claim), kept: make(map[wake.Key]*claim), watches: make(map[watchKey]chan struct{}),
		sweep: sweep{due: rand.N(sweepBatch), cursor: fmt.Sprintf("%02x/", rand.N(buckets))},
	}
	if opts.Auth != "" { // in the format of the digest scheme
		sum := sha1.Sum([]byte(opts.Auth))
		s.acl = wire.ACL{Scheme: "digest", ID: u.User + ":" + base64.StdEncoding.EncodeToString(sum[:])}
	}
	s.life.Begin("zookeeper store")
	s.timeout.Store(int64(opts.Timeout))
	s.writes = batch.Batcher[write]{
		MaxInFlight: maxInFlight, MaxBatch: maxBatch, MaxWait: farPause,
		Name: func(w *write) string { return w.name }, Send: s.sendWrites,
	}
	opts.Session, opts.Event = s.sessionChanged, s.event
	s.wire = wire.Dial(opts)
	if err := s.begin(ctx); err != nil {
		s.life.Shut()
		s.wire.Close(ctx, true)
		return nil, fmt.Errorf("%s: %w", u, err)
	}
	return s, nil
}

// begin waits for a session, and checks that the user may use the root. All its requests can be repeated, so
// it starts again if the connection is lost meanwhile.
func (s *Store) begin(ctx context.Context) (err error) {
	for again := true; again; again = err == wire.ErrUnknown && s.wire.Failure() != wire.ErrAuthFailed {
		_, err = s.table(ctx)
		if err == nil {
			err = s.wire.Do(ctx, &wire.Call{Op: wire.Children(s.root, false)})
		}
		if err == wire.ErrNoNode {
			err = s.ensure(ctx, s.root)
		}
	}
	if err != nil && err == ctx.Err() {
		failure := cmp.Or(s.wire.Failure(), errors.New("no reply from the servers"))
		return fmt.Errorf("%w: %w; check that a majority of the servers is up and can be reached", failure, err)
	}
	return s.explain(err)
}

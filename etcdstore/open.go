package etcdstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-lock/holdfast/internal/stores/handle"
	"github.com/holdfast-lock/holdfast/internal/stores/tlsurl"
	"github.com/holdfast-lock/holdfast/store"
)

const (
	dialTimeout = 5 * time.Second // of one attempt to log in, which the caller's context bounds as well

	// A connection that has received nothing for pingAfter is pinged. It is closed if there is no
	// reply within pingTimeout. The library does not allow a pingAfter below ten seconds.
	pingAfter   = 10 * time.Second
	pingTimeout = 3 * time.Second

	// A server that is down is dialed again after firstRedial, and then less and less often, but at least
	// every mostRedial. By default gRPC waits for up to two minutes: too long after the servers are back.
	firstRedial = 50 * time.Millisecond
	mostRedial  = time.Second

	// attempts is how often the library sends a request. The core repeats calls instead, because
	// a request that got no reply may have been executed.
	attempts = 1

	window = 4 << 20 // flow control window: how many bytes a server may send before they are read

	defaultPort = "2379"
)

func init() {
	store.Register("etcd", open)
	store.Register("etcds", open)
}

func open(ctx context.Context, u *store.URL) (store.Store, error) {
	return handle.Opened(openWith(ctx, u, config{}))
}

func openWith(ctx context.Context, u *store.URL, c config) (*Store, error) {
	c.prefix, c.conns = strings.Trim(u.Path, "/"), new(conns)
	option, err := optionOf(u, c.conns)
	if err != nil {
		return nil, err
	}
	s, err := dial(ctx, option, c)
	if err != nil {
		return nil, refused(ctx, u, err)
	}
	return s, nil
}

// dial logs in and reads a key. Only closing the client can cancel the login of the library.
func dial(ctx context.Context, option clientv3.Config, c config) (*Store, error) {
	life, cancel := context.WithCancel(context.Background())
	option.Context = life
	stop := context.AfterFunc(ctx, cancel)
	client, err := clientv3.New(option)
	if err != nil {
		cancel()
		return nil, err
	}
	s := newStore(client, c)
	resp, err := s.kv.Range(ctx, &pb.RangeRequest{Key: []byte(s.keys.floor)})
	if err == nil && !stop() {
		err = ctx.Err()
	}
	var mark floorMark
	if err == nil {
		mark, err = parseFloor(resp)
	}
	if err != nil {
		s.life.End()
		client.Close()
		cancel()
		return nil, err
	}
	s.note(resp.Header.Revision, mark)
	return s, nil
}

// refused explains why the first call to the servers failed.
func refused(ctx context.Context, u *store.URL, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if errors.Is(err, context.DeadlineExceeded) { // the login took longer than dialTimeout
		err = status.Error(codes.Unavailable, err.Error())
	}
	explained := withAdvice(u.String(), err)
	if e := rpctypes.Error(err); e == rpctypes.ErrAuthFailed || e == rpctypes.ErrUserEmpty {
		return fmt.Errorf("%w: %w", store.ErrInvalid, explained)
	}
	return explained
}

// optionOf parses a URL: see the package comment. The client uses the given connections.
func optionOf(u *store.URL, c *conns) (option clientv3.Config, err error) {
	fail := func(format string, args ...any) (clientv3.Config, error) {
		return option, fmt.Errorf("%w: %s URL: %s", store.ErrInvalid, u.Scheme, fmt.Sprintf(format, args...))
	}
	var params []string
	secure := u.Scheme == "etcds"
	if secure {
		params = tlsurl.Params
	}
	if err := u.Only(params...); err != nil {
		return option, err
	}
	hosts, err := u.Addresses(defaultPort)
	if err != nil {
		return option, err
	}
	if (u.User == "") != (u.Password() == "") {
		return fail("want both user and password, or neither")
	}
	if prefix := strings.Trim(u.Path, "/"); store.CheckText("prefix", prefix) != nil {
		return fail("path: want at most %d bytes without control characters: all keys begin with it", store.MaxText)
	}
	option = clientv3.Config{
		Endpoints: hosts,
		Username:  u.User, Password: u.Password(),
		DialTimeout:       dialTimeout,
		DialKeepAliveTime: pingAfter, DialKeepAliveTimeout: pingTimeout,
		MaxUnaryRetries: attempts,
		Logger:          zap.NewNop(), // failures are reported as errors
		DialOptions: []grpc.DialOption{
			grpc.WithConnectParams(grpc.ConnectParams{
				Backoff:           backoff.Config{BaseDelay: firstRedial, Multiplier: 1.6, Jitter: 0.2, MaxDelay: mostRedial},
				MinConnectTimeout: pingTimeout,
			}),
			// Fixed windows keep gRPC from pinging the server after each reply to measure the
			// bandwidth. The pings cost a tenth of a lock.
			grpc.WithStaticStreamWindowSize(window), grpc.WithStaticConnWindowSize(window),
			grpc.WithContextDialer(c.dial),
		},
	}
	if secure {
		if c.files, err = tlsurl.NewSource(u); err != nil {
			return fail("%v", err)
		}
	}
	return option, nil
}

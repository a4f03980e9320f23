package goredis

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/auth"

	"github.com/holdfast-lock/holdfast/internal/testing/servers"
	"github.com/holdfast-lock/holdfast/internal/testing/suites"
	"github.com/holdfast-lock/holdfast/store"
)

// A newer go-redis may have an option that must be translated or refused. Decide, and add it to the
// documentation.
func TestTheDocumentationListsAllOptions(t *testing.T) {
	text, err := os.ReadFile("doc.go")
	must(t, err)
	listed := make(map[string]int)
	for _, row := range regexp.MustCompile(`(?m)^//\t(.+?) +(?:used|refused|ignored)\b`).FindAllSubmatch(text, -1) {
		for _, name := range strings.Split(string(row[1]), ", ") {
			listed[name]++
		}
	}
	for _, options := range []any{redis.Options{}, redis.ClusterOptions{}, redis.FailoverOptions{}} {
		for _, field := range reflect.VisibleFields(reflect.TypeOf(options)) {
			if n := listed[field.Name]; field.IsExported() && n != 1 {
				t.Errorf("%T.%s is %d times in the table of the package documentation, want once", options, field.Name, n)
			}
		}
	}
}

type noLimit struct{}

func (noLimit) Allow() error       { return nil }
func (noLimit) ReportResult(error) {}

func TestClientsThatCannotBeTranslatedAreRefused(t *testing.T) {
	onConnect := func(context.Context, *redis.Conn) error { return nil }
	cluster := func(set func(*redis.ClusterOptions)) redis.UniversalClient {
		o := &redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}}
		set(o)
		return redis.NewClusterClient(o)
	}
	for name, client := range map[string]redis.UniversalClient{
		"OnConnect":      redis.NewClient(&redis.Options{OnConnect: onConnect}),
		"Limiter":        redis.NewClient(&redis.Options{Limiter: noLimit{}}),
		"ReadOnly":       cluster(func(o *redis.ClusterOptions) { o.ReadOnly = true }),
		"RouteByLatency": cluster(func(o *redis.ClusterOptions) { o.RouteByLatency = true }),
		"RouteRandomly":  cluster(func(o *redis.ClusterOptions) { o.RouteRandomly = true }),
		"ClusterSlots": cluster(func(o *redis.ClusterOptions) {
			o.ClusterSlots = func(context.Context) ([]redis.ClusterSlot, error) { return nil, nil }
		}),
		"NewClient": cluster(func(o *redis.ClusterOptions) {
			o.NewClient = func(o *redis.Options) *redis.Client { return redis.NewClient(o) }
		}),
		"OnConnect of a Cluster":   cluster(func(o *redis.ClusterOptions) { o.OnConnect = onConnect }),
		"OnConnect with Sentinels": redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "m", OnConnect: onConnect}),
		"ClusterSlots with Sentinels": redis.NewFailoverClusterClient(&redis.FailoverOptions{
			MasterName: "m", SentinelAddrs: []string{"127.0.0.1:1"},
		}),
		"Ring": redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": "127.0.0.1:1"}}),
	} {
		defer client.Close()
		option, _, _ := strings.Cut(name, " ")
		if s, err := New(t.Context(), client); s != nil || !errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), option) {
			t.Errorf("%s: %v, %v, want an ErrInvalid that names it", name, s, err)
		}
	}
	if _, err := New(t.Context(), nil); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("nil: %v", err)
	}
}

// A vault has a password that changes. It is a provider of credentials of each kind.
type vault struct {
	password   atomic.Pointer[string]
	asked      atomic.Int32
	subscribed atomic.Int32
}

func (v *vault) get() (user, password string) {
	v.asked.Add(1)
	return "app", *v.password.Load()
}

func (v *vault) getContext(context.Context) (user, password string, err error) {
	user, password = v.get()
	return user, password, nil
}

func (v *vault) Subscribe(auth.CredentialsListener) (auth.Credentials, auth.UnsubscribeFunc, error) {
	v.subscribed.Add(1)
	return auth.NewBasicCredentials(v.get()), func() error { v.subscribed.Add(-1); return nil }, nil
}

func (v *vault) set(t *testing.T, password string, nodes ...*servers.Redis) {
	t.Helper()
	v.password.Store(&password)
	for _, node := range nodes {
		node.Must("ACL", "SETUSER", "app", "on", "resetpass", ">"+password, "~*", "&*", "+@all")
	}
}

// clients returns the connections of the program to servers.
func clients(t *testing.T, nodes ...*servers.Redis) (all []string) {
	t.Helper()
	for _, node := range nodes {
		for line := range strings.Lines(node.Must("CLIENT", "LIST").(string)) {
			if !strings.Contains(line, "cmd=client|list") && !strings.Contains(line, "flags=S") && !strings.Contains(line, "flags=M") {
				all = append(all, line)
			}
		}
	}
	return all
}

func TestOptionsAreUsed(t *testing.T) {
	certs := servers.NewCertificates(t)
	socket := filepath.Join(t.TempDir(), "redis")
	plain := servers.StartRedis(t, servers.RedisOptions{Config: []string{"unixsocket " + socket}})
	secure := servers.StartRedis(t, servers.RedisOptions{TLS: certs})
	v := new(vault)
	v.set(t, "first", plain)
	var dialed atomic.Int32
	dial := func(ctx context.Context, network, addr string) (net.Conn, error) {
		dialed.Add(1)
		return new(net.Dialer).DialContext(ctx, network, addr)
	}
	for names, test := range map[string]struct {
		opts redis.Options
		want string // in CLIENT LIST
	}{
		"Addr":                         {redis.Options{}, " laddr=" + plain.Addr() + " "},
		"Network":                      {redis.Options{Network: "unix", Addr: socket}, " addr=" + socket + ":0 "},
		"Dialer":                       {redis.Options{Dialer: dial}, ""},
		"DB":                           {redis.Options{DB: 3}, " db=3 "},
		"ClientName":                   {redis.Options{ClientName: "locks"}, " name=locks "},
		"Protocol":                     {redis.Options{Protocol: 2}, " resp=2"},
		"Username, Password":           {redis.Options{Username: "app", Password: "first"}, " user=app "},
		"CredentialsProvider":          {redis.Options{CredentialsProvider: v.get, Username: "no"}, " user=app "},
		"CredentialsProviderContext":   {redis.Options{CredentialsProviderContext: v.getContext, Username: "no"}, " user=app "},
		"StreamingCredentialsProvider": {redis.Options{StreamingCredentialsProvider: v, Username: "no"}, " user=app "},
		"TLSConfig":                    {redis.Options{Addr: secure.Addr(), TLSConfig: certs.Config.Clone()}, " resp=3"},
	} {
		t.Run(names, func(t *testing.T) {
			server := plain
			switch {
			case test.opts.TLSConfig != nil:
				server = secure
			case test.opts.Addr == "":
				test.opts.Addr = plain.Addr()
			}
			s := mustNew(t, redis.NewClient(&test.opts))
			suites.Granted(t, s, suites.Request(names))
			if all := clients(t, server); len(all) != 1 || !strings.Contains(all[0], test.want) {
				t.Errorf("want one connection with %q, got %q", test.want, all)
			}
			if names == "Dialer" && dialed.Load() != 1 {
				t.Errorf("dialed %d times", dialed.Load())
			}
		})
	}
	if n := v.subscribed.Load(); n != 0 {
		t.Errorf("%d subscriptions to the provider are left", n)
	}
}

// A password that was changed is needed for the next connection.
func TestProvidersAreAskedForEveryConnection(t *testing.T) {
	for what, set := range map[string]func(o *redis.Options, v *vault){
		"CredentialsProvider":          func(o *redis.Options, v *vault) { o.CredentialsProvider = v.get },
		"CredentialsProviderContext":   func(o *redis.Options, v *vault) { o.CredentialsProviderContext = v.getContext },
		"StreamingCredentialsProvider": func(o *redis.Options, v *vault) { o.StreamingCredentialsProvider = v },
	} {
		t.Run(what, func(t *testing.T) {
			server := servers.StartRedis(t, servers.RedisOptions{})
			v := new(vault)
			v.set(t, "first", server)
			opts := &redis.Options{Addr: server.Addr()}
			set(opts, v)
			s := mustNew(t, redis.NewClient(opts))
			for i := range 3 {
				v.set(t, fmt.Sprint("password", i), server)
				server.Must("CLIENT", "KILL", "TYPE", "normal")
				poll(t, func() error {
					req := suites.Request(fmt.Sprint("n", i))
					_, err := s.Acquire(t.Context(), req)
					return err
				})
			}
			if n := v.asked.Load(); n < 4 {
				t.Errorf("asked %d times for at least 4 connections", n)
			}
		})
	}
}

func TestAConnectionFailsAsInTheClient(t *testing.T) {
	server := servers.StartRedis(t, servers.RedisOptions{})
	provider := func(context.Context) (string, string, error) { return "", "", errors.New("the vault is sealed") }
	for says, o := range map[string]*redis.Options{
		"the vault is sealed": {CredentialsProviderContext: provider},
		"timeout":             {DialTimeout: time.Nanosecond},
	} {
		o.Addr = server.Addr()
		client := redis.NewClient(o)
		defer client.Close()
		if _, err := New(t.Context(), client); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want an error that says %q", err, says)
		}
	}
}

func TestOptionsOfAClusterAreUsed(t *testing.T) {
	certs := servers.NewCertificates(t)
	cluster := servers.StartCluster(t, servers.RedisOptions{TLS: certs})
	v := new(vault)
	v.set(t, "secret", cluster.Nodes...)
	for what, o := range map[string]*redis.ClusterOptions{
		"a password": {Username: "app", Password: "secret"},
		"a provider": {CredentialsProvider: v.get},
		"RESP2":      {Username: "app", Password: "secret", Protocol: 2},
		"a dialer": {Username: "app", Password: "secret", Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
			return redis.NewDialer(&redis.Options{TLSConfig: certs.Config.Clone()})(ctx, network, addr)
		}},
	} {
		t.Run(what, func(t *testing.T) {
			o.Addrs, o.ClientName = cluster.Addrs()[:1], "locks"
			if o.Dialer == nil {
				o.TLSConfig = certs.Config.Clone()
			}
			s := mustNew(t, redis.NewClusterClient(o))
			for i := range 20 {
				suites.Granted(t, s, suites.Request(fmt.Sprint(what, i)))
			}
			all := clients(t, cluster.Nodes...)
			for _, line := range all {
				if !strings.Contains(line, " user=app ") || !strings.Contains(line, " name=locks ") || strings.Contains(line, " resp=2") != (what == "RESP2") {
					t.Errorf("not with these options: %s", line)
				}
			}
			if len(all) < 3 {
				t.Errorf("%d connections, want one to each primary at least", len(all))
			}
		})
		poll(t, func() error {
			if all := clients(t, cluster.Nodes...); len(all) > 0 {
				return fmt.Errorf("connections are left: %q", all)
			}
			return nil
		})
	}
}

// While no Sentinel answers, go-redis does not return from a dial for a long time.
func TestDialsThroughHungSentinelsDoNotPileUp(t *testing.T) {
	var dials atomic.Int32
	end := make(chan struct{})
	client := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "m"})
	defer client.Close()
	o := client.Options()
	o.Dialer = func(context.Context, string, string) (net.Conn, error) {
		dials.Add(1)
		<-end
		return nil, errors.New("ended")
	}
	option, err := translate(client)
	must(t, err)
	for range 3 * maxDials {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		if conn, err := option.DialCtxFn(ctx, "", nil, nil); err == nil || conn != nil {
			t.Fatalf("%v, %v", conn, err)
		}
	}
	if n := dials.Load(); n == 0 || n > maxDials {
		t.Errorf("%d dials are in progress, want at most %d", n, maxDials)
	}
	close(end)
	if _, err := option.DialCtxFn(t.Context(), "", nil, nil); err == nil || err.Error() != "ended" {
		t.Errorf("%v, want the error of the dialer", err)
	}
}

// The address may be that of a primary that hangs. The dialer of go-redis for TLS ignores its context.
func TestADialThroughSentinelsThatHangsKeepsItsPlaceForAMinute(t *testing.T) {
	client := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "m"})
	defer client.Close()
	synctest.Test(t, func(t *testing.T) {
		begin, end := time.Now(), make(chan struct{})
		defer close(end)
		client.Options().Dialer = func(context.Context, string, string) (net.Conn, error) {
			if time.Since(begin) < maxDial {
				<-end
			}
			return nil, errors.New("ended")
		}
		option, err := translate(client)
		must(t, err)
		for range maxDials {
			option.DialCtxFn(t.Context(), "", nil, nil)
		}
		time.Sleep(maxDial)
		if _, err := option.DialCtxFn(t.Context(), "", nil, nil); err == nil || err.Error() != "ended" {
			t.Errorf("%v, want the error of the dialer", err)
		}
	})
}

// The dialer of go-redis for TLS ignores its context. Go-redis 9.9 has no default for a Cluster's DialTimeout.
func TestAHandshakeWithANodeThatHangsEnds(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer l.Close()
	client := redis.NewClusterClient(&redis.ClusterOptions{TLSConfig: &tls.Config{InsecureSkipVerify: true}})
	defer client.Close()
	client.Options().DialTimeout = 0
	option, err := translate(client)
	must(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	option.DialCtxFn(ctx, l.Addr().String(), nil, nil)
	conn, err := l.Accept()
	must(t, err)
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(2 * dialTimeout))
	if _, err := io.Copy(io.Discard, conn); err != nil {
		t.Errorf("the connection is open after %v: %v", 2*dialTimeout, err)
	}
}

// The dialer may hang whatever its context says. Calls end in time nevertheless.
func TestADialerThatHangsDoesNotHoldCalls(t *testing.T) {
	server := servers.StartRedis(t, servers.RedisOptions{})
	var hang atomic.Bool
	end := make(chan struct{})
	s := mustNew(t, redis.NewClient(&redis.Options{Addr: server.Addr(), Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
		if hang.Load() {
			<-end
			return nil, errors.New("ended")
		}
		return new(net.Dialer).DialContext(ctx, network, addr)
	}}))
	hang.Store(true)
	server.Must("CLIENT", "KILL", "TYPE", "normal")
	for range 3 {
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		begin := time.Now()
		if _, err := s.Acquire(ctx, suites.Request("n")); err == nil || time.Since(begin) > time.Second {
			t.Errorf("%v after %v, want an error in time", err, time.Since(begin))
		}
	}
	hang.Store(false)
	close(end)
	poll(t, func() error {
		_, err := s.Acquire(t.Context(), suites.Request("n"))
		return err
	})
}

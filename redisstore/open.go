package redisstore

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/holdfast-lock/holdfast/internal/redis/await"
	"github.com/holdfast-lock/holdfast/internal/redis/rediscore"
	"github.com/holdfast-lock/holdfast/internal/stores/handle"
	"github.com/holdfast-lock/holdfast/internal/stores/tlsurl"
	"github.com/holdfast-lock/holdfast/store"
)

const (
	// A connection that is silent for pingAfter is tested with a PING, and closed if there is no reply in
	// time. Waiters ask more often than that, so waiting causes no PINGs.
	pingAfter = 2500 * time.Millisecond

	// dialTimeout ensures that a call that has to connect takes no longer than callTimeout.
	dialTimeout   = callTimeout / 2
	answerTimeout = callTimeout / 2

	// oneConnection makes all commands share one connection, because a longer pipeline is faster.
	oneConnection = -1

	// The library asks a Cluster for its nodes when a call fails or a connection ends. At that moment
	// the others do not yet know the new address of a node that is being replaced, as on Kubernetes.
	// A client that asked only then could in the end know none of the nodes.
	clusterRefresh = 5 * time.Second

	// Names of the parameters of URLs.
	paramReplicas         = "replicas"
	paramSentinelUser     = "sentinel-user"
	paramSentinelPassword = "sentinel-password"
)

func init() {
	for _, tls := range []string{"redis", "rediss"} {
		for _, kind := range []string{"", "+sentinel", "+cluster"} {
			store.Register(tls+kind, open)
		}
	}
}

// open opens the store of a URL.
func open(ctx context.Context, u *store.URL) (store.Store, error) {
	return handle.Opened(openWith(ctx, u, rediscore.Config{}))
}

func openWith(ctx context.Context, u *store.URL, config rediscore.Config) (*Store, error) {
	option, err := optionOf(u, &config)
	if err != nil {
		return nil, err
	}
	s, err := Dial(ctx, option, config)
	switch {
	case err == nil:
		return s, nil
	case ctx.Err() != nil || errors.Is(err, store.ErrInvalid):
		return nil, fmt.Errorf("%s: %w", u, err)
	}
	return nil, explain(u, err)
}

// Dial opens a store with its own connections, for package goredis. The option says where to connect and how to
// log in; Dial sets everything else. Programs use [store.Open] or [New], because the type of config is internal.
func Dial(ctx context.Context, option rueidis.ClientOption, config rediscore.Config) (*Store, error) {
	owned := &connections{dialer: dialTCP}
	if option.DialCtxFn != nil {
		owned.dialer = option.DialCtxFn
	}
	option.DialCtxFn = owned.dial
	setEngine(&option)
	var dog *watchdog
	if option.ForceSingleClient && config.Replicas == 0 {
		dog = newWatchdog(owned)
		config.Timeout = callTimeout
	}
	// The library connects at once. It accepts no context, only its own timeout.
	client, err := await.Call(ctx, func() (rueidis.Client, error) { return rueidis.NewClient(option) }, rueidis.Client.Close)
	cluster := !option.ForceSingleClient && option.Sentinel.MasterSet == ""
	if err == nil && cluster && client.Mode() != rueidis.ClientModeCluster {
		client.Close()
		err = fmt.Errorf("%w: this is a single server, not a Cluster: write redis://, or use a client of a single server", store.ErrInvalid)
	}
	if err != nil {
		owned.closeAll(true)
		return nil, err
	}
	c := &conn{client: client, dog: dog, owned: owned, waits: config.Replicas > 0}
	s, err := newStore(c, config)
	if err != nil {
		c.Close()
	}
	return s, err
}

// setEngine sets the options that say how the library works, but not where it connects.
func setEngine(option *rueidis.ClientOption) {
	option.Dialer = net.Dialer{Timeout: dialTimeout, KeepAlive: pingAfter}
	option.Sentinel.Dialer = option.Dialer
	option.DisableCache = true // a lock is never read from a cache, and CLIENT TRACKING may be forbidden
	option.DisableRetry = true // the core retries
	option.PipelineMultiplex = oneConnection
	option.ConnWriteTimeout = answerTimeout
	option.ClientSetInfo = rueidis.DisableClientSetInfo
	option.ClusterOption.ShardsRefreshInterval = clusterRefresh
}

// optionOf returns the options of a client, and sets those of the store: see the package comment for the
// parameters of URLs.
func optionOf(u *store.URL, config *rediscore.Config) (option rueidis.ClientOption, err error) {
	fail := func(format string, args ...any) (rueidis.ClientOption, error) {
		return option, fmt.Errorf("%w: %s URL: %s", store.ErrInvalid, u.Scheme, fmt.Sprintf(format, args...))
	}
	security, kind, _ := strings.Cut(u.Scheme, "+")
	params := []string{paramReplicas}
	if security == "rediss" {
		params = append(params, tlsurl.Params...)
	}
	port := "6379"
	if kind == "sentinel" {
		port = "26379"
		params = append(params, paramSentinelUser, paramSentinelPassword)
	}
	if err := u.Only(params...); err != nil {
		return option, err
	}
	if len(u.Hosts) == 0 {
		return fail("no host: write %s://HOST:%s", u.Scheme, port)
	}
	if kind == "" && len(u.Hosts) > 1 {
		return fail("%d hosts: a single server has one; write redis+cluster:// for a Cluster or redis+sentinel:// for Sentinels", len(u.Hosts))
	}
	option = rueidis.ClientOption{
		Username: u.User, Password: u.Password(), ForceSingleClient: kind == "",
	}
	if option.InitAddress, err = u.Addresses(port); err != nil {
		return option, err
	}
	path := strings.Trim(u.Path, "/")
	if kind == "sentinel" {
		var name string
		if name, path, _ = strings.Cut(path, "/"); name == "" {
			return fail("no master name: write %s://HOST:%s/MASTERNAME", u.Scheme, port)
		}
		option.Sentinel = rueidis.SentinelOption{
			MasterSet: name,
			Username:  u.Query.Get(paramSentinelUser), Password: u.Query.Get(paramSentinelPassword),
		}
	}
	if kind == "cluster" && path != "" {
		return fail("a Cluster has one database: leave out /%s", path)
	}
	if path != "" {
		if option.SelectDB, err = strconv.Atoi(path); err != nil || option.SelectDB < 0 {
			return fail("path %.40q: want the number of a database, as in %s://HOST/0", path, u.Scheme)
		}
	}
	if security == "rediss" {
		if option.TLSConfig, err = tlsurl.Config(u); err != nil {
			return fail("%v", err)
		}
		option.Sentinel.TLSConfig = option.TLSConfig
	}
	if text := u.Query.Get(paramReplicas); text != "" {
		if config.Replicas, err = strconv.Atoi(text); err != nil || config.Replicas < 0 || config.Replicas > 100 {
			return fail("%s=%.40q: want how many replicas must confirm, from 0 to 100", paramReplicas, text)
		}
	}
	return option, nil
}

// openAdvice says what to do about an error of the first connection that contains a word.
var openAdvice = []struct{ word, advice string }{
	{"WRONGPASS", wrongLogin},
	{"NOAUTH", wrongLogin},
	{"invalid password", wrongLogin},
	{"DB index is out of range", "the path of the URL is the number of the database, as in redis://HOST/0"},
	{"unknown command 'SENTINEL'", "this is a Redis server, not a Sentinel: write redis://HOST:PORT, or give the address of a Sentinel"},
	{"unknown message type: 72", "this looks like an HTTP server, not like Redis: check the port"}, // "HTTP/1.1 …"
}

const wrongLogin = "check the user and the password in the URL, for Sentinels sentinel-user= and sentinel-password=; a password without a user is written as redis://:PASSWORD@HOST"

// explain adds advice to the error of the first connection. The error is ErrInvalid if the URL must be
// changed, but not if the error may end by itself.
func explain(u *store.URL, err error) error {
	text := err.Error()
	for _, known := range openAdvice {
		if strings.Contains(text, known.word) {
			return fmt.Errorf("%w: %s: %s (%v)", store.ErrInvalid, u, known.advice, err)
		}
	}
	secure := strings.HasPrefix(u.Scheme, "rediss")
	switch {
	case strings.Contains(text, "No such master with that name"): // a Sentinel can learn of the name later
		return fmt.Errorf("%s: %w: the name after the hosts is the one in \"sentinel monitor\" of the Sentinels", u, err)
	case secure && strings.Contains(text, "deadline exceeded"):
		return fmt.Errorf("%s: %w: if the server speaks no TLS, write redis:// instead of rediss://", u, err)
	case !secure && (strings.Contains(text, "EOF") || strings.Contains(text, "connection reset")):
		return fmt.Errorf("%s: %w: if the server wants TLS, write rediss:// instead of redis://", u, err)
	}
	return fmt.Errorf("%s: %w", u, err)
}

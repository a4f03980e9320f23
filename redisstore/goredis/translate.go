package goredis

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/auth"
	"github.com/redis/rueidis"

	"github.com/holdfast-lock/holdfast/internal/redis/await"
	"github.com/holdfast-lock/holdfast/store"
)

// askTimeout bounds how long a provider of credentials may take.
const askTimeout = 3 * time.Second

// translate returns the options of a client in the terms of the library that the store uses.
func translate(client redis.UniversalClient) (option rueidis.ClientOption, err error) {
	switch c := client.(type) {
	case *redis.Client:
		if c == nil {
			break
		}
		o := c.Options()
		option, err = connect(o, o.Addr)
		option.ForceSingleClient = true
		return option, err
	case *redis.ClusterClient:
		if c == nil {
			break
		}
		o := c.Options()
		switch {
		case o.ReadOnly || o.RouteByLatency || o.RouteRandomly:
			return option, refuse("ReadOnly, RouteByLatency or RouteRandomly", "replicas learn of a lock late; make a client without them for the locks")
		case o.ClusterSlots != nil:
			return option, refuse("ClusterSlots", "its servers may not be a Redis Cluster; for Sentinel use redis.NewFailoverClient, and for a Cluster put the addresses of some nodes into Addrs")
		case reflect.ValueOf(o.NewClient).Pointer() != reflect.ValueOf(redis.NewClient).Pointer():
			return option, refuse("NewClient", "put what it changes into ClusterOptions, such as Dialer, TLSConfig or CredentialsProvider")
		}
		return connect(&redis.Options{
			Network: "tcp", Dialer: o.Dialer, DialTimeout: cmp.Or(o.DialTimeout, dialTimeout), TLSConfig: o.TLSConfig, OnConnect: o.OnConnect,
			Protocol: o.Protocol, ClientName: o.ClientName, Username: o.Username, Password: o.Password,
			CredentialsProvider: o.CredentialsProvider, CredentialsProviderContext: o.CredentialsProviderContext,
			StreamingCredentialsProvider: o.StreamingCredentialsProvider,
		}, o.Addrs...)
	}
	return option, fmt.Errorf("%w: goredis.New: a client of type %T: want a *redis.Client or a *redis.ClusterClient that is not nil", store.ErrInvalid, client)
}

func refuse(name, why string) error {
	return fmt.Errorf("%w: goredis.New: the client has the option %s: %s", store.ErrInvalid, name, why)
}

// connect translates the options that say how to connect to the servers with these addresses.
func connect(o *redis.Options, addrs ...string) (option rueidis.ClientOption, err error) {
	switch {
	case o.OnConnect != nil:
		return option, refuse("OnConnect", "it cannot run on the connections of the store; use ClientName, DB, Username, Password or a CredentialsProvider, or make a client without it for the locks")
	case o.Limiter != nil:
		return option, refuse("Limiter", "it would end leases if it refused their renewal; make a client without it for the locks")
	}
	d := &dialer{network: o.Network, dial: o.Dialer, extra: max(0, o.ReadTimeout)}
	if o.Addr == failoverAddr {
		d.sentinel = make(chan struct{}, maxDials)
	}
	if d.dial == nil {
		d.dial = redis.NewDialer(o)
	}
	user := o.Username
	if o.Password == "" { // go-redis logs in only with a password
		user = ""
	}
	return rueidis.ClientOption{
		InitAddress: addrs, DialCtxFn: d.connect,
		TLSConfig: o.TLSConfig, // only to choose between the ports that a Cluster announces: the dialer has its own
		Username:  user, Password: o.Password, AuthCredentialsFn: credentials(o),
		SelectDB: o.DB, ClientName: o.ClientName, AlwaysRESP2: o.Protocol == 2,
	}, nil
}

// credentials returns a function that asks the provider of a client, or nil if it has none. It is
// called for every new connection.
func credentials(o *redis.Options) func(rueidis.AuthCredentialsContext) (rueidis.AuthCredentials, error) {
	var ask func(ctx context.Context) (user, password string, err error)
	switch { // in the order of go-redis
	case o.StreamingCredentialsProvider != nil:
		ask = func(context.Context) (user, password string, err error) {
			// Changes of credentials are ignored: a new connection asks for them again.
			now, unsubscribe, err := o.StreamingCredentialsProvider.Subscribe(auth.NewReAuthCredentialsListener(nil, nil))
			if err != nil {
				return "", "", err
			}
			user, password = now.BasicAuth()
			return user, password, unsubscribe()
		}
	case o.CredentialsProviderContext != nil:
		ask = o.CredentialsProviderContext
	case o.CredentialsProvider != nil:
		ask = func(context.Context) (user, password string, err error) {
			user, password = o.CredentialsProvider()
			return user, password, nil
		}
	default:
		return nil
	}
	return func(rueidis.AuthCredentialsContext) (rueidis.AuthCredentials, error) {
		ctx, cancel := context.WithTimeout(context.Background(), askTimeout)
		defer cancel()
		return await.Call(ctx, func() (login rueidis.AuthCredentials, err error) {
			if login.Username, login.Password, err = ask(ctx); err != nil {
				err = fmt.Errorf("the credentials provider of the client: %w", err)
			}
			return login, err
		}, nil)
	}
}

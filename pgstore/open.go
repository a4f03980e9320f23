package pgstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-lock/holdfast/internal/stores/handle"
	"github.com/holdfast-lock/holdfast/store"
)

func init() {
	store.Register("postgres", open)
	store.Register("postgresql", open)
}

// Parameters of URLs that pgx does not know.
const (
	paramSchema = "schema"
	paramCreate = "create"
)

// parameters lists the parameters of URLs that are passed on to pgx. The other parameters of pgx
// are settings of the server, or passwords, which must not be in a parameter.
var parameters = []string{
	"host", "port", "application_name", "connect_timeout", "target_session_attrs", "options",
	"sslmode", "sslrootcert", "sslcert", "sslkey", "sslpassword", "sslsni", "sslnegotiation",
	"passfile", "service", "servicefile",
	"pool_max_conns", "pool_min_conns", "pool_min_idle_conns", "pool_max_conn_lifetime", "pool_max_conn_lifetime_jitter",
	"pool_max_conn_idle_time", "pool_health_check_period", "pool_ping_timeout",
}

// open opens the store of a URL.
func open(ctx context.Context, u *store.URL) (store.Store, error) {
	pool, schema, err := poolConfig(u)
	if err != nil {
		return nil, err
	}
	create := cmp.Or(u.Query.Get(paramCreate), "true")
	if create != "true" && create != "false" {
		return nil, fmt.Errorf("%w: postgres URL: parameter create=%.20q: want true or false", store.ErrInvalid, create)
	}
	s, err := newStore(ctx, pool, config{schema: schema, noCreate: create == "false"})
	if isCode(err, "28P01", "28000", "3D000") { // wrong password; no such user, or not allowed from this host; no such database
		err = fmt.Errorf("%w: %s: %w", store.ErrInvalid, u, err)
	}
	return handle.Opened(s, err)
}

// PoolConfig returns the configuration of a pool for a URL of this package, and the schema in the URL, for
// programs that call [Migrate]. Other programs use holdfast.Open or [New]. It returns an error that matches
// holdfast.ErrInvalid if the URL is malformed or has an unknown parameter. The error contains no password.
func PoolConfig(rawURL string) (config *pgxpool.Config, schema string, err error) {
	u, err := store.ParseURL(rawURL)
	if err != nil {
		return nil, "", err
	}
	if u.Scheme != "postgres" && u.Scheme != "postgresql" {
		return nil, "", fmt.Errorf("%w: store URL %s: want postgres://…", store.ErrInvalid, u)
	}
	return poolConfig(u)
}

func poolConfig(u *store.URL) (config *pgxpool.Config, schema string, err error) {
	if err := u.Only(append(slices.Clone(parameters), paramSchema, paramCreate)...); err != nil {
		return nil, "", err
	}
	if strings.Contains(strings.TrimPrefix(u.Path, "/"), "/") {
		return nil, "", fmt.Errorf("%w: %s: want one database after the hosts", store.ErrInvalid, u)
	}
	schema = u.Query.Get(paramSchema)
	if _, err := quoteSchema(schema); err != nil {
		return nil, "", fmt.Errorf("postgres URL: %w", err)
	}
	config, err = pgxpool.ParseConfig(encoded(u))
	if err != nil {
		return nil, "", fmt.Errorf("%w: %s: %s", store.ErrInvalid, u, parseError(u, err))
	}
	delete(config.ConnConfig.RuntimeParams, paramSchema)
	delete(config.ConnConfig.RuntimeParams, paramCreate)
	if !u.Query.Has("pool_max_conns") {
		config.MaxConns = ownConns
	}
	if !u.Query.Has("pool_ping_timeout") {
		config.PingTimeout = pingTimeout
	}
	if len(config.ConnConfig.Fallbacks) > 0 && len(u.Hosts) > 1 && !u.Query.Has("target_session_attrs") {
		config.ConnConfig.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsReadWrite // find the primary
	}
	return config, schema, nil
}

// encoded returns a URL whose user and password are percent-encoded. Otherwise pgx would take a
// password with an @ to end there, look up the rest as a host, and show it in the error.
func encoded(u *store.URL) string {
	if len(u.Hosts) == 0 {
		return u.Raw()
	}
	_, query, _ := strings.Cut(u.Raw(), "?")
	e := url.URL{Scheme: u.Scheme, Host: strings.Join(u.Hosts, ","), Path: u.Path, RawQuery: query}
	switch {
	case u.Password() != "":
		e.User = url.UserPassword(u.User, u.Password())
	case u.User != "":
		e.User = url.User(u.User)
	}
	return e.String()
}

// parseError returns the error of pgx without the URL and the password, which pgx does not always hide.
func parseError(u *store.URL, err error) string {
	var parse *pgconn.ParseConfigError
	text := err.Error()
	if errors.As(err, &parse) {
		if _, after, ok := strings.Cut(text, "`: "); ok {
			text = after
		}
	}
	for _, secret := range []string{u.Raw(), encoded(u), u.Password(), url.QueryEscape(u.Password()), url.PathEscape(u.Password()), u.Query.Get("sslpassword")} {
		if secret != "" {
			text = strings.ReplaceAll(text, secret, "***")
		}
	}
	return text
}

package mysqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/holdfast-lock/holdfast/internal/stores/tlsurl"
	"github.com/holdfast-lock/holdfast/store"
)

const (
	defaultPort = "3306"

	// dialTimeout bounds one attempt to connect. The caller's context bounds it as well.
	dialTimeout = 5 * time.Second

	// leastConns is how many connections a store needs, beside those of an application.
	leastConns = 2

	// setUpTimeout bounds how long New checks the tables, and creates them if they are missing.
	setUpTimeout = 10 * time.Second
)

// Parameters of URLs, besides those of package tlsurl.
const (
	paramTLS    = "tls"
	paramPrefix = "prefix"
	paramCreate = "create"
)

func init() { store.Register("mysql", openURL) }

// An Option changes how a store is set up.
type Option func(*config)

type config struct {
	database string
	prefix   string
	keepOut  bool // do not create tables
	owned    bool // the pool is closed with the store
}

// Prefix sets the prefix of the table names. The default is [DefaultPrefix]. Programs exclude
// each other only with the same prefix, in the same database.
func Prefix(prefix string) Option { return func(c *config) { c.prefix = prefix } }

// NoCreate makes New return an error if the tables do not exist, instead of creating them.
func NoCreate() Option { return func(c *config) { c.keepOut = true } }

// New returns a store in the current database of a connection of db, even if the application later runs
// USE. It takes at most two of the connections, and does not return them to the pool. The settings of db do
// not matter, except that its connections must reach the primary, be able to write and be sessions of
// their own: a proxy that shares sessions between clients does not work. MaxOpenConns must be 3 or more,
// or 0. Every further store on the same pool needs two more. Closing the store does not close db.
//
// If the tables do not exist, New creates them (see [NoCreate] and [Migrate]). It returns an error
// that matches store.ErrInvalid if db is nil, for a malformed prefix, for a pool or a user that is
// limited to too few connections, and for tables that need a newer version of this package.
func New(db *sql.DB, opts ...Option) (*Store, error) {
	var c config
	for _, opt := range opts {
		opt(&c)
	}
	ctx, cancel := context.WithTimeout(context.Background(), setUpTimeout)
	defer cancel()
	return open(ctx, db, c)
}

func open(ctx context.Context, db *sql.DB, c config) (*Store, error) {
	var err error
	if c.prefix, err = checkPrefix(c.prefix); err != nil {
		return nil, err
	}
	if db == nil {
		return nil, errNoPool
	}
	if most := db.Stats().MaxOpenConnections; most > 0 && most < leastConns+1 {
		return nil, fmt.Errorf("%w: the pool is limited to %d connections, and the locks may use two of them: want MaxOpenConns of %d or more",
			store.ErrInvalid, most, leastConns+1)
	}
	err = setUp(ctx, db, func(conn *conn) error { return c.check(ctx, conn) })
	if isOutcome(err) {
		return nil, err
	}
	if err != nil {
		return nil, fmt.Errorf("mysql store: %w", err)
	}
	return newStore(db, c), nil
}

// check finds out the database, and checks its tables and the limit of the user.
func (c *config) check(ctx context.Context, conn *conn) error {
	var database sql.NullString
	var most int
	if err := conn.QueryRowContext(ctx, "SELECT DATABASE(), @@max_user_connections").Scan(&database, &most); err != nil {
		return err
	}
	least := leastConns
	if !c.owned {
		least++
	}
	if most > 0 && most < least {
		return fmt.Errorf("%w: mysql store: the user is limited to %d connections: want MAX_USER_CONNECTIONS of %d or more for each program", store.ErrInvalid, most, least)
	}
	if !database.Valid {
		return fmt.Errorf("%w: mysql store: the connections of the pool have no database: name one in the data source name", store.ErrInvalid)
	}
	c.database = database.String
	err := checkVersion(ctx, conn, c.prefix)
	if errors.Is(err, errNoTables) && !c.keepOut {
		return migrate(ctx, conn, c.prefix) // its error includes advice
	}
	if err != nil {
		err = fmt.Errorf("%w%s", err, advice(err))
	}
	return err
}

// Pool returns a pool of connections to the database of a store's URL, and the prefix of its
// tables, for [Migrate] and [Schema]. It does not connect yet. It returns an error that matches
// store.ErrInvalid if the URL is malformed.
func Pool(url string) (db *sql.DB, prefix string, err error) {
	u, err := store.ParseURL(url)
	if err != nil {
		return nil, "", err
	}
	db, c, err := pool(u)
	return db, c.prefix, err
}

// openURL opens the store of a URL: see the package comment.
func openURL(ctx context.Context, u *store.URL) (store.Store, error) {
	db, c, err := pool(u)
	if err != nil {
		return nil, err
	}
	s, err := open(ctx, db, c)
	if err != nil {
		db.Close()
		if isNumber(err, errWrongPassword) || wrongDatabase(err) {
			return nil, fmt.Errorf("%w: %s: %w", store.ErrInvalid, u, err)
		}
		return nil, fmt.Errorf("%s: %w", u, err)
	}
	return s, nil
}

// pool returns a pool for a URL, and the other settings in it.
func pool(u *store.URL) (*sql.DB, config, error) {
	c := config{owned: true}
	fail := func(format string, args ...any) (*sql.DB, config, error) {
		return nil, c, fmt.Errorf("%w: %s URL: %s", store.ErrInvalid, u.Scheme, fmt.Sprintf(format, args...))
	}
	if err := u.Only(append([]string{paramPrefix, paramCreate, paramTLS}, tlsurl.Params...)...); err != nil {
		return nil, c, err
	}
	database := strings.TrimPrefix(u.Path, "/")
	hosts, _ := u.Addresses(defaultPort)
	if len(hosts) != 1 || database == "" || strings.Contains(database, "/") {
		return fail("write mysql://USER:PASSWORD@HOST:%s/DATABASE with one host, that of the primary", defaultPort)
	}
	option := mysql.NewConfig()
	option.User, option.Passwd = u.User, u.Password()
	option.Net, option.Addr, option.DBName = "tcp", hosts[0], database
	option.Timeout = dialTimeout
	option.Logger = &mysql.NopLogger{} // failures are returned as errors
	c.prefix = u.Query.Get(paramPrefix)
	create, err := isTrue(u, paramCreate, true)
	if err != nil {
		return fail("%v", err)
	}
	c.keepOut = !create
	named := slices.ContainsFunc(tlsurl.Params, u.Query.Has)
	secure, err := isTrue(u, paramTLS, named)
	if err == nil && named && !secure {
		err = errors.New("names certificates, but says tls=false")
	}
	if err == nil && secure {
		option.TLS, err = tlsurl.Config(u)
	}
	if err != nil {
		return fail("%v", err)
	}
	connector, err := mysql.NewConnector(option)
	if err != nil {
		return fail("%v", err)
	}
	return sql.OpenDB(connector), c, nil
}

// isTrue returns a parameter that is true or false, or absent if it is not in the URL.
func isTrue(u *store.URL, param string, absent bool) (bool, error) {
	text := u.Query.Get(param)
	if text == "" {
		return absent, nil
	}
	value, err := strconv.ParseBool(text)
	if err != nil {
		return false, fmt.Errorf("%s=%.20q: want true or false", param, text)
	}
	return value, nil
}

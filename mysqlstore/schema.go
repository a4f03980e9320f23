package mysqlstore

import (
	"context"
	"database/sql"
	_ "embed"
	"errors"
	"fmt"
	"strings"

	"github.com/holdfast-lock/holdfast/store"
)

const (
	// DefaultPrefix is the default prefix of the table names.
	DefaultPrefix = "holdfast_"

	// version is the version of the tables that this package creates. A later version may add
	// tables, and columns with defaults; programs of this version continue to work with it. If a
	// later version makes an incompatible change, it must first raise meta.compatible and wait
	// for ten seconds. Programs of this version then grant no more locks and remove no unused rows.
	version = 1

	// maxPrefix leaves room for the rest of a table's name within 64 characters.
	maxPrefix = 50
)

//go:embed schema.sql
var schemaSQL string

// Schema returns the statements that create the tables, for databases in which [Migrate], [New]
// and holdfast.Open may not create them. An empty prefix means [DefaultPrefix]. It returns an
// error that matches store.ErrInvalid if the prefix cannot be part of a table's name.
func Schema(prefix string) (string, error) {
	prefix, err := checkPrefix(prefix)
	if err != nil {
		return "", err
	}
	return withTables(schemaSQL, prefix), nil
}

// Grants returns the statements that give a user, such as 'app'@'%', the rights that a program
// needs to lock names, and no others. Creating the tables needs CREATE as well. An empty prefix
// means [DefaultPrefix]. It returns an error that matches store.ErrInvalid if a part is malformed.
func Grants(database, prefix, user string) (string, error) {
	prefix, err := checkPrefix(prefix)
	if err != nil {
		return "", err
	}
	if database == "" || user == "" || strings.ContainsAny(database, "`\x00") || strings.ContainsAny(user, ";\x00") {
		return "", fmt.Errorf("%w: grants: want a database and a user such as 'app'@'%%'", store.ErrInvalid)
	}
	const text = "GRANT SELECT, INSERT, UPDATE, DELETE ON `%[1]s`.{{names}} TO %[2]s;\n" +
		"GRANT SELECT, INSERT, UPDATE, DELETE ON `%[1]s`.{{claims}} TO %[2]s;\n" +
		"GRANT SELECT, UPDATE (low, swept) ON `%[1]s`.{{meta}} TO %[2]s;\n"
	return fmt.Sprintf(withTables(text, prefix), database, user), nil
}

// Migrate creates the tables in the database of db, or updates them to the version of this package. It does
// nothing if they are up to date. Programs may use the locks meanwhile, and several may call Migrate at the
// same time. An empty prefix means [DefaultPrefix]. It returns an error that matches store.ErrInvalid if the
// prefix is malformed or the tables are of a version that this package does not know.
func Migrate(ctx context.Context, db *sql.DB, prefix string) error {
	prefix, err := checkPrefix(prefix)
	if err != nil {
		return err
	}
	return setUp(ctx, db, func(c *conn) error { return migrate(ctx, c, prefix) })
}

// setUp calls f with a connection whose session is set up: the application may have turned off autocommit.
func setUp(ctx context.Context, db *sql.DB, f func(c *conn) error) error {
	if db == nil {
		return errNoPool
	}
	c, err := connect(ctx, db)
	if err != nil {
		return fmt.Errorf("%w%s", err, advice(err))
	}
	defer c.discard()
	// Other programs may be creating the tables.
	if _, err := c.ExecContext(ctx, fmt.Sprintf("SET SESSION innodb_lock_wait_timeout = %[1]d, lock_wait_timeout = %[1]d", int(setUpTimeout.Seconds()))); err != nil {
		return err
	}
	return f(c)
}

func migrate(ctx context.Context, c *conn, prefix string) error {
	// Version 1 is the first, so there is nothing to convert, and every step can be repeated. The
	// row of meta is written last, so that incomplete tables are not used.
	err := checkVersion(ctx, c, prefix)
	if !errors.Is(err, errNoTables) {
		return err
	}
	for statement := range strings.SplitSeq(withTables(schemaSQL, prefix), ";\n") {
		if strings.TrimSpace(statement) == "" {
			continue
		}
		if _, err := c.ExecContext(ctx, statement); err != nil {
			what := advice(err)
			if lacksRight(err) {
				what = ": let a user that may create them run holdfast migrate, or the output of holdfast schema"
			}
			return fmt.Errorf("create the tables of the locks: %w%s", err, what)
		}
	}
	return checkVersion(ctx, c, prefix)
}

var errNoPool = fmt.Errorf("%w: mysql store: db is nil", store.ErrInvalid)

var errNoTables = errors.New("the tables of the locks do not exist in this database")

// checkVersion returns nil if the tables can be used, and otherwise an error that says what to do.
func checkVersion(ctx context.Context, c *conn, prefix string) error {
	var found, compatible int
	err := c.QueryRowContext(ctx, withTables("SELECT version, compatible FROM {{meta}} WHERE one = 1", prefix)).Scan(&found, &compatible)
	switch {
	case errors.Is(err, sql.ErrNoRows) || isNumber(err, errNoSuchTable):
		return fmt.Errorf("%w (%s…): run holdfast migrate or the output of holdfast schema, or open the store with create=true", errNoTables, prefix)
	case err != nil:
		return err
	case compatible > version:
		return fmt.Errorf("%w: the tables of the locks have version %d and need programs of version %d or later, and this one has version %d: update this program",
			store.ErrInvalid, found, compatible, version)
	}
	return nil
}

// checkPrefix returns the prefix to use. It is part of quoted identifiers.
func checkPrefix(prefix string) (string, error) {
	if prefix == "" {
		return DefaultPrefix, nil
	}
	plain := strings.Trim(prefix, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") == ""
	if !plain || len(prefix) > maxPrefix {
		return "", fmt.Errorf("%w: table prefix %.60q: want at most %d letters, digits and underscores", store.ErrInvalid, prefix, maxPrefix)
	}
	return prefix, nil
}

// identifier quotes the name of a database.
func identifier(name string) string { return "`" + strings.ReplaceAll(name, "`", "``") + "`" }

// withTables inserts the names of the tables into a statement.
func withTables(text, prefix string) string {
	return strings.NewReplacer(
		"{{names}}", "`"+prefix+"names`", "{{claims}}", "`"+prefix+"claims`", "{{meta}}", "`"+prefix+"meta`",
		"{{now}}", nowSQL,
	).Replace(text)
}

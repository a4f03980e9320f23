package main

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/holdfast-lock/holdfast/mysqlstore"
	"github.com/holdfast-lock/holdfast/pgstore"
	"github.com/holdfast-lock/holdfast/store"
)

// A database is a kind of store that needs tables.
type database struct {
	schema  func(url string) (string, error)            // returns the statements that create them
	migrate func(ctx context.Context, url string) error // creates them, or updates them
}

var databases = map[string]database{ // by URL scheme
	"postgres":   {postgresSchema, migratePostgres},
	"postgresql": {postgresSchema, migratePostgres},
	"mysql":      {mysqlSchema, migrateMySQL},
}

func newSchemaCommand() *cobra.Command {
	var st storeFlag
	cmd := &cobra.Command{
		Use:   "schema [flags]",
		Short: "Print the statements that create the tables of a database",
		Long: `Prints the statements that create the tables and functions of a store in a
database, for an administrator who runs them. The database is not touched. The
URL names the kind of database, and the schema if it is not "holdfast".

  holdfast schema --store postgres://db.example.com/app | psql app

An account that only locks needs these rights and no others. In PostgreSQL:

    GRANT USAGE ON SCHEMA holdfast TO app;
    GRANT EXECUTE ON FUNCTION holdfast.acquire_v1 TO app;
    GRANT EXECUTE ON FUNCTION holdfast.release_v1 TO app;
    GRANT EXECUTE ON FUNCTION holdfast.one_v1 TO app;
    GRANT EXECUTE ON FUNCTION holdfast.call_v1 TO app;
    GRANT EXECUTE ON FUNCTION holdfast.list_v1 TO app;
    GRANT EXECUTE ON FUNCTION holdfast.version_v1 TO app;

In MySQL and MariaDB, if the tables are in the database shop:

    GRANT SELECT, INSERT, UPDATE, DELETE ON shop.holdfast_names TO app;
    GRANT SELECT, INSERT, UPDATE, DELETE ON shop.holdfast_claims TO app;
    GRANT SELECT, UPDATE (low, swept) ON shop.holdfast_meta TO app;`,
		Args: arguments(0),
		RunE: st.withDatabase(func(db database) error {
			text, err := db.schema(st.url)
			if err != nil {
				return err
			}
			return output(text)
		}),
	}
	st.addTo(cmd)
	return cmd
}

func newMigrateCommand() *cobra.Command {
	var st storeFlag
	cmd := &cobra.Command{
		Use:   "migrate [flags]",
		Short: "Create the tables of a database, or bring them up to date",
		Long: `Creates the tables and functions of a store in a database, or brings them to
the version of this program. It does nothing if they are up to date. Locks can
be used meanwhile, also by programs of the version before. For the rights of an
account that only locks, see holdfast help schema.`,
		Args: arguments(0),
		RunE: st.withDatabase(func(db database) error {
			ctx, cancel := context.WithTimeout(context.Background(), openTimeout)
			defer cancel()
			return db.migrate(ctx, st.url)
		}),
	}
	st.addTo(cmd)
	return cmd
}

// withDatabase returns a RunE that calls do with the database of the URL.
func (s *storeFlag) withDatabase(do func(database) error) func(*cobra.Command, []string) error {
	return func(*cobra.Command, []string) error {
		if err := s.check(); err != nil {
			return err
		}
		scheme, _, _ := strings.Cut(s.url, ":")
		db, ok := databases[strings.ToLower(scheme)]
		if !ok {
			return usagef("this store needs no tables; name a database with --store or HOLDFAST_STORE, with one of the schemes %s",
				strings.Join(slices.Sorted(maps.Keys(databases)), ", "))
		}
		return fail(do(db), "")
	}
}

func postgresSchema(url string) (string, error) {
	u, err := store.ParseURL(url)
	if err != nil {
		return "", err
	}
	return pgstore.Schema(u.Query.Get("schema"))
}

func migratePostgres(ctx context.Context, url string) error {
	config, schema, err := pgstore.PoolConfig(url)
	if err != nil {
		return err
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return err
	}
	defer pool.Close()
	return pgstore.Migrate(ctx, pool, schema)
}

func mysqlSchema(url string) (string, error) {
	db, prefix, err := mysqlstore.Pool(url)
	if err != nil {
		return "", err
	}
	db.Close() // it has not connected
	return mysqlstore.Schema(prefix)
}

func migrateMySQL(ctx context.Context, url string) error {
	db, prefix, err := mysqlstore.Pool(url)
	if err != nil {
		return err
	}
	defer db.Close()
	return mysqlstore.Migrate(ctx, db, prefix)
}

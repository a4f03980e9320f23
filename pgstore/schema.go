package pgstore

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/holdfast-lock/holdfast/store"
)

const (
	// DefaultSchema is the default schema of the tables and functions.
	DefaultSchema = "holdfast"

	// version is the version of the schema that this package creates. It is part of the names
	// of the functions that it calls: see schema.sql for what a later version must keep.
	version = 1

	// maxIdentifier is how many bytes PostgreSQL keeps of an identifier.
	maxIdentifier = 63

	// migrationLock is the key of the advisory lock that Migrate takes.
	migrationLock = 1215260740 << 32
)

//go:embed schema.sql
var schemaSQL string

// Schema returns the statements that create the tables and functions in a schema, for
// administrators who do not use [Migrate] or Open. An empty name means [DefaultSchema].
func Schema(schema string) (string, error) {
	text, err := statements(schema)
	if err != nil {
		return "", err
	}
	return "BEGIN;\n\n" + text + "\nCOMMIT;\n", nil
}

func statements(schema string) (string, error) {
	quoted, err := quoteSchema(schema)
	if err != nil {
		return "", err
	}
	literal := "'" + strings.ReplaceAll(quoted, "'", "''") + "'"
	return strings.NewReplacer("{{schema}}", quoted, "{{literal}}", literal, "{{functions}}", strings.Join(entryPoints(quoted), ", ")).Replace(schemaSQL), nil
}

// entryPoints returns the functions that programs call. They run with the rights of their owner.
func entryPoints(quotedSchema string) (all []string) {
	for _, function := range []string{"acquire", "release", "one", "call", "list", "version"} {
		all = append(all, fmt.Sprintf("%s.%s_v%d", quotedSchema, function, version))
	}
	return all
}

// Grants returns the statements that let a role use the locks of a schema, and nothing else. It needs
// them again after a migration.
func Grants(schema, role string) (string, error) {
	quoted, err := quoteSchema(schema)
	if err != nil {
		return "", err
	}
	if role == "" {
		return "", fmt.Errorf("%w: empty role", store.ErrInvalid)
	}
	to := pgx.Identifier{role}.Sanitize()
	grants := fmt.Sprintf("GRANT USAGE ON SCHEMA %s TO %s;\n", quoted, to)
	for _, function := range entryPoints(quoted) {
		grants += fmt.Sprintf("GRANT EXECUTE ON FUNCTION %s TO %s;\n", function, to)
	}
	return grants, nil
}

// quoteSchema returns the identifier of a schema for use in statements.
func quoteSchema(schema string) (string, error) {
	if schema == "" {
		schema = DefaultSchema
	}
	if len(schema) > maxIdentifier || strings.ContainsRune(schema, 0) || strings.HasPrefix(schema, "pg_") || strings.Contains(schema, "$") {
		return "", fmt.Errorf("%w: schema %.70q: want a name of at most %d bytes that has no $ and does not start with pg_", store.ErrInvalid, schema, maxIdentifier)
	}
	return pgx.Identifier{schema}.Sanitize(), nil
}

// A Beginner is a *pgxpool.Pool or a *pgx.Conn.
type Beginner interface {
	Begin(ctx context.Context) (pgx.Tx, error)
}

// Migrate creates the tables and functions in a schema of the database, or updates them to the
// version of this package. It does nothing if they are up to date. Programs may use the locks
// meanwhile, and several may call Migrate at the same time. An empty name means [DefaultSchema].
// The role needs the right to create schemas, or to create objects in the schema if that exists,
// and then owns the objects.
func Migrate(ctx context.Context, db Beginner, schema string) error {
	text, err := statements(schema)
	if err != nil {
		return err
	}
	tx, err := db.Begin(ctx)
	if err != nil {
		return explain(err)
	}
	defer tx.Rollback(context.WithoutCancel(ctx))
	if _, err := tx.Exec(ctx, fmt.Sprintf("SELECT pg_advisory_xact_lock(%d)", int64(migrationLock)), pgx.QueryExecModeExec); err != nil {
		return explain(err)
	}
	if err := checkSchema(ctx, tx, schema); !errors.Is(err, errNoSchema) {
		return err
	}
	if _, err := tx.Exec(ctx, text, pgx.QueryExecModeSimpleProtocol); isCode(err, "42501") { // the advice of explain is for roles that lock
		return fmt.Errorf("create the schema of the locks: postgres store: %w: let a role that may create it run holdfast migrate, or the output of holdfast schema", oneLine{err})
	} else if err != nil {
		return fmt.Errorf("create the schema of the locks: %w", explain(err))
	}
	return explain(tx.Commit(ctx))
}

var errNoSchema = errors.New("the tables and functions of the locks do not exist in this database")

type querier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// checkSchema returns nil if the functions exist, and otherwise an error that says what to do.
func checkSchema(ctx context.Context, db querier, schema string) error {
	quoted, err := quoteSchema(schema)
	if err != nil {
		return err
	}
	const query = `SELECT current_setting('server_encoding'), current_setting('client_encoding'), current_setting('default_transaction_isolation'),
		coalesce((SELECT bool_or(proname = $2) FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace s ON s.oid = p.pronamespace
			WHERE s.nspname = $1), false),
		coalesce((SELECT string_agg(substr(proname, 7), ' ' ORDER BY length(proname), proname) FROM pg_catalog.pg_proc p
			JOIN pg_catalog.pg_namespace s ON s.oid = p.pronamespace WHERE s.nspname = $1 AND proname LIKE 'call\_v%'), '')`
	var encoding, clientEncoding, isolation, versions string
	var found bool
	err = db.QueryRow(ctx, query, pgx.QueryExecModeExec, cmp.Or(schema, DefaultSchema), fmt.Sprintf("call_v%d", version)).
		Scan(&encoding, &clientEncoding, &isolation, &found, &versions)
	switch {
	case err != nil:
		return explain(err)
	case encoding != "UTF8":
		return fmt.Errorf("%w: the encoding of the database is %s; use one with the encoding UTF8", store.ErrUnsupported, encoding)
	case clientEncoding != "UTF8": // the server would convert names, and clients would not exclude each other
		return fmt.Errorf("%w: client_encoding is %s for these connections; set it to UTF8, for the pool, the role or the database", store.ErrUnsupported, clientEncoding)
	case isolation != "read committed":
		return fmt.Errorf("%w: default_transaction_isolation is %s for these connections; %s", store.ErrUnsupported, isolation, advice[badIsolation])
	case found:
		return nil
	case versions == "":
		return fmt.Errorf("schema %s: %w; run holdfast migrate, or the output of holdfast schema", quoted, errNoSchema)
	}
	return fmt.Errorf("%w: schema %s serves programs of version %s, and this one has version %d; run the holdfast migrate of the newest version, or update this program",
		store.ErrInvalid, quoted, versions, version)
}

// isCode reports whether an error of the server has one of these codes.
func isCode(err error, codes ...string) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && slices.Contains(codes, pg.Code)
}

package fleet

import (
	"cmp"
	"context"
	"database/sql"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"

	"github.com/holdfast-lock/holdfast/fence/sqlfence"
	_ "github.com/holdfast-lock/holdfast/pgstore"     // for postgres: URLs
	_ "github.com/holdfast-lock/holdfast/redisstore"  // for redis: URLs
	_ "github.com/holdfast-lock/holdfast/sqlitestore" // for sqlite: URLs, and the driver of the databases
)

// A Demo plays the parts of a demonstration, and returns one line about their results.
type Demo func(s *Stage) (proof string, err error)

// A Stage is what a demonstration needs.
type Stage struct {
	Ctx    context.Context
	Out    io.Writer
	Store  string // URL of the locks
	Folder string // temporary
	parts  int
}

// Main is the main function of an example: it runs an instance if a Fleet has started this
// process, and otherwise the demonstration, whose flags are defined.
func Main(name string, instance func(ctx context.Context, args []string) error, demo Demo) {
	var err error
	if args, ok := IsInstance(); ok {
		err = instance(context.Background(), args)
	} else {
		store := flag.String("store", "", "`URL` of the locks (default: HOLDFAST_STORE, or else a temporary SQLite file)")
		flag.Parse()
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt) // so that it cleans up
		defer stop()
		var proof string
		if proof, err = Play(ctx, os.Stdout, cmp.Or(*store, os.Getenv("HOLDFAST_STORE")), demo); err == nil {
			fmt.Printf("\n%s: %s\n", name, proof)
		}
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	}
}

// Play plays a demonstration with the locks on a store, or in a temporary SQLite file if the URL is
// empty.
func Play(ctx context.Context, out io.Writer, store string, demo Demo) (proof string, err error) {
	folder, err := os.MkdirTemp("", "holdfast-example-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(folder)
	return demo(&Stage{Ctx: ctx, Out: out, Store: cmp.Or(store, "sqlite:"+filepath.Join(folder, "locks.db")), Folder: folder})
}

// Part begins a part of the demonstration, with its own instances. The caller closes the fleet.
func (s *Stage) Part(title string) *Fleet {
	s.parts++
	fmt.Fprintf(s.Out, "\n%d. %s\n", s.parts, title)
	return newFleet(s.Ctx, s.Out, "HOLDFAST_STORE="+s.Store)
}

// Database creates a database for the current part, with the table of the fence, and returns its
// path.
func (s *Stage) Database(schema string, args ...any) (db *sql.DB, path string, err error) {
	path = filepath.Join(s.Folder, fmt.Sprintf("data%d.db", s.parts))
	if db, err = OpenDatabase(path); err != nil {
		return nil, "", err
	}
	if _, err = db.ExecContext(s.Ctx, schema, args...); err == nil {
		err = sqlfence.SQLite.CreateTable(s.Ctx, db)
	}
	if err != nil {
		db.Close()
	}
	return db, path, err
}

// OpenDatabase opens the database of an example, which all instances share. It is a separate file,
// because the file of the locks belongs to Holdfast.
func OpenDatabase(path string) (*sql.DB, error) {
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(30000)&_pragma=journal_mode(wal)&_pragma=synchronous(normal)&_txlock=immediate")
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(8)
	return db, nil
}

package servers

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// PostgresOptions change how PostgreSQL is started. By default every user may log in without a
// password, and commits are synced to disk as in production.
type PostgresOptions struct {
	Password bool          // every user except postgres needs a password
	TLS      *Certificates // the server also accepts TLS
	NoSync   bool          // no fsync: a crash of the machine would lose data, but SIGKILL does not
	Config   []string      // further settings, such as "max_connections=20"
	Env      []string      // such as "LD_PRELOAD=/path/to/shim.so"
}

// A Postgres is one PostgreSQL server.
type Postgres struct {
	*Process
	opts PostgresOptions
}

// postgresPaths returns the folders of the server's programs, which Debian does not add to PATH.
func postgresPaths() []string {
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin")
	return found
}

// StartPostgres starts a server. Its superuser and its first database are called postgres.
func StartPostgres(t testing.TB, opts PostgresOptions) *Postgres {
	t.Helper()
	return startPostgres(t, opts, func(dir string) {
		runAsOwner(t, "initdb", "--pgdata="+dir, "--username=postgres", "--auth=trust",
			"--encoding=UTF8", "--locale=C", "--no-sync")
		method := "trust"
		if opts.Password {
			method = "scram-sha-256"
		}
		access := "host all,replication postgres 127.0.0.1/32 trust\nhost all all 127.0.0.1/32 " + method + "\n"
		must(t, os.WriteFile(filepath.Join(dir, "pg_hba.conf"), []byte(access), 0o600))
		if certs := opts.TLS; certs != nil {
			for name, from := range map[string]string{"server.crt": certs.CertFile, "server.key": certs.KeyFile} {
				content, err := os.ReadFile(from)
				must(t, err)
				must(t, os.WriteFile(filepath.Join(dir, name), content, 0o600))
				giveToServer(t, filepath.Join(dir, name))
			}
		}
	})
}

// StartReplica starts a server that follows p by streaming replication, and waits until it is
// ready. Its name for synchronous_standby_names is "replica".
func (p *Postgres) StartReplica(t testing.TB) *Postgres {
	t.Helper()
	return startPostgres(t, p.opts, func(dir string) {
		runAsOwner(t, "pg_basebackup", "--pgdata="+dir, "--wal-method=stream", "--checkpoint=fast", "--no-sync",
			"--write-recovery-conf", fmt.Sprintf("--dbname=host=127.0.0.1 port=%d user=postgres application_name=replica", p.Port))
	})
}

// Promote makes a replica the primary and waits until it accepts writes.
func (p *Postgres) Promote() {
	p.t.Helper()
	p.Must("SELECT pg_promote()")
}

func startPostgres(t testing.TB, opts PostgresOptions, initialize func(dir string)) *Postgres {
	t.Helper()
	p := &Postgres{newProcess(t), opts}
	p.shareDir()
	settings := append([]string{
		fmt.Sprintf("port=%d", p.Port),
		"listen_addresses=127.0.0.1",
		"unix_socket_directories=",
		"shared_buffers=32MB",
	}, opts.Config...)
	if opts.NoSync {
		settings = append(settings, "fsync=off")
	}
	if certs := opts.TLS; certs != nil {
		settings = append(settings, "ssl=on", "ssl_cert_file=server.crt", "ssl_key_file=server.key")
	}
	args := []string{"-D", p.DataDir()}
	for _, setting := range settings {
		args = append(args, "-c", setting)
	}
	p.prepare(program{
		binary: "postgres",
		paths:  postgresPaths(),
		args:   args,
		env:    append([]string{"LC_ALL=C"}, opts.Env...),
		init: func(data string) {
			giveToServer(t, data)
			initialize(data)
		},
		ready:   func() error { _, err := p.Query("SELECT 1"); return err },
		attr:    serverAttributes(t),
		signals: signalPostgres,
	})
	startAll(p)
	return p
}

// shareDir lets the server's user use the folder of a server.
func (p *Process) shareDir() {
	p.t.Helper()
	// The parent contains all folders of the test. By default only the current user can enter it.
	if parent := filepath.Dir(p.dir); parent != filepath.Clean(os.TempDir()) {
		must(p.t, os.Chmod(parent, 0o711))
	}
	giveToServer(p.t, p.dir)
}

// runAsOwner runs a program of PostgreSQL as the owner of its data.
func runAsOwner(t testing.TB, name string, args ...string) {
	t.Helper()
	runTool(t, program{
		binary: name, args: args, env: []string{"LC_ALL=C"}, paths: postgresPaths(), attr: serverAttributes(t),
	})
}

// URL returns the URL of the database postgres for its superuser.
func (p *Postgres) URL() string { return PostgresURL(p.Addr()) }

// PostgresURL returns the URL of the database postgres at an address, for its superuser.
func PostgresURL(addr string) string {
	return "postgres://postgres@" + addr + "/postgres?sslmode=disable"
}

// Query runs statements on a new connection and closes it. It returns the rows of the last one.
func (p *Postgres) Query(sql string) ([][]string, error) { return queryPostgres(p.Addr(), sql) }

// Must is like Query, but fails the test on an error.
func (p *Postgres) Must(sql string) [][]string {
	p.t.Helper()
	rows, err := p.Query(sql)
	if err != nil {
		p.t.Fatalf("%s on %s: %v", sql, p.Addr(), err)
	}
	return rows
}

// Value returns the only value of a query.
func (p *Postgres) Value(sql string) string {
	p.t.Helper()
	rows := p.Must(sql)
	if len(rows) != 1 || len(rows[0]) != 1 {
		p.t.Fatalf("%s: %q, want one value", sql, rows)
	}
	return rows[0][0]
}

// Terminate ends the server processes of clients that match a condition on pg_stat_activity, and counts them.
func (p *Postgres) Terminate(condition string) int {
	p.t.Helper()
	return len(p.Must("SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity" +
		" WHERE backend_type = 'client backend' AND pid <> pg_backend_pid() AND " + condition))
}

// A PgBouncer is a connection pooler in front of a server.
type PgBouncer struct{ *Process }

// StartPgBouncer starts a pooler of transactions in front of p and waits until it answers.
func StartPgBouncer(t testing.TB, p *Postgres) *PgBouncer {
	t.Helper()
	b := &PgBouncer{newProcess(t)}
	b.shareDir()
	path := b.write("pgbouncer.ini", []string{
		"[databases]",
		fmt.Sprintf("* = host=127.0.0.1 port=%d user=postgres", p.Port), // auth_type any needs a user
		"[pgbouncer]",
		"listen_addr = 127.0.0.1",
		fmt.Sprintf("listen_port = %d", b.Port),
		"unix_socket_dir =",
		"auth_type = any",
		"pool_mode = transaction",
		"default_pool_size = 5",
		"max_client_conn = 500",
	})
	giveToServer(t, path)
	b.prepare(program{
		binary: "pgbouncer",
		paths:  []string{"/usr/sbin"},
		args:   []string{path},
		init:   func(data string) { giveToServer(t, data) },
		ready:  func() error { _, err := queryPostgres(b.Addr(), "SELECT 1"); return err },
		attr:   serverAttributes(t),
	})
	startAll(b)
	return b
}

const postgresTimeout = 10 * time.Second // bounds one exchange of this package with a server

// queryPostgres logs in as the superuser, who needs no password, and runs statements with the simple query
// protocol. It uses no client library, because this module has no requirements.
func queryPostgres(addr, sql string) (rows [][]string, err error) {
	conn, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(postgresTimeout))
	const startup = "\x00\x03\x00\x00user\x00postgres\x00database\x00postgres\x00\x00" // of version 3.0
	if _, err := exchange(conn, "", startup); err != nil {
		return nil, err
	}
	rows, err = exchange(conn, "Q", sql+"\x00")
	writeMessage(conn, "X", "")
	return rows, err
}

// writeMessage sends a message. Only the first one has no kind.
func writeMessage(w io.Writer, kind, body string) error {
	message := binary.BigEndian.AppendUint32([]byte(kind), uint32(len(body)+4))
	_, err := w.Write(append(message, body...))
	return err
}

// exchange sends a message, and reads the reply up to the point where the server waits for the next statement.
func exchange(conn net.Conn, kind, message string) (rows [][]string, err error) {
	if err := writeMessage(conn, kind, message); err != nil {
		return nil, err
	}
	for {
		var head [5]byte
		if _, err := io.ReadFull(conn, head[:]); err != nil {
			return nil, err
		}
		body := make([]byte, binary.BigEndian.Uint32(head[1:])-4)
		if _, err := io.ReadFull(conn, body); err != nil {
			return nil, err
		}
		switch head[0] {
		case 'R': // authentication
			if method := binary.BigEndian.Uint32(body); method != 0 {
				return nil, fmt.Errorf("the server wants authentication %d", method)
			}
		case 'E':
			err = errors.New(errorText(body))
			if bytes.HasPrefix(body, []byte("SFATAL\x00")) {
				return nil, err // nothing follows
			}
		case 'T': // another result begins
			rows = nil
		case 'D':
			rows = append(rows, rowValues(body))
		case 'Z':
			return rows, err
		}
	}
}

// rowValues returns the columns of a row; NULL is empty.
func rowValues(body []byte) []string {
	values := make([]string, binary.BigEndian.Uint16(body))
	body = body[2:]
	for i := range values {
		size := int32(binary.BigEndian.Uint32(body))
		body = body[4:]
		if size > 0 {
			values[i] = string(body[:size])
			body = body[size:]
		}
	}
	return values
}

func errorText(body []byte) (text string) {
	for field := range bytes.SplitSeq(body, []byte{0}) {
		if len(field) > 0 && (field[0] == 'C' || field[0] == 'M') {
			text += " " + string(field[1:])
		}
	}
	return "postgres:" + text
}

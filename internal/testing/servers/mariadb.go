package servers

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"
)

// The user of tests, who has all rights, and the database of tests.
const (
	MariaDBUser     = "test"
	MariaDBPassword = "test"
	MariaDBDatabase = "locks"
)

// MariaDBOptions change how MariaDB is started.
type MariaDBOptions struct {
	Config  []string      // further options, such as "--log-bin"
	TLS     *Certificates // allows encrypted connections
	Env     []string      // such as "LD_PRELOAD=/path/to/shim.so"
	Durable bool          // flush every commit to the disk, which is the default of MariaDB
}

// A MariaDB is one mariadbd with a data folder of its own.
type MariaDB struct{ *Process }

// StartMariaDB starts a MariaDB server and waits until it is ready. Data survives a Restart.
func StartMariaDB(t testing.TB, opts MariaDBOptions) *MariaDB {
	t.Helper()
	m := &MariaDB{newProcess(t)}
	sql := m.write("init.sql", []string{
		fmt.Sprintf("CREATE DATABASE IF NOT EXISTS %s;", MariaDBDatabase),
		fmt.Sprintf("CREATE USER IF NOT EXISTS '%s'@'%%' IDENTIFIED BY '%s';", MariaDBUser, MariaDBPassword),
		fmt.Sprintf("GRANT ALL ON *.* TO '%s'@'%%' WITH GRANT OPTION;", MariaDBUser),
	})
	args := []string{
		"--no-defaults", "--datadir=" + m.DataDir(),
		"--bind-address=127.0.0.1", "--port=" + strconv.Itoa(m.Port),
		"--socket=sock",           // in the data folder; a longer path may be too long for a socket
		"--tmpdir=" + m.DataDir(), // a separate folder, because temporary tables of several servers have the same names
		"--pid-file=" + filepath.Join(m.dir, "pid"), "--skip-name-resolve", "--init-file=" + sql,
		"--innodb-buffer-pool-size=32M", "--innodb-log-file-size=16M", "--performance-schema=OFF",
	}
	if os.Getuid() == 0 {
		args = append(args, "--user=root") // otherwise it refuses to run
	}
	if !opts.Durable {
		args = append(args, "--innodb-flush-log-at-trx-commit=2") // safe against SIGKILL, because the kernel keeps what was written
	}
	if certs := opts.TLS; certs != nil {
		args = append(args, "--ssl-ca="+certs.CAFile, "--ssl-cert="+certs.CertFile, "--ssl-key="+certs.KeyFile)
	}
	m.prepare(program{
		binary: "mariadbd",
		args:   append(args, opts.Config...),
		env:    opts.Env,
		init:   func(data string) { installMariaDB(t, data) },
		ready:  m.greets,
		paths:  []string{"/usr/sbin"},
	})
	startAll(m)
	return m
}

// URL returns the URL of the store in the database of tests, at an address of the server or of a proxy.
func (m *MariaDB) URL(addr string) string {
	return fmt.Sprintf("mysql://%s:%s@%s/%s", MariaDBUser, MariaDBPassword, addr, MariaDBDatabase)
}

// DSN returns the data source name of the database of tests, for the client library.
func (m *MariaDB) DSN() string {
	return fmt.Sprintf("%s:%s@tcp(%s)/%s", MariaDBUser, MariaDBPassword, m.Addr(), MariaDBDatabase)
}

// greets returns nil if the server accepts connections, as it does after its statements.
func (m *MariaDB) greets() error {
	conn, err := net.DialTimeout("tcp", m.Addr(), time.Second)
	if err != nil {
		return err
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(time.Second))
	packet := make([]byte, 5)
	if _, err := io.ReadFull(conn, packet); err != nil {
		return err
	}
	const protocol = 10
	if packet[4] != protocol {
		return errors.New("the server does not accept connections")
	}
	return nil
}

// installMariaDB fills an empty data folder. As that takes seconds, it copies a folder next to the built tools.
func installMariaDB(t testing.TB, data string) {
	t.Helper()
	for _, bin := range builtTools() {
		if _, err := os.Stat(bin); err != nil {
			continue
		}
		template := filepath.Join(bin, "mariadb-data")
		if _, err := os.Stat(template); err != nil {
			fresh, err := os.MkdirTemp(bin, "mariadb-data-")
			must(t, err)
			defer os.RemoveAll(fresh)
			runInstall(t, fresh)
			// If another test was faster, its folder can be used as well.
			if err := os.Rename(fresh, template); err != nil && !errors.Is(err, fs.ErrExist) && !errors.Is(err, syscall.ENOTEMPTY) {
				t.Fatal(err)
			}
		}
		must(t, os.CopyFS(data, os.DirFS(template)))
		return
	}
	runInstall(t, data)
}

func runInstall(t testing.TB, data string) {
	t.Helper()
	args := []string{
		"--no-defaults", "--datadir=" + data, "--auth-root-authentication-method=normal", "--skip-test-db",
		"--innodb-log-file-size=16M", "--aria-log-file-size=8M",
	}
	if os.Getuid() == 0 {
		args = append(args, "--user=root")
	}
	runTool(t, program{binary: "mariadb-install-db", args: args})
}

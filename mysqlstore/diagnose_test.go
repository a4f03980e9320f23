package mysqlstore

import (
	"database/sql"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/internal/testing/diagnosistest"
	"github.com/holdfast-lock/holdfast/internal/testing/ports"
	"github.com/holdfast-lock/holdfast/internal/testing/servers"
	"github.com/holdfast-lock/holdfast/store"
)

// A user with the documented rights checks a server that is set up well, and then servers with
// problems.
func TestDiagnoseFindsWhatIsSetUpWrongly(t *testing.T) {
	server := servers.StartMariaDB(t, servers.MariaDBOptions{Durable: true, Config: []string{"--log-bin", "--sync-binlog=1", "--server-id=1"}})
	admin := poolAt(t, server, nil)
	must(t, Migrate(t.Context(), admin, ""))
	grants, err := Grants(servers.MariaDBDatabase, "", "'app'@'%'")
	must(t, err)
	mustExec(t, admin, "CREATE USER 'app'@'%' IDENTIFIED BY 'SECRET'", grants)
	app := "mysql://app:SECRET@" + server.Addr() + "/" + servers.MariaDBDatabase
	var seen diagnosistest.Record
	findings := seen.Look(t, app, 30*time.Second)
	if strings.Contains(fmt.Sprint(findings), "SECRET") {
		t.Error("a password was printed")
	}
	if f := diagnosistest.Find(t, findings, "store.identity"); f.Level != store.LevelOK || !strings.Contains(f.Found, "database locks") {
		t.Errorf("%+v", f)
	}

	for _, test := range []struct{ wrong, right, want string }{
		{"SET GLOBAL read_only = 1", "SET GLOBAL read_only = 0", "mysql.read-only failure"},
		{"SET GLOBAL innodb_flush_log_at_trx_commit = 2", "SET GLOBAL innodb_flush_log_at_trx_commit = 1", "mysql.flush failure"},
		{"SET GLOBAL sync_binlog = 0", "SET GLOBAL sync_binlog = 1", "mysql.sync-binlog failure"},
		{"ALTER TABLE holdfast_claims ENGINE = Aria", "ALTER TABLE holdfast_claims ENGINE = InnoDB", "mysql.engine failure"},
	} {
		mustExec(t, admin, test.wrong)
		seen.Look(t, app, 30*time.Second, test.want)
		mustExec(t, admin, test.right)
	}
	seen.Look(t, app, 30*time.Second)

	t.Run("timeout", func(t *testing.T) {
		s := openStore(t, app)
		execIn(t, s.gives, "SET SESSION wait_timeout = 5") // as a proxy might do
		diagnosistest.Want(t, seen.Note(t, s.Diagnose(t.Context(), time.Minute)), "mysql.wait-timeout failure")
	})
	t.Run("proxy that shares sessions", func(t *testing.T) {
		mustExec(t, admin, "CREATE USER 'open'@'%' IDENTIFIED BY ''", "GRANT ALL ON locks.* TO 'open'@'%'")
		seen.Look(t, "mysql://open@"+multiplex(t, server.Addr())+"/"+servers.MariaDBDatabase, 30*time.Second, "mysql.session failure")
	})
	t.Run("replicas", func(t *testing.T) {
		replica := servers.StartMariaDB(t, servers.MariaDBOptions{Durable: true, Config: []string{"--server-id=2"}})
		copying := poolAt(t, replica, nil)
		start := func() {
			mustExec(t, copying, "START SLAVE")
			eventually(t, "the replica is connected", func() bool {
				var n int
				scan(t, admin, "SHOW GLOBAL STATUS LIKE 'Slaves_connected'", new(string), &n)
				return n == 1
			})
		}
		mustExec(t, copying, fmt.Sprintf("CHANGE MASTER TO MASTER_HOST = '127.0.0.1', MASTER_PORT = %d, MASTER_USER = '%s', MASTER_PASSWORD = '%s', MASTER_USE_GTID = slave_pos",
			server.Port, servers.MariaDBUser, servers.MariaDBPassword))
		start()
		seen.Look(t, app, 30*time.Second, "mysql.replication warning")
		var position string
		scan(t, admin, "SELECT @@gtid_binlog_pos", &position)
		mustExec(t, copying, fmt.Sprintf("DO MASTER_GTID_WAIT('%s', %v)", position, patience.Seconds()))
		seen.Look(t, replica.URL(replica.Addr()), 30*time.Second, "mysql.replica warning")

		mustExec(t, copying, "STOP SLAVE", "SET GLOBAL rpl_semi_sync_slave_enabled = 1")
		mustExec(t, admin, "SET GLOBAL rpl_semi_sync_master_enabled = 1")
		start()
		seen.Look(t, app, 30*time.Second, "mysql.replication warning") // it waits after the commit
		mustExec(t, admin, "SET GLOBAL rpl_semi_sync_master_wait_point = AFTER_SYNC")
		seen.Look(t, app, 30*time.Second)
		mustExec(t, admin, "SET GLOBAL rpl_semi_sync_master_enabled = 0")
		mustExec(t, copying, "STOP SLAVE")
	})
	t.Run("Galera", func(t *testing.T) {
		member := servers.StartMariaDB(t, servers.MariaDBOptions{Durable: true, Config: []string{
			"--wsrep-on=ON", "--wsrep-provider=/usr/lib/galera/libgalera_smm.so", "--wsrep-cluster-address=gcomm://", "--binlog-format=ROW",
			"--wsrep-node-address=127.0.0.1",
			fmt.Sprintf("--wsrep-provider-options=gmcast.listen_addr=tcp://%s;ist.recv_addr=%s", ports.Addr(ports.Reserve(t)), ports.Addr(ports.Reserve(t))),
		}})
		servers.Poll(t, patience, func() error { // the server accepts statements after it has formed a cluster
			db, err := sql.Open("mysql", member.DSN())
			if err == nil {
				defer db.Close()
				_, err = db.Exec("CREATE TABLE IF NOT EXISTS ready (n INT)")
			}
			return err
		})
		seen.Look(t, member.URL(member.Addr()), 30*time.Second, "mysql.several-primaries warning")
	})
	seen.Complete(t, "mysql.")
}

// multiplex starts a proxy that sends the commands of a client to two sessions in turn.
func multiplex(t testing.TB, server string) (addr string) {
	listener, err := net.Listen("tcp", ports.Addr(ports.Reserve(t)))
	must(t, err)
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			go share(client, server)
		}
	}()
	return listener.Addr().String()
}

// share serves one client. Its user has no password, so both sessions accept the same login.
func share(client net.Conn, server string) {
	defer client.Close()
	var sessions [2]net.Conn
	var greetings [2][]byte
	for i := range sessions {
		conn, err := net.Dial("tcp", server)
		if err != nil {
			return
		}
		defer conn.Close()
		sessions[i], greetings[i] = conn, packet(conn)
	}
	client.Write(greetings[0])
	login := packet(client)
	for i, session := range sessions {
		session.Write(login)
		if reply := packet(session); i == 0 {
			client.Write(reply)
		}
	}
	for _, session := range sessions {
		go io.Copy(client, session)
	}
	for n := 0; ; n++ {
		command := packet(client)
		if command == nil {
			return
		}
		sessions[n%2].Write(command)
	}
}

// packet reads one packet of the protocol. It returns nil if the connection has ended.
func packet(conn net.Conn) []byte {
	head := make([]byte, 4)
	if _, err := io.ReadFull(conn, head); err != nil {
		return nil
	}
	body := make([]byte, int(head[0])|int(head[1])<<8|int(head[2])<<16)
	if _, err := io.ReadFull(conn, body); err != nil {
		return nil
	}
	return append(head, body...)
}

func TestDiagnoseAfterCloseIsUnknown(t *testing.T) {
	s := newIn(t, connectTo(t, nil))
	s.Close()
	diagnosistest.Want(t, s.Diagnose(t.Context(), time.Second), "mysql.read-only unknown")
}

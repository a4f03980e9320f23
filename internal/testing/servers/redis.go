package servers

import (
	"bufio"
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// RedisOptions change a server without a password. Data survives a Restart, but is not synced to disk.
type RedisOptions struct {
	Password string        // of the default user
	ACL      []string      // lines of the ACL file, such as "user app on >secret ~* +@all"
	TLS      *Certificates // no plaintext port if set
	InMemory bool          // no append-only file, so a Restart loses the data
	Config   []string      // further lines of redis.conf, which take precedence over all others
	Env      []string      // such as "LD_PRELOAD=/path/to/shim.so"
}

// The user with which this package logs in if there is an ACL file.
const (
	adminUser     = "servers"
	adminPassword = "servers"
)

// login returns the user and password with which this package and the other nodes log in.
func (o *RedisOptions) login() (user, password string) {
	if len(o.ACL) > 0 {
		return adminUser, adminPassword
	}
	return "default", o.Password
}

// A Redis is one redis-server, or one Sentinel.
type Redis struct {
	*Process
	opts RedisOptions
	bus  int // port of the cluster bus
}

// StartRedis starts a Redis server and waits until it is ready.
func StartRedis(t testing.TB, opts RedisOptions) *Redis {
	t.Helper()
	return StartRedisNodes(t, 1, opts)[0]
}

// StartRedisNodes starts independent Redis servers.
func StartRedisNodes(t testing.TB, n int, opts RedisOptions) []*Redis {
	t.Helper()
	nodes := make([]*Redis, n)
	for i := range nodes {
		nodes[i] = newRedis(t, opts)
	}
	startAll(nodes...)
	return nodes
}

// newRedis prepares a server. Its lines of configuration come before those of the options.
func newRedis(t testing.TB, opts RedisOptions, lines ...string) *Redis {
	t.Helper()
	r := &Redis{Process: newProcess(t), opts: opts}
	config := append(r.commonConfig(),
		"dir "+strconv.Quote(r.DataDir()),
		`save ""`,
		"appendonly "+yesNo[!opts.InMemory],
		"appendfsync no", // safe against SIGKILL, because the kernel keeps what was written
		"repl-diskless-sync-delay 0",
		"repl-ping-replica-period 1",
		"enable-debug-command local",
	)
	if len(opts.ACL) > 0 {
		users := []string{fmt.Sprintf("user %s on >%s ~* &* +@all", adminUser, adminPassword)}
		if opts.Password != "" {
			users = append(users, fmt.Sprintf("user default on >%s ~* &* +@all", opts.Password))
		}
		path := r.write("users.acl", append(users, opts.ACL...))
		config = append(config, "aclfile "+strconv.Quote(path))
	} else if opts.Password != "" {
		config = append(config, "requirepass "+strconv.Quote(opts.Password))
	}
	if user, password := opts.login(); password != "" {
		config = append(config, "masterauth "+strconv.Quote(password), "masteruser "+user)
	}
	path := r.write("redis.conf", slices.Concat(config, lines, opts.Config))
	r.prepare(program{
		binary: "redis-server",
		args:   []string{path},
		env:    opts.Env,
		ready:  func() error { _, err := r.Do("PING"); return err },
	})
	return r
}

// commonConfig returns the configuration that servers and Sentinels share.
func (r *Redis) commonConfig() []string {
	config := []string{"bind 127.0.0.1", "daemonize no"}
	certs := r.opts.TLS
	if certs == nil {
		return append(config, fmt.Sprintf("port %d", r.Port))
	}
	return append(config,
		"port 0",
		fmt.Sprintf("tls-port %d", r.Port),
		"tls-ca-cert-file "+strconv.Quote(certs.CAFile),
		"tls-cert-file "+strconv.Quote(certs.CertFile),
		"tls-key-file "+strconv.Quote(certs.KeyFile),
		"tls-auth-clients optional",
		"tls-replication yes",
	)
}

// Dial opens a connection with all rights.
func (r *Redis) Dial() (*RESPConn, error) {
	user, password := r.opts.login()
	certs := cmp.Or(r.opts.TLS, new(Certificates))
	return DialRESP(r.Addr(), certs.Config, user, password)
}

// Do runs one command on a new connection, so that a test need not tell it from those of the library.
// Commands that depend on a connection, such as MULTI, SUBSCRIBE or WAIT, need Dial.
func (r *Redis) Do(args ...string) (any, error) {
	c, err := r.Dial()
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return c.Do(args...)
}

// Must is like Do, but fails the test on an error.
func (r *Redis) Must(args ...string) any {
	r.t.Helper()
	value, err := r.Do(args...)
	if err != nil {
		r.t.Fatalf("%s on %s: %v", strings.Join(args, " "), r.Addr(), err)
	}
	return value
}

// Info returns the fields of one section of INFO.
func (r *Redis) Info(section string) (map[string]string, error) {
	return r.fields("INFO", section)
}

// fields parses a reply that consists of lines such as "name:value".
func (r *Redis) fields(args ...string) (map[string]string, error) {
	value, err := r.Do(args...)
	text, _ := value.(string)
	return parseFields(text, ":"), err
}

// parseFields parses lines that have a name, a separator and a value.
func parseFields(text, separator string) map[string]string {
	fields := make(map[string]string)
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), separator); ok {
			fields[name] = value
		}
	}
	return fields
}

// pollEach is like Poll, with a check that must succeed for all running servers in one attempt.
func pollEach(t testing.TB, nodes []*Redis, check func(*Redis) error) {
	t.Helper()
	Poll(t, settleLimit, func() error {
		for _, r := range awake(nodes) {
			if err := check(r); err != nil {
				return err
			}
		}
		return nil
	})
}

var yesNo = map[bool]string{true: "yes", false: "no"}

const answerLimit = 5 * time.Second // bounds the wait for one reply, as a server may be stopped

// A RESPError is an error reply of the server, such as "ERR unknown command".
type RESPError string

func (e RESPError) Error() string { return string(e) }

// A RESPConn inspects a Redis server without the client library under test. It is for one goroutine.
type RESPConn struct {
	// Timeout bounds each Do and each Receive; the default is five seconds.
	Timeout time.Duration

	conn net.Conn
	in   *bufio.Reader
}

// DialRESP connects with TLS if config is set, and logs in with a password, as the default user if user is empty.
func DialRESP(addr string, config *tls.Config, user, password string) (*RESPConn, error) {
	dialer := &net.Dialer{Timeout: answerLimit}
	dial := dialer.Dial
	if config != nil {
		dial = (&tls.Dialer{NetDialer: dialer, Config: config}).Dial
	}
	conn, err := dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	c := &RESPConn{Timeout: answerLimit, conn: conn, in: bufio.NewReader(conn)}
	if password != "" {
		if _, err := c.Do("AUTH", cmp.Or(user, "default"), password); err != nil {
			c.Close()
			return nil, err
		}
	}
	return c, nil
}

// Close ends the connection.
func (c *RESPConn) Close() error { return c.conn.Close() }

// Do sends one command and returns its reply: a string, an int64, a []any of these, or nil.
// An error of the server is a [RESPError]; inside an array it is an element.
func (c *RESPConn) Do(args ...string) (any, error) {
	if err := c.Send(args...); err != nil {
		return nil, err
	}
	return c.Receive()
}

// Send sends one command and does not wait for the reply.
func (c *RESPConn) Send(args ...string) error {
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(args))
	for _, arg := range args {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(arg), arg)
	}
	c.conn.SetWriteDeadline(time.Now().Add(c.Timeout))
	_, err := io.WriteString(c.conn, b.String())
	return err
}

// Receive waits for the next reply, or for a published message after SUBSCRIBE.
func (c *RESPConn) Receive() (any, error) {
	c.conn.SetReadDeadline(time.Now().Add(c.Timeout))
	value, err := c.read()
	if err != nil {
		return nil, err
	}
	if err, ok := value.(RESPError); ok {
		return nil, err
	}
	return value, nil
}

func (c *RESPConn) read() (any, error) {
	line, err := c.in.ReadString('\n')
	if err != nil {
		return nil, err
	}
	line = strings.TrimSuffix(line, "\r\n")
	if line == "" {
		return nil, errors.New("RESP: empty line")
	}
	kind, rest := line[0], line[1:]
	switch kind {
	case '+':
		return rest, nil
	case '-':
		return RESPError(rest), nil
	case ':':
		return strconv.ParseInt(rest, 10, 64)
	case '$', '*':
		n, err := strconv.Atoi(rest)
		if err != nil || n < 0 {
			return nil, err
		}
		if kind == '$' {
			data := make([]byte, n+len("\r\n"))
			_, err = io.ReadFull(c.in, data)
			return string(data[:n]), err
		}
		values := make([]any, n)
		for i := range values {
			if values[i], err = c.read(); err != nil {
				return nil, err
			}
		}
		return values, nil
	}
	return nil, fmt.Errorf("RESP: %q is not the start of a value", line)
}

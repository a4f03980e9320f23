package servers

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"
)

// answerLimit bounds the wait for one reply, as a server may be stopped.
const answerLimit = 5 * time.Second

// A RESPError is an error reply of the server, such as "ERR unknown command".
type RESPError string

func (e RESPError) Error() string { return string(e) }

// A RESPConn is a plain connection to a Redis server, to inspect it independently of the client
// library under test. It is not safe for concurrent use.
type RESPConn struct {
	// Timeout bounds each Do and each Receive; the default is five seconds.
	Timeout time.Duration

	conn net.Conn
	in   *bufio.Reader
}

// DialRESP connects to a Redis server. Config is nil for plain TCP. With a password it
// authenticates, as the default user if user is empty.
func DialRESP(addr string, config *tls.Config, user, password string) (*RESPConn, error) {
	dialer := &net.Dialer{Timeout: answerLimit}
	var conn net.Conn
	var err error
	if config == nil {
		conn, err = dialer.Dial("tcp", addr)
	} else {
		conn, err = tls.DialWithDialer(dialer, "tcp", addr, config)
	}
	if err != nil {
		return nil, err
	}
	c := &RESPConn{Timeout: answerLimit, conn: conn, in: bufio.NewReader(conn)}
	if password != "" {
		auth := []string{"AUTH", password}
		if user != "" {
			auth = []string{"AUTH", user, password}
		}
		if _, err := c.Do(auth...); err != nil {
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

// read parses one RESP2 value.
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
	case '$':
		n, err := strconv.Atoi(rest)
		if err != nil || n < 0 {
			return nil, err
		}
		data := make([]byte, n+len("\r\n"))
		_, err = io.ReadFull(c.in, data)
		return string(data[:n]), err
	case '*':
		n, err := strconv.Atoi(rest)
		if err != nil || n < 0 {
			return nil, err
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

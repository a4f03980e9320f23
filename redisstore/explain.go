package redisstore

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/holdfast-lock/holdfast/store"
)

// probeTimeout bounds one probe of a server that did not reply as expected.
const probeTimeout = 2 * time.Second

// diagnose adds two things to the error of the first connection: the kind of server that it seems
// to be, and the URL to use instead.
func diagnose(option *rueidis.ClientOption, u string, err error) error {
	invalid := func(advice string) error {
		return fmt.Errorf("%w: %s: %s (%v)", store.ErrInvalid, u, advice, err)
	}
	switch text := err.Error(); {
	case strings.Contains(text, "WRONGPASS"), strings.Contains(text, "NOAUTH"), strings.Contains(text, "invalid password"):
		return invalid("check the user and the password in the URL; a password without a user is written as redis://:PASSWORD@HOST")
	case strings.Contains(text, "DB index is out of range"):
		return invalid("the path of the URL is the number of the database, as in redis://HOST/0")
	case strings.Contains(text, "unknown command 'SENTINEL'"):
		return invalid("this is a Redis server, not a Sentinel: write redis://HOST:PORT, or give the address of a Sentinel")
	case strings.Contains(text, "No such master with that name"): // not ErrInvalid, because a Sentinel can learn of the name later
		return fmt.Errorf("%s: %w: the name after the hosts is the one in \"sentinel monitor\" of the Sentinels", u, err)
	case strings.Contains(text, "unknown message type: 72"): // "HTTP/1.1 …"
		return invalid("this looks like an HTTP server, not like Redis: check the port")
	}
	addr := option.InitAddress[0]
	switch {
	case option.TLSConfig != nil && speaksRedis(addr):
		return invalid("the server speaks Redis without TLS: write redis:// instead of rediss://")
	case option.TLSConfig == nil && speaksTLS(addr):
		return invalid("the server wants TLS: write rediss:// instead of redis://")
	}
	return fmt.Errorf("%s: %w", u, err)
}

// speaksRedis reports whether a server replies to a PING without TLS.
func speaksRedis(addr string) bool {
	conn, err := net.DialTimeout("tcp", addr, probeTimeout)
	if err != nil {
		return false
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(probeTimeout))
	if _, err := io.WriteString(conn, "PING\r\n"); err != nil {
		return false
	}
	reply := make([]byte, 1)
	_, err = io.ReadFull(conn, reply)
	return err == nil && (reply[0] == '+' || reply[0] == '-')
}

// speaksTLS reports whether a server completes a TLS handshake, whatever its certificate.
func speaksTLS(addr string) bool {
	dialer := &net.Dialer{Timeout: probeTimeout}
	// Nothing is sent over this connection, so there is nothing to protect.
	conn, err := tls.DialWithDialer(dialer, "tcp", addr, &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		return strings.Contains(err.Error(), "certificate required")
	}
	conn.Close()
	return true
}

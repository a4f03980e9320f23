package redisstore

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/holdfast-lock/holdfast/internal/redis/rediscore"
	"github.com/holdfast-lock/holdfast/internal/testing/servers"
	"github.com/holdfast-lock/holdfast/internal/testing/suites"
)

func TestNoConnectionOutlivesTheStoreThatOwnsIt(t *testing.T) {
	listener := listen(t)
	all := &connections{dialer: dialTCP}
	dial := func() (net.Conn, error) {
		return all.dial(t.Context(), listener.Addr().String(), new(net.Dialer), nil)
	}
	must(t, errOf(dial()))
	accepted, err := listener.Accept()
	must(t, err)
	defer accepted.Close()
	all.closeAll(true)
	accepted.SetReadDeadline(time.Now().Add(10 * time.Second))
	want(t, "a read after closeAll", errOf(accepted.Read(make([]byte, 1))), io.EOF)
	want(t, "a dial after closeAll", errOf(dial()), net.ErrClosed)
}

// Its address may lead to the new primary by now. Before Redis 7, an error inside a script has a prefix. Errors about
// a key contain its name.
func TestOnlyTheConnectionToADemotedPrimaryIsGivenUp(t *testing.T) {
	const readOnly, prefix = "READONLY You can't write against a read only replica.", "ERR Error running script (call to f_0123): @user_script:16: @user_script: 16: -"
	server := servers.StartRedis(t, servers.RedisOptions{})
	for reply, made := range map[string]uint64{
		readOnly:          2,
		prefix + readOnly: 2,
		"WRONGTYPE READONLY: unknown record format": 1,
		prefix + "WRONGTYPE READONLY":               1,
	} {
		s := openURL(t, "redis://"+server.Addr())
		refuse := rediscore.Call{Command: "EVAL", Args: []string{"return redis.error_reply(ARGV[1])", "0", reply}}
		if r := s.conn.Run(t.Context(), refuse)[0]; r.Err == nil || !strings.HasSuffix(reply, r.Err.Error()) {
			t.Fatalf("%+v, want the error %q", r, reply)
		}
		suites.Granted(t, s, suites.Request(reply))
		if got := s.conn.owned.made.Load(); got != made {
			t.Errorf("%d connections after %q, want %d", got, reply, made)
		}
	}
}

// The clock of the host was an hour ahead when the call began, or is an hour behind since then.
func TestASilentConnectionIsClosedAlsoIfTheClockOfTheHostWasSet(t *testing.T) {
	listener := listen(t)
	for _, hours := range []int64{1, -1} {
		for what, closeSome := range map[string]func(all *connections, begin time.Time){
			"closeSilent":     (*connections).closeSilent,
			"closeUnanswered": (*connections).closeUnanswered,
		} {
			all := &connections{dialer: dialTCP}
			c, err := all.dial(t.Context(), listener.Addr().String(), new(net.Dialer), nil)
			must(t, err)
			begin := time.Now()
			set := begin
			*(*uint64)(unsafe.Pointer(&set)) += uint64(hours*3600) << 30 // the time of day only
			if set.Sub(begin) != 0 || set.Unix()-begin.Unix() != hours*3600 {
				t.Fatalf("%v is not %v with another time of day", set, begin)
			}
			must(t, errOf(c.Write([]byte("x"))))
			time.Sleep(suspectAfter)
			if closeSome(all, set); !all.none() {
				t.Errorf("%s: the connection is open although nothing was received since the call began", what)
			}
			all.closeAll(true)
		}
	}
}

// The other server has had no time to reply yet. It may be another node of a Cluster than the one that is silent.
func TestAConnectionWithANewRequestIsKeptWhenAnotherIsSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := &connections{dialer: func(context.Context, string, *net.Dialer, *tls.Config) (net.Conn, error) {
			near, far := net.Pipe()
			go io.Copy(io.Discard, far)
			return near, nil
		}}
		defer all.closeAll(true)
		silent, err := all.dial(t.Context(), "", nil, nil)
		must(t, err)
		other, err := all.dial(t.Context(), "", nil, nil)
		must(t, err)
		time.Sleep(time.Second)
		begin := time.Now()
		must(t, errOf(silent.Write([]byte("x"))))
		time.Sleep(time.Second)
		must(t, errOf(other.Write([]byte("x"))))
		time.Sleep(time.Millisecond)
		all.closeUnanswered(begin)
		want(t, "a request on the silent connection", errOf(silent.Write([]byte("x"))), errSilent)
		want(t, "a reply on the silent connection", errOf(silent.Read(make([]byte, 1))), errSilent)
		must(t, errOf(other.Write([]byte("x"))))
	})
}

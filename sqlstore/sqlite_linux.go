package sqlstore

import (
	"crypto/rand"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// newSQLiteClock returns the clock that all processes of this host share: CLOCK_MONOTONIC,
// which cannot be set. It is also the clock of Go's timers and so of a lease's deadline:
// both stand still while the machine is suspended, and go on together.
//
// It starts anew with every boot and differs between time namespaces, hence its name.
func newSQLiteClock() (sqliteClock, error) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return sqliteClock{}, fmt.Errorf("no boot id, by which to know what an earlier boot left: %w; mount /proc", err)
	}
	space, _ := os.Readlink("/proc/self/ns/time") // none before Linux 5.6
	return sqliteClock{
		boot:   "boot " + strings.TrimSpace(string(boot)),
		space:  space,
		steady: true,
		now:    monotonic,
		wall:   func() int64 { return time.Now().UnixNano() },
	}, nil
}

func monotonic() int64 {
	var ts unix.Timespec
	// It fails for an unknown clock or a bad address only.
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts)
	return ts.Nano()
}

// listenPush uses the abstract socket addresses of Linux. They belong to no file and end
// with their process.
func listenPush() (net.PacketConn, string, error) {
	addr := "@holdfast-" + rand.Text()
	conn, err := net.ListenPacket("unixgram", addr)
	return conn, "unixgram:" + addr, err
}

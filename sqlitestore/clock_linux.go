package sqlitestore

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// newClock returns the clock that all processes under this kernel share: CLOCK_MONOTONIC without
// the offset of the time namespace. See "Time" in the package documentation.
func newClock() (clock, error) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return clock{}, fmt.Errorf("cannot read the boot ID, which is needed to detect a reboot: %w; mount /proc", err)
	}
	offset, err := timeNamespaceOffset()
	if err != nil {
		return clock{}, fmt.Errorf("offset of the time namespace: %w", err)
	}
	return clock{
		boot:   "boot " + strings.TrimSpace(string(boot)),
		steady: true,
		now: func() int64 {
			var ts unix.Timespec
			_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts) // fails only for an unknown clock or a bad address
			return ts.Nano() - offset
		},
		wall: func() int64 { return time.Now().UnixNano() },
	}, nil
}

// timeNamespaceOffset returns how far CLOCK_MONOTONIC in the time namespace of this process is
// ahead of the kernel's own.
func timeNamespaceOffset() (int64, error) {
	file, err := os.ReadFile("/proc/self/timens_offsets")
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil // a kernel without time namespaces
	}
	if err != nil {
		return 0, err
	}
	// The file describes the namespace of future children.
	own, err1 := os.Readlink("/proc/self/ns/time")
	children, err2 := os.Readlink("/proc/self/ns/time_for_children")
	if err := errors.Join(err1, err2); err != nil {
		return 0, err
	}
	if own != children {
		return 0, errors.New("this process has created a time namespace for its children; use the store in a child")
	}
	var seconds, nanoseconds int64
	if _, err := fmt.Sscanf(string(file), "monotonic %d %d", &seconds, &nanoseconds); err != nil {
		return 0, fmt.Errorf("cannot read /proc/self/timens_offsets: %w", err)
	}
	return seconds*int64(time.Second) + nanoseconds, nil
}

// listenPush listens on an abstract Unix socket, which has no file and ends with its process.
func listenPush() (net.PacketConn, string, error) {
	addr := "@holdfast-" + rand.Text()
	conn, err := net.ListenPacket("unixgram", addr)
	return conn, "unixgram:" + addr, err
}

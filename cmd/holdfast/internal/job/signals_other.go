//go:build unix && !linux

package job

import "syscall"

func systemSignals() []syscall.Signal { return nil }

//go:build !linux

package fleet

import "syscall"

// attributes sets nothing. An instance ends when its standard input is closed.
func attributes() *syscall.SysProcAttr { return nil }

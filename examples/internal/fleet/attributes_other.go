//go:build !linux

package fleet

import "syscall"

// attributes has nothing to set: an instance ends when its standard input does.
func attributes() *syscall.SysProcAttr { return nil }

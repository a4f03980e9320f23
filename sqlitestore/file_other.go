//go:build !unix

package sqlitestore

// A file knows which file a path meant when it was opened. Windows does not let
// anybody remove or replace a file that is open, so there is nothing to check.
type file struct{ path string }

func (f *file) note() error  { return nil }
func (f *file) check() error { return nil }

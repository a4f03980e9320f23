//go:build !unix

package sqlstore

// A sqliteFile knows which file a path meant when it was opened. Windows does not let
// anybody remove or replace a file that is open, so there is nothing to check.
type sqliteFile struct{ path string }

func (f *sqliteFile) note() error  { return nil }
func (f *sqliteFile) check() error { return nil }

//go:build !unix

package sqlitestore

// A file is the path of the store. Windows does not allow an open file to be removed or
// replaced, so there is nothing to check.
type file struct{ path string }

func (f *file) identity() string { return "file " + f.path }

func (f *file) note() error  { return nil }
func (f *file) check() error { return nil }

func (f *file) unwritable() string { return "" }

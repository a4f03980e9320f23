package sqlitestore

// A clock is a clock that all users of a file share.
type clock struct {
	boot   string       // the boot id; another one may mean that the clock has restarted
	steady bool         // never goes back, so that its reading alone orders tokens
	now    func() int64 // nanoseconds
	wall   func() int64 // nanoseconds since 1970
}

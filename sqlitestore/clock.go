package sqlitestore

// A clock is shared by all users of a file.
type clock struct {
	boot   string       // the boot ID; a different one may mean that the clock was restarted
	steady bool         // the clock cannot be set back, so its readings have the order of tokens
	now    func() int64 // nanoseconds
	wall   func() int64 // nanoseconds since 1970
}

package sqlstore

// A sqliteClock is a clock that all users of a file share.
type sqliteClock struct {
	boot   string       // changes when the clock starts anew, and with it everything has ended
	space  string       // tells apart clocks of one boot
	steady bool         // never goes back, so that its reading alone orders tokens
	now    func() int64 // nanoseconds
	wall   func() int64 // nanoseconds since 1970
}

func (c *sqliteClock) name() string {
	if c.space == "" {
		return c.boot
	}
	return c.boot + " " + c.space
}

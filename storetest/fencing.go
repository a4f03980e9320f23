package storetest

import (
	"time"

	"github.com/holdfast-lock/holdfast/store"
)

// farAhead is a distance that tokens do not pass during a test, even if they count microseconds.
const farAhead = int64(time.Minute / time.Microsecond)

// G3: the token of each grant is greater than every earlier token of its name. The method try
// checks on every grant that tokens are below 2^53 and above the floor.
var fencingTests = []test{
	{name: "tokens grow after a release, on every connection", run: func(s *suite) {
		conns := []*conn{s.open(), s.open(), s.open()}
		name := s.name()
		token := int64(0)
		// Each connection is used after itself and after the others.
		for _, i := range []int{0, 0, 1, 1, 2, 2, 0, 2, 1} {
			a := conns[i].exclusive(name).granted()
			a.above(token)
			token = a.last()
			a.release()
		}
	}},
	{name: "tokens grow after all connections were closed and reopened", run: func(s *suite) {
		name := s.name()
		token := int64(0)
		for range 3 {
			a := s.open().exclusive(name)
			a.req.Tokens = 3
			a.granted().above(token)
			token = a.last()
			a.release()
			s.closeAll()
		}
	}},
	{name: "tokens stay above a floor far ahead of them, on every connection", run: func(s *suite) {
		one, two := s.open2()
		for _, tokens := range []int{1, 3} {
			name := s.name()
			token := int64(0)
			take := func(c *conn, floor int64) *claim {
				a := c.exclusive(name)
				a.req.Tokens, a.req.Floor = tokens, floor
				a.granted().above(token)
				token = a.last()
				return a
			}
			take(one, 0).release()
			take(one, token+farAhead).release()
			take(one, 0).release()
			take(two, 0).release()
			a := take(two, token+farAhead)
			token += farAhead
			a.extended(func(r *store.Renewal) { r.Floor = token })
			a.release()
			take(two, 0).release()
			take(one, 0).release()
		}
	}},
}

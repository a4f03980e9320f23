package mysqlstore

import (
	"bytes"
	"fmt"
	"strconv"

	"github.com/holdfast-lock/holdfast/store"
)

// grantRow reads grantColumns.
type grantRow struct {
	id, data []byte
	g        grant
}

func (r *grantRow) dest() []any { return []any{&r.id, &r.g.since, &r.g.until, &r.data} }

// grant returns the grant of a row. Last is the last token of its name.
func (r *grantRow) grant(last int64) *grant {
	copy(r.g.id[:], r.id)
	r.g.setData(r.data)
	if r.g.token == 0 {
		r.g.token = last - int64(r.g.tokens) + 1
	}
	return &r.g
}

// values returns the values of grantColumns.
func (g *grant) values() string {
	return fmt.Sprintf("%s, %d, %d, %s", idLiteral(g.id), g.since, g.until, literal(string(g.data())))
}

// data returns the value of the column data, which schema.sql describes.
func (g *grant) data() []byte {
	b := make([]byte, 0, 64+len(g.owner)+len(g.meta))
	for _, n := range [...]int64{int64(g.mode), int64(g.state), int64(g.tokens), int64(g.weight), int64(g.limit), g.token, int64(len(g.owner))} {
		b = append(strconv.AppendInt(b, n, 10), ' ')
	}
	return append(append(b, g.owner...), g.meta...)
}

// setData sets what the column data holds. A row that another program has changed counts as an
// exclusive grant without owner: it excludes others until it ends, and can be listed and broken.
func (g *grant) setData(data []byte) {
	var n [7]int64
	for i := range n {
		field, rest, ok := bytes.Cut(data, []byte(" "))
		value, err := strconv.ParseInt(string(field), 10, 64)
		if err != nil || !ok || value < 0 || value > maxData[i] {
			g.mode, g.tokens, g.weight = store.Exclusive, 1, 1
			return
		}
		n[i], data = value, rest
	}
	owner := min(n[6], int64(len(data)))
	g.mode, g.state, g.tokens, g.weight, g.limit, g.token = store.Mode(n[0]), store.State(n[1]), int(n[2]), int(n[3]), int(n[4]), n[5]
	g.owner, g.meta = string(data[:owner]), string(data[owner:])
}

// maxData is the greatest value of each number in the column data.
var maxData = [...]int64{int64(store.Permits), int64(store.Cooling), maxBlock, store.MaxLimit, store.MaxLimit, store.MaxToken, store.MaxText}

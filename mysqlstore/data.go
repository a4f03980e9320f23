package mysqlstore

import (
	"bytes"
	"errors"
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
func (r *grantRow) grant(last int64) (*grant, error) {
	copy(r.g.id[:], r.id)
	if err := r.g.setData(r.data); err != nil {
		return nil, err
	}
	if r.g.token == 0 {
		r.g.token = last - int64(r.g.tokens) + 1
	}
	return &r.g, nil
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

var errData = errors.New("a row was not written by Holdfast: its data is malformed")

// setData sets what the column data holds. It is empty in a row that has never held a grant.
func (g *grant) setData(data []byte) error {
	if len(data) == 0 {
		return nil
	}
	var n [7]int64
	for i := range n {
		field, rest, ok := bytes.Cut(data, []byte(" "))
		value, err := strconv.ParseInt(string(field), 10, 64)
		if err != nil || !ok || value < 0 {
			return errData
		}
		n[i], data = value, rest
	}
	if n[6] > int64(len(data)) {
		return errData
	}
	g.mode, g.state, g.tokens, g.weight, g.limit, g.token = store.Mode(n[0]), store.State(n[1]), int(n[2]), int(n[3]), int(n[4]), n[5]
	g.owner, g.meta = string(data[:n[6]]), string(data[n[6]:])
	return nil
}

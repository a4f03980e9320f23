package mysqlstore

import (
	"bytes"
	"fmt"
	"strconv"

	"github.com/holdfast-lock/holdfast/internal/stores/rules"
	"github.com/holdfast-lock/holdfast/store"
)

// grantRow reads grantColumns.
type grantRow struct {
	id, data []byte
	g        rules.Claim
}

func (r *grantRow) dest() []any { return []any{&r.id, &r.g.Since, &r.g.Until, &r.data} }

// grant returns the grant of the row that was read last. Last is the last token of its name.
func (r *grantRow) grant(last int64) *rules.Claim {
	g := r.g
	copy(g.ID[:], r.id)
	readData(&g, r.data)
	if g.Token == 0 {
		g.Token = last - int64(g.Tokens) + 1
	}
	return &g
}

// grantValues returns the values of grantColumns.
func grantValues(g *rules.Claim) string {
	return fmt.Sprintf("%s, %d, %d, %s", idLiteral(g.ID), g.Since, g.Until, literal(string(dataOf(g))))
}

// dataOf returns the value of the column data, which schema.sql describes.
func dataOf(g *rules.Claim) []byte {
	b := make([]byte, 0, 64+len(g.Owner)+len(g.Meta))
	for _, n := range [...]int64{int64(g.Mode), int64(g.State), int64(g.Tokens), int64(g.Weight), int64(g.Limit), g.Token, int64(len(g.Owner))} {
		b = append(strconv.AppendInt(b, n, 10), ' ')
	}
	return append(append(b, g.Owner...), g.Meta...)
}

// readData sets what the column data holds. A row that another program has changed counts as an
// exclusive grant without owner: it excludes others until it ends, and can be listed and broken.
func readData(g *rules.Claim, data []byte) {
	var n [7]int64
	for i := range n {
		field, rest, ok := bytes.Cut(data, []byte(" "))
		value, err := strconv.ParseInt(string(field), 10, 64)
		if err != nil || !ok || value < 0 || value > maxData[i] {
			g.Mode, g.Tokens, g.Weight = store.Exclusive, 1, 1
			return
		}
		n[i], data = value, rest
	}
	owner := min(n[6], int64(len(data)))
	g.Mode, g.State, g.Tokens, g.Weight, g.Limit, g.Token = store.Mode(n[0]), store.State(n[1]), int(n[2]), int(n[3]), int(n[4]), n[5]
	g.Owner, g.Meta = string(data[:owner]), string(data[owner:])
}

// maxData is the greatest value of each number in the column data.
var maxData = [...]int64{int64(store.Permits), int64(store.Cooling), rules.MaxBlock, store.MaxLimit, store.MaxLimit, store.MaxToken, store.MaxText}

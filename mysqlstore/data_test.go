package mysqlstore

import (
	"strings"
	"testing"

	"github.com/holdfast-lock/holdfast/store"
)

func TestDataHoldsAllValues(t *testing.T) {
	longest := strings.Repeat("\xf4\x8f\xbf\xbf", store.MaxText/4)
	for _, want := range []grant{
		{},
		{mode: store.Exclusive, state: store.Cooling, tokens: 1, weight: 1, owner: "1 0 ", meta: " 7 "},
		{mode: store.Shared, tokens: 1, weight: 1, meta: "\t'\\\x00\n"},
		{mode: store.Permits, state: store.Done, tokens: maxBlock, weight: store.MaxLimit, limit: store.MaxLimit, token: store.MaxToken, owner: longest, meta: longest},
	} {
		var got grant
		data := want.data()
		if err := got.setData(data); err != nil {
			t.Errorf("%q: %v", data, err)
		}
		if got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
		if len(data) > 2200 {
			t.Errorf("%d bytes do not fit into the column", len(data))
		}
	}
}

func TestMalformedDataIsRefused(t *testing.T) {
	for _, data := range []string{"1", "1 0 1 1 0 0", "1 0 1 1 0 0 5", "1 0 1 1 0 0 5 four", "1 0 1 1 0 0 -1 ", "1 0 1 x 0 0 0 ", "\x00"} {
		g := grant{owner: "unchanged"}
		if err := g.setData([]byte(data)); err != errData || g != (grant{owner: "unchanged"}) {
			t.Errorf("%q: %v, %+v", data, err, g)
		}
	}
}

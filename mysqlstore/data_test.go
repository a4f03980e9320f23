package mysqlstore

import (
	"fmt"
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
		got.setData(data)
		if got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
		if len(data) > 2200 {
			t.Errorf("%d bytes do not fit into the column", len(data))
		}
	}
}

// A row that another program has changed stays an exclusive grant, and concerns no other name.
func TestRowWithOtherDataIsAnExclusiveGrant(t *testing.T) {
	db := connectTo(t, nil)
	s := newIn(t, db)
	good := request("good")
	granted(t, s, good)
	for i, data := range []string{
		"", "1", "1 0 1 1 0 0", "1 0 1 1 0 0 5", "9 0 1 1 0 0 0 ", "257 0 1 1 0 0 0 ", "1 9 1 1 0 0 0 ",
		"1 0 9223372036854775807 1 0 0 0 ", "1 0 1 1 0 0 -1 ", "1 0 1 x 0 0 0 ", "\x00", "nonsense",
	} {
		bad := request(fmt.Sprint("bad", i))
		a := granted(t, s, bad)
		mustExec(t, db, "UPDATE holdfast_names SET data = "+literal(data)+" WHERE name = '"+bad.Name+"'")
		shared := request(bad.Name)
		shared.Mode = store.Shared
		holder := refused(t, s, shared).Holders[0]
		if holder.ID != bad.ID || holder.Mode != store.Exclusive || holder.State != store.Held || holder.Token != a.Token {
			t.Errorf("%q: held by %+v, want %v with token %d", data, holder, bad.ID, a.Token)
		}
		out, err := s.Renew(limited(t), []store.Renewal{
			{Name: bad.Name, ID: bad.ID, TTL: bad.TTL, Mode: bad.Mode}, {Name: good.Name, ID: good.ID, TTL: good.TTL, Mode: good.Mode, Floor: 1},
		})
		if err != nil || out[0].Status != store.Extended || out[1].Status != store.Extended {
			t.Errorf("%q: renewals: %+v, %v", data, out, err)
		}
		if page, err := s.List(limited(t), store.Query{}); err != nil || len(page.Locks) != 2 {
			t.Errorf("%q: %+v, %v", data, page.Locks, err)
		}
		if err := s.Break(limited(t), bad.Name, bad.ID); err != nil {
			t.Errorf("%q: break: %v", data, err)
		}
	}
}

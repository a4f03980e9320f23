package mysqlstore

import (
	"fmt"
	"strings"
	"testing"

	"github.com/holdfast-lock/holdfast/internal/stores/rules"
	"github.com/holdfast-lock/holdfast/store"
)

func TestDataHoldsAllValues(t *testing.T) {
	longest := strings.Repeat("\xf4\x8f\xbf\xbf", store.MaxText/4)
	for _, want := range []rules.Claim{
		{},
		{Mode: store.Exclusive, State: store.Cooling, Tokens: 1, Weight: 1, Owner: "1 0 ", Meta: " 7 "},
		{Mode: store.Shared, Tokens: 1, Weight: 1, Meta: "\t'\\\x00\n"},
		{Mode: store.Permits, State: store.Done, Tokens: rules.MaxBlock, Weight: store.MaxLimit, Limit: store.MaxLimit, Token: store.MaxToken, Owner: longest, Meta: longest},
	} {
		var got rules.Claim
		data := dataOf(&want)
		readData(&got, data)
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
			renewal(bad), {Name: good.Name, ID: good.ID, TTL: good.TTL, Mode: good.Mode, Floor: 1},
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

// A changed row beside other holders excludes everybody too, because nobody knows what it was.
func TestRowWithOtherDataExcludesOthersBesideOtherHolders(t *testing.T) {
	db := connectTo(t, nil)
	s := newIn(t, db)
	var reqs [3]store.Request
	for i := range reqs {
		reqs[i] = request("n")
		reqs[i].Mode, reqs[i].Weight, reqs[i].Limit = store.Permits, 4, 9
	}
	granted(t, s, reqs[0])
	granted(t, s, reqs[1]) // has 4 permits, which the changed row does not say
	mustExec(t, db, "UPDATE holdfast_claims SET data = 'nonsense' WHERE name = 'n'")
	if r := refused(t, s, reqs[2]); len(r.Holders) != 2 {
		t.Errorf("holders: %+v", r.Holders)
	}
	must(t, s.Break(limited(t), "n", reqs[1].ID))
	granted(t, s, reqs[2])
}

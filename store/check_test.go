package store_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/holdfast-lock/holdfast/store"
)

var caps = store.Capabilities{
	Store:    "test",
	Features: store.FeatureShared | store.FeaturePermits,
	MinTTL:   time.Second,
	MaxTTL:   time.Hour,
}

func good() store.Request {
	return store.Request{Name: "n", Mode: store.Exclusive, Weight: 1, TTL: time.Minute, Tokens: 1}
}

func TestCheckSaysWhatToWriteInstead(t *testing.T) {
	for says, change := range map[string]func(*store.Request){
		`such as "order:42"`:                           func(r *store.Request) { r.Name = "" },
		"of 513 bytes: want at most 512":               func(r *store.Request) { r.Name = strings.Repeat("x", 513) },
		"not UTF-8":                                    func(r *store.Request) { r.Name = "\xff" },
		"control character U+0007":                     func(r *store.Request) { r.Name = "a\ab" },
		"control character U+0085":                     func(r *store.Request) { r.Meta = "a\u0085b" },
		"control character U+007F":                     func(r *store.Request) { r.Owner = "\x7f" },
		"owner \"xxx":                                  func(r *store.Request) { r.Owner = strings.Repeat("x", 1025) },
		"meta \"xxx":                                   func(r *store.Request) { r.Meta = strings.Repeat("x", 1025) },
		"the minimum of the test store":                func(r *store.Request) { r.TTL = time.Millisecond },
		"TTL -1s":                                      func(r *store.Request) { r.TTL = -time.Second },
		"the maximum of the test store":                func(r *store.Request) { r.TTL = 2 * time.Hour },
		"want exclusive, shared or":                    func(r *store.Request) { r.Mode = 9 },
		"limit 0: want a number":                       func(r *store.Request) { r.Mode = store.Permits },
		"limit 1000001: want":                          func(r *store.Request) { r.Mode = store.Permits; r.Limit = 1_000_001 },
		"-1 permits of a limit of 3: want from 1 to 3": func(r *store.Request) { r.Mode = store.Permits; r.Limit, r.Weight = 3, -1 },
		"4 permits of a limit of 3":                    func(r *store.Request) { r.Mode = store.Permits; r.Limit, r.Weight = 3, 4 },
		"token floor -1":                               func(r *store.Request) { r.Floor = -1 },
		"token floor 9007199254740992":                 func(r *store.Request) { r.Floor = 1 << 53 },
	} {
		req := good()
		change(&req)
		err := caps.Check(&req)
		if !errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want an ErrInvalid that says %s", err, says)
		}
	}
	for _, mode := range []store.Mode{store.Shared, store.Permits} {
		req := good()
		req.Mode, req.Limit = mode, 1
		if err := caps.Check(&req); err != nil {
			t.Errorf("%v: %v", mode, err)
		}
		bare := store.Capabilities{Store: "bare"}
		if err := bare.Check(&req); !errors.Is(err, store.ErrUnsupported) || !strings.Contains(err.Error(), mode.String()) {
			t.Errorf("%v without the feature: %v", mode, err)
		}
	}
}

func FuzzName(f *testing.F) {
	for _, seed := range []string{"order:42", "", "é", "a\x00", "\xff", strings.Repeat("x", 513)} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, name string) {
		fine := name != "" && len(name) <= store.MaxName && utf8.ValidString(name) && !strings.ContainsFunc(name, unicode.IsControl)
		err := store.CheckName(name)
		if fine != (err == nil) {
			t.Fatalf("%q: %v", name, err)
		}
		if err != nil && (!errors.Is(err, store.ErrInvalid) || len(err.Error()) > 500) {
			t.Fatalf("%q: %v", name, err)
		}
	})
}

func TestUsageAdmitsWhatGoesTogether(t *testing.T) {
	type use struct {
		mode          store.Mode
		weight, limit int
	}
	exclusive, shared := use{store.Exclusive, 1, 0}, use{store.Shared, 1, 0}
	permits := func(n int) use { return use{store.Permits, n, 5} }
	for _, test := range []struct {
		held []use
		asks use
		fits bool
	}{
		{nil, exclusive, true},
		{nil, shared, true},
		{nil, permits(5), true},
		{[]use{exclusive}, exclusive, false},
		{[]use{exclusive}, shared, false},
		{[]use{exclusive}, permits(1), false},
		{[]use{shared}, shared, true},
		{[]use{shared}, exclusive, false},
		{[]use{shared, shared}, permits(1), false},
		{[]use{permits(2), permits(2)}, permits(1), true},
		{[]use{permits(2), permits(2)}, permits(2), false},
		{[]use{permits(1)}, exclusive, false},
		{[]use{permits(1)}, shared, false},
	} {
		var usage store.Usage
		for _, h := range test.held {
			usage.Add(h.mode, h.weight, h.limit)
		}
		if got := usage.Admits(test.asks.mode, test.asks.weight, test.asks.limit); got != test.fits {
			t.Errorf("beside %v, %v fits: %t", test.held, test.asks, got)
		}
	}
}

func TestMixesNamesBothSides(t *testing.T) {
	err := store.Mixes("n", store.Permits, 3, store.Permits, 4)
	if !errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), "3") || !strings.Contains(err.Error(), "4") {
		t.Errorf("limits 3 and 4: %v", err)
	}
	err = store.Mixes("n", store.Permits, 3, store.Shared, 0)
	if !errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), "shared") {
		t.Errorf("permits and shared: %v", err)
	}
	for _, other := range []store.Mode{store.Exclusive, store.Shared, store.Permits} {
		if err := store.Mixes("n", store.Exclusive, 0, other, 4); err != nil {
			t.Errorf("exclusive and %v: %v", other, err)
		}
	}
	if err := store.Mixes("n", store.Permits, 4, store.Permits, 4); err != nil {
		t.Error(err)
	}
}

func TestIDsSurviveTextAndJSON(t *testing.T) {
	id := store.NewID()
	if id.IsZero() || id == store.NewID() {
		t.Fatal("not random")
	}
	parsed, err := store.ParseID(id.String())
	if err != nil || parsed != id {
		t.Errorf("%v, %v", parsed, err)
	}
	text, err := json.Marshal(id)
	var back store.ID
	if err != nil || json.Unmarshal(text, &back) != nil || back != id {
		t.Errorf("%s, %v", text, err)
	}
	for _, bad := range []string{"", "12", strings.Repeat("x", 32), strings.Repeat("0", 33)} {
		if _, err := store.ParseID(bad); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("ParseID(%q): %v", bad, err)
		}
	}
}

func TestWordsForPeople(t *testing.T) {
	if got := (store.FeatureShared | store.FeatureFailover | 1<<30).String(); got != "shared,failover,0x40000000" {
		t.Error(got)
	}
	for word, got := range map[string]string{
		"exclusive": store.Exclusive.String(), "shared": store.Shared.String(), "permits": store.Permits.String(), "unknown": store.Mode(0).String(),
		"held": store.Held.String(), "done": store.Done.String(), "cooling": store.Cooling.String(),
	} {
		if got != word {
			t.Errorf("%q, want %q", got, word)
		}
	}
}

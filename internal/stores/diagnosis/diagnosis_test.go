package diagnosis_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/internal/stores/diagnosis"
	"github.com/holdfast-lock/holdfast/store"
)

var check = diagnosis.New("test.check", store.LevelFailure, "the risk", "the remedy")

func TestAProbeThatCannotLookIsUnknownAndNeverOK(t *testing.T) {
	denied := fmt.Errorf("read it: %w", &diagnosis.Denied{Right: "CONFIG GET", Err: errors.New("NOPERM")})
	probe := func(bad bool, err error) store.Finding {
		f := diagnosis.Run("node", 1, []diagnosis.Probe[int]{{Check: check, Look: func(int) (bool, string, error) { return bad, "found", err }}})
		if len(f) != 1 || f[0].Node != "node" || f[0].ID != "test.check" {
			t.Fatalf("%+v", f)
		}
		return f[0]
	}
	if f := probe(false, nil); f.Level != store.LevelOK || f.Risk+f.Remedy != "" || f.Found != "found" {
		t.Errorf("in order: %+v", f)
	}
	if f := probe(true, nil); f.Level != store.LevelFailure || f.Risk != "the risk" || f.Remedy != "the remedy" {
		t.Errorf("wrong: %+v", f)
	}
	for _, bad := range []bool{false, true} {
		f := probe(bad, denied)
		if f.Level != store.LevelUnknown || !strings.Contains(f.Remedy, "allow CONFIG GET") || !strings.Contains(f.Found, "NOPERM") {
			t.Errorf("not allowed: %+v", f)
		}
		if f := probe(bad, errors.New("connection lost")); f.Level != store.LevelUnknown || strings.Contains(f.Remedy, "allow") {
			t.Errorf("failed: %+v", f)
		}
	}
}

func TestWhatAServerDoesNotHaveIsLeftOut(t *testing.T) {
	f := diagnosis.Run("", 1, []diagnosis.Probe[int]{{Check: check, Look: func(int) (bool, string, error) { return true, "", diagnosis.ErrNotApplicable }}})
	if len(f) != 0 {
		t.Errorf("%+v", f)
	}
}

func TestStoresMadeOfOthersNameTheirNodes(t *testing.T) {
	inner := []store.Finding{{ID: "a"}, {ID: "b", Node: "10.0.0.1:6379"}, {ID: "c", Node: "outer"}}
	got := diagnosis.On("outer", inner)
	for i, want := range []string{"outer", "outer, 10.0.0.1:6379", "outer"} {
		if got[i].Node != want {
			t.Errorf("node %q, want %q", got[i].Node, want)
		}
	}
	if inner[0].Node != "" {
		t.Error("the findings of the inner store were changed")
	}
}

func TestChecksAreRegisteredOnce(t *testing.T) {
	if !slices.Contains(diagnosis.All(), check) {
		t.Error("it is not registered")
	}
	defer func() {
		if recover() == nil {
			t.Error("two checks have one ID")
		}
	}()
	diagnosis.New("test.check", store.LevelNote, "", "")
}

func TestClocksThatDifferByMoreThanATenthOfTheTTLAreReported(t *testing.T) {
	const ttl = 10 * time.Second
	for skew, want := range map[time.Duration]store.Level{
		0: store.LevelOK, 500 * time.Millisecond: store.LevelOK, -900 * time.Millisecond: store.LevelOK,
		3 * time.Second: store.LevelWarning, -3 * time.Second: store.LevelWarning,
	} {
		f, ahead, ok := diagnosis.Clock(ttl, func() (time.Time, error) { return time.Now().Add(skew), nil })
		if f.Level != want || !ok || (ahead-skew).Abs() > 100*time.Millisecond {
			t.Errorf("skew %v: %+v, measured %v", skew, f, ahead)
		}
	}
	f, _, ok := diagnosis.Clock(ttl, func() (time.Time, error) { return time.Time{}, errors.New("no") })
	if f.Level != store.LevelUnknown || ok {
		t.Errorf("%+v", f)
	}
	if f := diagnosis.ClockAt(ttl, 1500*time.Millisecond, time.Second); f.Level != store.LevelOK {
		t.Errorf("within the error of measurement: %+v", f)
	}
	if f := diagnosis.Spread(ttl, []time.Duration{-800 * time.Millisecond, 0, 900 * time.Millisecond}); f.Level != store.LevelWarning {
		t.Errorf("servers that differ: %+v", f)
	}
	if f := diagnosis.Spread(ttl, []time.Duration{-8 * time.Millisecond, 0}); f.Level != store.LevelOK {
		t.Errorf("servers that agree: %+v", f)
	}
}

package inspect

import (
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/store"
)

func TestTheTimelineHasBarsGapsAndAnAxis(t *testing.T) {
	now := time.Date(2026, 1, 31, 12, 0, 40, 0, time.UTC)
	at := func(second int) time.Time { return now.Add(time.Duration(second-40) * time.Second) }
	id := store.NewID()
	p := page{At: now, seen: map[holdfast.ID]sighting{id: {waited: 4 * time.Second}}}
	if p.Timeline() != nil {
		t.Error("a timeline of nothing")
	}
	p.Record.Holds = []hold{
		{Owner: "a", Token: 7, Came: at(0), From: at(0), To: at(10)},
		{Owner: "b", Token: 8, Came: at(5), From: at(20), To: at(25)},
	}
	p.Lock.Holders = []holdfast.Holder{{ID: id, Owner: "c" + strings.Repeat("x", 100), Token: 9, Age: 10 * time.Second}}
	p.Lock.Waiters = []holdfast.Waiter{{Owner: "d\u202e", Age: 2 * time.Second}}
	d := p.Timeline()
	long := "c" + strings.Repeat("x", 100)
	want := []bar{
		{"a held for 10.0 s", "a held for 10.0 s, from 12:00:00 to 12:00:10, token 7", "", 13, 18, stretch{"0.00", "0.00", ""}, stretch{"0.00", "25.00", ""}},
		{"b held for 5.0 s", "b held for 5.0 s, from 12:00:20 to 12:00:25, token 8, after it had waited for 15.0 s", "", 47, 52, stretch{"12.50", "37.50", ""}, stretch{"50.00", "12.50", ""}},
		{long[:27] + "… holds for 10.0 s", long + " holds for 10.0 s, from 12:00:30 to 12:00:40, token 9, after it had waited for 4.0 s", "held", 81, 86, stretch{"65.00", "10.00", ""}, stretch{"75.00", "25.00", ""}},
		{`d\u202e waits for 2.0 s`, `d\u202e waits for 2.0 s, since 12:00:38`, "waiting", 115, 120, stretch{"95.00", "5.00", ""}, stretch{"100.00", "0.00", ""}},
	}
	if len(d.Bars) != len(want) {
		t.Fatalf("%+v", d.Bars)
	}
	for i := range want {
		if d.Bars[i] != want[i] {
			t.Errorf("got  %+v\nwant %+v", d.Bars[i], want[i])
		}
	}
	if len(d.Gaps) != 2 || d.Gaps[0] != (stretch{"25.00", "25.00", "10.0 s"}) || d.Gaps[1] != (stretch{"62.50", "12.50", "5.0 s"}) {
		t.Errorf("gaps %v", d.Gaps)
	}
	if len(d.Ticks) != 3 || d.Ticks[0] != (stretch{"25.00", "0.00", "12:00:10"}) || d.Ticks[2].Text != "12:00:30" {
		t.Errorf("ticks %v", d.Ticks)
	}
	if d.Axis != 4*rowHeight || d.Height <= d.Axis {
		t.Errorf("axis at %d of %d", d.Axis, d.Height)
	}

	p.Lock = holdfast.Info{} // the lock is free now
	if d := p.Timeline(); len(d.Gaps) != 2 || d.Gaps[1] != (stretch{"62.50", "37.50", "15.0 s"}) {
		t.Errorf("gaps of a free lock: %v", d.Gaps)
	}
}

// One holder of many hours must not make all others too narrow to see.
func TestTheTimelineCoversWhatHappenedLately(t *testing.T) {
	now := time.Now()
	rows := func(ages ...time.Duration) (list []hold) {
		for _, age := range ages {
			list = append(list, hold{Came: now.Add(-age), From: now.Add(-age), To: now})
		}
		return list
	}
	for _, test := range []struct {
		rows []hold
		want time.Duration
	}{
		{rows(3 * time.Hour), 3 * time.Hour},
		{rows(3*time.Hour, 5*time.Second), 20 * time.Second},
		{rows(3*time.Hour, 9*time.Second, 8*time.Second, 7*time.Second), 32 * time.Second},
		{rows(40*time.Second, 30*time.Second, 20*time.Second, 10*time.Second), 40 * time.Second},
		{rows(time.Millisecond), minWindow},
	} {
		if got := windowOf(test.rows, now); got != test.want {
			t.Errorf("%v, want %v", got, test.want)
		}
	}
	p := page{At: now}
	p.Record.Holds = rows(3*time.Hour, 2*time.Hour, 9*time.Second, 8*time.Second, 7*time.Second)
	p.Record.Holds[0].To = now.Add(-time.Hour)
	if d := p.Timeline(); len(d.Bars) != 4 || d.Bars[0].Hold != (stretch{"0.00", "100.00", ""}) {
		t.Errorf("a bar that ended before the timeline begins, or began before it and is not cut off: %+v", d.Bars)
	}
}

func TestTheSparkLineEndsAtTheNewestCount(t *testing.T) {
	p := page{counts: map[string][]int{"one": {2}, "low": {0, 1}, "high": {0, 28, 14}}}
	for name, want := range map[string]string{
		"one": "59,8.0 60,8.0 ", "low": "58,15.0 59,15.0 60,11.5 ", "high": "57,15.0 58,15.0 59,1.0 60,8.0 ",
	} {
		if s := p.Spark(name); s.Points != want {
			t.Errorf("%s: %q, want %q", name, s.Points, want)
		}
	}
	if s := p.Spark("high"); s.Text != "waiting: 14 now, at most 28 in the last 3 listings" {
		t.Error(s.Text)
	}
	if p.Spark("none") != nil {
		t.Error("a line of a name that had no waiter")
	}
}

package main

import (
	"fmt"
	"strings"
)

// Names of workloads and units in the rows of the Redis workloads.
const (
	workOwn      = "64 goroutines, own names"
	workOne      = "1 goroutine, own name"
	workHot      = "64 goroutines, one name, one client"
	work16       = "16 clients, one name"
	work64       = "64 clients, one name"
	workShapes   = us + ", one name, clients × goroutines"
	workWait     = "10 × 100 goroutines wait"
	workHandOff  = "hand-off between processes"
	workTurn     = "one client's turn: release, wake-up, next, queue again"
	suffixWait   = ": p99 wait"
	suffixP50    = ": p50"
	suffixCost   = ": commands, in scripts too"
	suffixUnfair = ": busiest / idlest"
)

// redisPeers are the candidates on Redis, in the order of tables and charts.
var redisPeers = []string{us, "redislock", "redsync", "rueidislock"}

// find returns the row of a figure, or nil if it was not measured.
func (r *Report) find(id, work, who string) *Row {
	for i := range r.Rows {
		if row := &r.Rows[i]; row.ID == id && row.Work == work && row.Who == who {
			return row
		}
	}
	return nil
}

// workOf returns the first workload of a target whose name contains a text. The full name varies,
// because the sizes of some workloads are options.
func (r *Report) workOf(id, part string) string {
	for _, row := range r.Rows {
		if row.ID == id && strings.Contains(row.Work, part) {
			return row.Work
		}
	}
	return ""
}

// charts returns the charts of a run by file name. Groups without figures are left out.
func (r *Report) charts() map[string]string {
	milliseconds := func(row *Row) (float64, string) {
		ms := row.Median
		if row.Unit == "µs" {
			ms /= 1000
		}
		return ms, figure(ms) + " ms"
	}
	plain := func(row *Row) (float64, string) { return row.Median, figure(row.Median) }
	group := func(title, id, work, suffix string, peers []string, show func(*Row) (float64, string)) barGroup {
		g := barGroup{title: title}
		for _, who := range peers {
			if row := r.find(id, work, who+suffix); row != nil {
				value, text := show(row)
				kind := "peer"
				if who == us || who == raw {
					kind = who
				}
				g.bars = append(g.bars, bar{who, value, text, strings.ReplaceAll(kind, us, "us")})
			}
		}
		return g
	}
	withRaw := append(redisPeers[:len(redisPeers):len(redisPeers)], raw)
	own := group("64 goroutines, a name each: pairs per second", "P1", workOwn, "", withRaw, plain)
	hot := group("64 goroutines of one process, one name: pairs per second", "P3", workHot, "", redisPeers, plain)
	// A p99 counts waits and hides clients that get no turn: if the client that releases a lock takes it
	// again at once, almost all waits are short. So the overview shows the turns, and the chart of waits
	// shows both.
	unfair16 := group("16 clients: turns of the busiest client for each turn of the least busy one", "P4", work16, suffixUnfair, redisPeers, plain)
	unfair64 := group("64 clients: turns of the busiest client for each turn of the least busy one", "P4", work64, suffixUnfair, redisPeers, plain)
	turns := unfair64
	turns.title = "64 clients, one name: turns of the busiest for each turn of the least busy (shorter is better)"
	handOff := group("hand-off between processes: p50 (shorter is better)", "P5", workHandOff, suffixP50, redisPeers, milliseconds)

	charts := map[string]chart{
		"overview": {title: "Holdfast and other lock libraries on one Redis server", groups: []barGroup{own, hot, turns, handOff}},
		"throughput": {title: "Lock and unlock on Redis, pairs per second", groups: []barGroup{
			own,
			group("1 goroutine: pairs per second", "P2", workOne, "", withRaw, plain),
			hot,
			group("16 clients, one name: pairs per second", "P4", work16, "", redisPeers, plain),
			group("64 clients, one name: pairs per second", "P4", work64, "", redisPeers, plain),
		}},
		"wait": {title: "Waiting for a contended lock on Redis (shorter is better)", groups: []barGroup{
			group("64 goroutines of one process: p99 of the wait", "P3", workHot, suffixWait, redisPeers, milliseconds),
			group("16 clients: p99 of the wait", "P4", work16, suffixWait, redisPeers, milliseconds),
			unfair16,
			group("64 clients: p99 of the wait", "P4", work64, suffixWait, redisPeers, milliseconds),
			unfair64,
		}},
		"handoff": {title: "From the unlock in one process to the grant in another, p50 (shorter is better)", groups: []barGroup{
			group("Redis", "P5", workHandOff, suffixP50, redisPeers, milliseconds),
			group("etcd", "P9etcd", "etcd, "+workHandOff, suffixP50, []string{us, "concurrency"}, milliseconds),
			group("ZooKeeper", "P9zk", "ZooKeeper, "+workHandOff, suffixP50, []string{us, "zk.Lock"}, milliseconds),
			group("PostgreSQL", "P10pg", "PostgreSQL, "+workHandOff, suffixP50, []string{us, "pg_advisory_lock"}, milliseconds),
			group("MariaDB", "P10mysql", "MariaDB, "+workHandOff, suffixP50, []string{us, "GET_LOCK"}, milliseconds),
			group("SQLite", "P10", "SQLite, "+workHandOff, suffixP50, []string{us}, milliseconds),
		}},
		"waiting": {title: "What waiting costs a Redis server (shorter is better)", groups: []barGroup{
			group("commands per second for each process, in which 100 goroutines wait", "P6", workWait, suffixCost, redisPeers, plain),
		}},
		"growth": {title: "Growth on Redis", groups: []barGroup{
			r.series("64 goroutines, a name each: pairs per second, while so many names are held", "P12", workOwn, " names held", plain),
			r.series("what one turn costs the server, in µs, while so many clients wait", "P12", workTurn, " clients wait", plain),
		}},
	}
	files := make(map[string]string)
	for name, c := range charts {
		groups := c.groups[:0]
		for _, g := range c.groups {
			if len(g.bars) > 0 {
				groups = append(groups, g)
			}
		}
		c.groups, c.note = groups, r.note()
		files[name+".svg"] = c.svg()
	}
	return files
}

// series returns the rows of a workload that differ only in a number, such as "holdfast, 10
// clients wait".
func (r *Report) series(title, id, work, suffix string, show func(*Row) (float64, string)) barGroup {
	g := barGroup{title: title}
	for i := range r.Rows {
		row := &r.Rows[i]
		label, ok := strings.CutPrefix(row.Who, us+", ")
		if !ok || row.ID != id || row.Work != work || row.Unit == "×" {
			continue
		}
		if label, ok = strings.CutSuffix(label, suffix); ok {
			var n float64
			fmt.Sscan(label, &n)
			value, text := show(row)
			g.bars = append(g.bars, bar{number(n), value, text, "us"})
		}
	}
	return g
}

// note says where and how the figures were measured.
func (r *Report) note() string {
	return fmt.Sprintf("%s, %s, %d cores, Redis %s; medians of %d rounds, interleaved", r.Begun.Format("2006-01-02"), r.CPU, r.Cores, r.Versions["Redis"], r.Rounds)
}

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// A figure in a page is between two comments. The first one names the section:
//
//	<!-- bench: held-bytes -->652<!-- end -->
var marked = regexp.MustCompile(`(?s)(<!-- bench: ([\w-]+) -->)(.*?)(<!-- end -->)`)

// sections maps the name of each section to a function that returns its text. The text is empty
// if the figures were not measured. A table has several lines.
var sections = map[string]func(*Report) string{
	"run":            (*Report).runSection,
	"memory":         (*Report).memorySection,
	"redis-pairs":    (*Report).redisPairs,
	"redis-ratios":   (*Report).redisRatios,
	"redis-waiting":  (*Report).redisWaiting,
	"redis-fairness": (*Report).redisFairness,
	"redis-shapes":   func(r *Report) string { return r.shapesTable("P4shapes", us) },
	"redis-growth":   (*Report).redisGrowth,
	"quorum":         (*Report).quorumSection,
	"etcd":           (*Report).etcdSection,
	"zookeeper":      (*Report).zooSection,
	"sqlite": func(r *Report) string {
		return r.sqlSection("P10", "SQLite", [][2]string{{"Holdfast", "through the client"}, {"two bare statements", "two bare statements"}}, us)
	},
	"postgres": func(r *Report) string {
		return r.sqlSection("P10pg", "PostgreSQL", [][2]string{{"Holdfast", us}, {"two bare statements", "two bare statements"}, {"`pg_advisory_lock`", "pg_advisory_lock"}}, us)
	},
	"mariadb": func(r *Report) string {
		return r.sqlSection("P10mysql", "MariaDB", [][2]string{{"Holdfast", "through the client"}, {"two bare statements", "two bare statements"}, {"`GET_LOCK`", "GET_LOCK and RELEASE_LOCK"}}, us+" on MariaDB")
	},
	"held-count": func(r *Report) string {
		return r.held(": heap", func(row *Row) string {
			var n float64
			fmt.Sscan(row.Work, &n)
			return number(n)
		})
	},
	"held-bytes": func(r *Report) string {
		return r.held(": heap", func(row *Row) string { return figure(row.Median) })
	},
	"held-cpu": func(r *Report) string {
		return r.held(": processor", func(row *Row) string { return figure(row.Median) })
	},
}

// updatePages writes the figures of a run into the pages of a repository.
func (r *Report) updatePages(root string) error {
	for _, pattern := range []string{"README*.md", "docs/*.md"} {
		files, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(pattern)))
		if err != nil {
			return err
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			updated, err := r.update(string(text))
			if err != nil {
				return fmt.Errorf("%s: %w", file, err)
			}
			if updated == string(text) {
				continue
			}
			if err := os.WriteFile(file, []byte(updated), 0o644); err != nil {
				return err
			}
		}
	}
	return nil
}

// update returns a page with the figures of a run.
func (r *Report) update(page string) (string, error) {
	var failed error
	page = marked.ReplaceAllStringFunc(page, func(s string) string {
		m := marked.FindStringSubmatch(s)
		section := sections[m[2]]
		if section == nil {
			failed = fmt.Errorf("there is no section %q of figures", m[2])
			return s
		}
		text := section(r)
		if text == "" {
			failed = fmt.Errorf("the run has no figures for %q: measure everything that the pages show", m[2])
			return s
		}
		if strings.Contains(text, "\n") {
			text = "\n\n" + text + "\n"
		}
		return m[1] + text + m[4]
	})
	return page, failed
}

// markdown returns a table. Rows and columns without a figure are left out.
func markdown(corner string, columns []string, rows [][]string) string {
	rows = slices.DeleteFunc(rows, func(row []string) bool { return strings.Join(row[1:], "") == "" })
	if len(rows) == 0 {
		return ""
	}
	var b strings.Builder
	line := func(cells []string) {
		for _, c := range cells {
			b.WriteString("| " + c)
			if c != "" {
				b.WriteString(" ")
			}
		}
		b.WriteString("|\n")
	}
	keep := []int{0}
	for i := range columns {
		if slices.ContainsFunc(rows, func(row []string) bool { return row[i+1] != "" }) {
			keep = append(keep, i+1)
		}
	}
	pick := func(row []string) (cells []string) {
		for _, i := range keep {
			cells = append(cells, row[i])
		}
		return cells
	}
	line(pick(append([]string{corner}, columns...)))
	b.WriteString("|" + strings.Repeat("---|", len(keep)) + "\n")
	for _, row := range rows {
		line(pick(row))
	}
	return b.String()
}

// cell returns a figure, or "" if it was not measured.
func (r *Report) cell(id, work, who string) string {
	row := r.find(id, work, who)
	switch {
	case row == nil:
		return ""
	case row.Unit == "µs":
		return figure(row.Median/1000) + " ms"
	case row.Unit == "ms":
		return figure(row.Median) + " ms"
	}
	return figure(row.Median)
}

// cells returns a row of a table.
func (r *Report) cells(label, id, work, suffix string, peers []string) []string {
	row := []string{label}
	for _, who := range peers {
		row = append(row, r.cell(id, work, who+suffix))
	}
	return row
}

// spread returns a median with the lowest and highest round.
func (r *Report) spread(id, work, who string) string {
	row := r.find(id, work, who)
	if row == nil {
		return ""
	}
	return fmt.Sprintf("%s (%s to %s)", figure(row.Median), figure(row.Low), figure(row.High))
}

func (r *Report) runSection() string {
	v := r.Versions
	return fmt.Sprintf("%s, on a machine (%s) with %d cores, which also ran the servers; %d rounds of %s; Go %s, Redis %s, etcd %s, ZooKeeper %s, PostgreSQL %s, MariaDB %s; redislock %s, redsync %s, rueidis %s",
		r.Begun.Format("2006-01-02 15:04 UTC"), r.CPU, r.Cores, r.Rounds, r.Round, strings.TrimPrefix(r.Go, "go"), v["Redis"], v["etcd"], v["ZooKeeper"], v["PostgreSQL"], v["MariaDB"],
		v["github.com/bsm/redislock"], v["github.com/go-redsync/redsync/v4"], v["github.com/redis/rueidis"])
}

func (r *Report) memorySection() string {
	one, hot := "memory, "+workOne, "memory, "+workHot
	if r.find("P11", one, us) == nil {
		return ""
	}
	return markdown("what", []string{"cost"}, [][]string{
		{"uncontended lock and unlock", r.cell("P11", one, us+": time") + " µs; allocations: " + r.cell("P11", one, us+": allocations")},
		{"64 goroutines on one name", r.cell("P11", hot, us) + " hand-overs per second, in order of arrival"},
	})
}

var redisColumns = []string{"Holdfast", "redislock", "redsync", "rueidislock"}

func (r *Report) redisPairs() string {
	peers := append(slices.Clone(redisPeers), raw)
	return markdown("pairs per second", append(slices.Clone(redisColumns), "raw"), [][]string{
		r.cells("64 goroutines, own names", "P1", workOwn, "", peers),
		r.cells("1 goroutine", "P2", workOne, "", peers),
		r.cells("64 goroutines, one name, one client", "P3", workHot, "", peers),
		r.cells("16 clients, one name", "P4", work16, "", peers),
		r.cells("64 clients, one name", "P4", work64, "", peers),
	})
}

// redisRatios returns a table that compares Holdfast with the raw commands and the best peer,
// round by round.
func (r *Report) redisRatios() string {
	var rows [][]string
	for _, w := range [][2]string{{"P1", workOwn}, {"P2", workOne}, {"P3", workHot}} {
		row := []string{w[1], r.spread(w[0], w[1], us+" / "+raw), ""}
		for _, who := range redisPeers[1:] {
			if text := r.spread(w[0], w[1], us+" / "+who+" (best peer)"); text != "" {
				row[2] = text + " × " + who
			}
		}
		rows = append(rows, row)
	}
	return markdown("ratio of pairs per second, with the lowest and highest round", []string{"to raw", "to the best peer"}, rows)
}

func (r *Report) redisWaiting() string {
	waiting := r.workOf("P6", "goroutines wait")
	return markdown("waiting", redisColumns, [][]string{
		r.cells("hand-off between processes, p50", "P5", workHandOff, suffixP50, redisPeers),
		r.cells("16 clients, one name, wait p99", "P4", work16, suffixWait, redisPeers),
		r.cells("64 clients, one name, wait p99", "P4", work64, suffixWait, redisPeers),
		r.cells("server commands per second for each process, in which 100 goroutines wait", "P6", waiting, suffixCost, redisPeers),
	})
}

func (r *Report) redisFairness() string {
	return markdown("pairs of the busiest client for each pair of the least busy one", redisColumns, [][]string{
		r.cells("16 clients", "P4", work16, suffixUnfair, redisPeers),
		r.cells("64 clients", "P4", work64, suffixUnfair, redisPeers),
	})
}

// shapesTable shows how the goroutines of a contended name were distributed over clients.
func (r *Report) shapesTable(id, who string) string {
	work := r.workOf(id, who+", one name, clients × goroutines")
	columns := []string{"1×64", "2×32", "4×16", "16×4", "64×1"}
	return markdown("one name, clients × goroutines", columns, [][]string{
		r.cells("pairs per second", id, work, "", columns),
		r.cells("wait p99", id, work, suffixWait, columns),
		r.cells("busiest / least busy", id, work, suffixUnfair, columns),
	})
}

func (r *Report) redisGrowth() string {
	text := ""
	for _, s := range []struct{ work, suffix, corner string }{
		{workOwn, " names held", "names held on the server"},
		{workTurn, " clients wait", "clients that wait"},
	} {
		g := r.series("", "P12", s.work, s.suffix, func(row *Row) (float64, string) { return row.Median, figure(row.Median) })
		columns, row := []string{}, []string{"64 goroutines, own names, pairs per second"}
		if s.work == workTurn {
			row[0] = "one turn, µs of the server's CPU"
		}
		for _, b := range g.bars {
			columns, row = append(columns, b.label), append(row, b.text)
		}
		if text != "" {
			text += "\n"
		}
		text += markdown(s.corner, columns, [][]string{row})
	}
	return text
}

// quorumSection shows every workload of the quorum, and how clients share a name.
func (r *Report) quorumSection() string {
	peers := []string{us, "redsync"}
	var rows [][]string
	for i := range r.Rows {
		row := &r.Rows[i]
		if !strings.HasPrefix(row.ID, "P8") || row.Unit != pairs || row.Who != us {
			continue
		}
		_, label, _ := strings.Cut(row.Work, ", ")
		rows = append(rows, r.cells(label+": pairs per second", row.ID, row.Work, "", peers),
			r.cells(label+": p99 of the wait", row.ID, row.Work, suffixWait, peers),
			r.cells(label+": locks of the busiest / idlest", row.ID, row.Work, suffixUnfair, peers))
	}
	if hung := r.cell("P8", workHung, us+suffixHung); hung != "" {
		rows = append(rows, []string{
			"one node hung: p99 of a pair, against all healthy", hung + " ×",
			"one Lock takes " + r.cell("P8", workHung, "redsync"+suffixHungLock),
		})
	}
	return markdown("", []string{"Holdfast", "redsync"}, rows)
}

func (r *Report) etcdSection() string {
	peers := []string{us, "concurrency", raw}
	handOff := r.cells("hand-off between processes, p50", "P9etcd", "etcd, "+workHandOff, suffixP50, peers)
	if write := r.cell("P9etcd", "etcd, "+workHandOff, "round trip of a write: p50"); write != "" {
		handOff[3] = "a write takes " + write
	}
	return markdown("pairs per second", []string{"Holdfast", "etcd's concurrency package", "raw"}, [][]string{
		r.cells("64 goroutines, own names", "P9etcd", "etcd, "+workOwn, "", peers),
		r.cells("1 goroutine", "P9etcd", "etcd, "+workOne, "", peers),
		r.cells("64 goroutines, one name, one client", "P9etcd", "etcd, "+workHot, "", peers),
		r.cells("64 clients, one name", "P9etcd", "etcd, "+work64, "", peers),
		handOff,
	})
}

func (r *Report) zooSection() string {
	peers := []string{us, "zk.Lock", raw, bareQueue}
	handOff := r.cells("hand-off between processes, p50", "P9zk", "ZooKeeper, "+workHandOff, suffixP50, []string{us + " on ZooKeeper", "zk.Lock", "", ""})
	if write := r.cell("P9zk", "ZooKeeper, "+workHandOff, "a write, after a pause: p50"); write != "" {
		handOff[3] = "a write takes " + write
	}
	return markdown("pairs per second", []string{"Holdfast", "zk.Lock", "raw: one ephemeral node", "bare queue"}, [][]string{
		r.cells("64 goroutines, own names", "P9zk", "ZooKeeper, "+workOwn, "", peers),
		r.cells("1 goroutine", "P9zk", "ZooKeeper, "+workOne, "", peers),
		r.cells("64 goroutines, one name, one client", "P9zk", "ZooKeeper, "+workHot, "", peers),
		r.cells("16 sessions, one name", "P9zk", "ZooKeeper, 16 sessions, one name", "", peers),
		r.cells("64 sessions, one name", "P9zk", "ZooKeeper, 64 sessions, one name", "", peers),
		handOff,
	})
}

// sqlSection shows a database. Each column has a title and the name in the rows; taker is the
// name of Holdfast in the rows of hand-offs.
func (r *Report) sqlSection(id, store string, columns [][2]string, taker string) string {
	var titles, peers []string
	for _, c := range columns {
		titles, peers = append(titles, c[0]), append(peers, c[1])
	}
	takers := slices.Clone(peers)
	takers[0] = taker
	for i, who := range takers {
		takers[i], _, _ = strings.Cut(who, " and ") // GET_LOCK and RELEASE_LOCK
	}
	return markdown("pairs per second", titles, [][]string{
		r.cells("64 goroutines, own names", id, store+", "+workOwn, "", peers),
		r.cells("1 goroutine", id, store+", "+workOne, "", peers),
		r.cells("hand-off between processes, p50", id, store+", "+workHandOff, suffixP50, takers),
	})
}

// held returns a figure of P7, the cost of held leases.
func (r *Report) held(suffix string, show func(*Row) string) string {
	if row := r.find("P7", r.workOf("P7", "leases held"), us+suffix); row != nil {
		return show(row)
	}
	return ""
}

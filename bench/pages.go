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
	"run":    (*Report).runSection,
	"memory": (*Report).memorySection,
	"redis-pairs": table("pairs per second", append(redisColumns[:len(redisColumns):len(redisColumns)], pageColumn{raw, raw}),
		pageRow{"64 goroutines, own names", "P1", workOwn, ""},
		pageRow{"1 goroutine", "P2", workOne, ""},
		pageRow{"64 goroutines, one name, one client", "P3", workHot, ""},
		pageRow{"16 clients, one name", "P4", work16, ""},
		pageRow{"64 clients, one name", "P4", work64, ""}),
	"redis-ratios": (*Report).redisRatios,
	"redis-waiting": table("waiting", redisColumns,
		pageRow{"hand-off between processes, p50", "P5", workHandOff, suffixP50},
		pageRow{"16 clients, one name, wait p99", "P4", work16, suffixWait},
		pageRow{"64 clients, one name, wait p99", "P4", work64, suffixWait},
		pageRow{"server commands per second for each process, in which 100 goroutines wait", "P6", workWait, suffixCost}),
	"redis-fairness": table("pairs of the busiest client for each pair of the least busy one", redisColumns,
		pageRow{"16 clients", "P4", work16, suffixUnfair},
		pageRow{"64 clients", "P4", work64, suffixUnfair}),
	"redis-shapes": table("one name, clients × goroutines", []pageColumn{{"1×64", "1×64"}, {"2×32", "2×32"}, {"4×16", "4×16"}, {"16×4", "16×4"}, {"64×1", "64×1"}},
		pageRow{"pairs per second", "P4shapes", workShapes, ""},
		pageRow{"wait p99", "P4shapes", workShapes, suffixWait},
		pageRow{"busiest / least busy", "P4shapes", workShapes, suffixUnfair}),
	"redis-growth": (*Report).redisGrowth,
	"quorum":       (*Report).quorumSection,
	"etcd":         storeTable("P9etcd", "etcd", pageColumn{"etcd's concurrency package", "concurrency"}, pageColumn{raw, raw}),
	"zookeeper":    storeTable("P9zk", "ZooKeeper", pageColumn{"zk.Lock", "zk.Lock"}, pageColumn{"raw: one ephemeral node", raw}, pageColumn{bareQueue, bareQueue}),
	"sqlite":       storeTable("P10", "SQLite", pageColumn{bareStatements, bareStatements}),
	"postgres":     storeTable("P10pg", "PostgreSQL", pageColumn{bareStatements, bareStatements}, pageColumn{"`pg_advisory_lock`", "pg_advisory_lock"}),
	"mariadb":      storeTable("P10mysql", "MariaDB", pageColumn{bareStatements, bareStatements}, pageColumn{"`GET_LOCK`", "GET_LOCK"}),
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

// A pageColumn is a column of a table: its title, and the name of the candidate.
type pageColumn struct{ title, who string }

// A pageRow is a row of a table: its label, and the figures in it.
type pageRow struct{ label, id, work, suffix string }

var redisColumns = []pageColumn{{"Holdfast", us}, {"redislock", "redislock"}, {"redsync", "redsync"}, {"rueidislock", "rueidislock"}}

// table returns a section that is a table of figures.
func table(corner string, columns []pageColumn, rows ...pageRow) func(*Report) string {
	return func(r *Report) string {
		var titles []string
		var cells [][]string
		for _, c := range columns {
			titles = append(titles, c.title)
		}
		for _, row := range rows {
			line := []string{row.label}
			for _, c := range columns {
				text := r.cell(row.id, row.work, c.who+row.suffix)
				if c.who == raw && row.suffix == suffixP50 {
					if write := r.cell(row.id, row.work, "round trip"+suffixP50); write != "" {
						text = "a write takes " + write
					}
				}
				line = append(line, text)
			}
			cells = append(cells, line)
		}
		return markdown(corner, titles, cells)
	}
}

// storeTable returns the table of a store, in which Holdfast is the first column.
func storeTable(id, name string, others ...pageColumn) func(*Report) string {
	return table("pairs per second", append([]pageColumn{{"Holdfast", us}}, others...),
		pageRow{"64 goroutines, own names", id, name + ", " + workOwn, ""},
		pageRow{"1 goroutine", id, name + ", " + workOne, ""},
		pageRow{"64 goroutines, one name, one client", id, name + ", " + workHot, ""},
		pageRow{"16 clients, one name", id, name + ", " + work16, ""},
		pageRow{"64 clients, one name", id, name + ", " + work64, ""},
		pageRow{"hand-off between processes, p50", id, name + ", " + workHandOff, suffixP50})
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
	var rows [][]string
	for i := range r.Rows {
		row := &r.Rows[i]
		if !strings.HasPrefix(row.ID, "P8") || row.Unit != pairs || row.Who != us {
			continue
		}
		_, label, _ := strings.Cut(row.Work, ", ")
		for _, line := range [][2]string{{": pairs per second", ""}, {": p99 of the wait", suffixWait}, {": locks of the busiest / idlest", suffixUnfair}} {
			rows = append(rows, []string{label + line[0], r.cell(row.ID, row.Work, us+line[1]), r.cell(row.ID, row.Work, "redsync"+line[1])})
		}
	}
	if hung := r.cell("P8", redisQuorum.work(workHung), us+suffixHung); hung != "" {
		rows = append(rows, []string{
			"one node hung: p99 of a pair, against all healthy", hung + " ×",
			"one Lock takes " + r.cell("P8", redisQuorum.work(workHung), "redsync"+suffixHungLock),
		})
	}
	return markdown("", []string{"Holdfast", "redsync"}, rows)
}

// held returns a figure of P7, the cost of held leases.
func (r *Report) held(suffix string, show func(*Row) string) string {
	if row := r.find("P7", r.workOf("P7", "leases held"), us+suffix); row != nil {
		return show(row)
	}
	return ""
}

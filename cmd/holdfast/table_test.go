package main

import (
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast"
)

// locksNamed returns locks as stores in production have them.
func locksNamed(names ...string) (all []holdfast.Info) {
	for _, name := range names {
		all = append(all, holdfast.Info{Name: name, Holders: []holdfast.Holder{{
			Mode: holdfast.ModeExclusive, Owner: "web-frontend-7f9c5d/31245/ab12cd", Token: 1794942692472766, Age: time.Hour, Left: 20 * time.Second, Meta: "nightly run of the importer",
		}}})
	}
	return all
}

func TestANarrowTableKeepsTheNames(t *testing.T) {
	all := locksNamed("order:1001", "order:1002")
	for _, width := range []int{0, 200, 120, 100, 80} {
		lines := lockTable(all).lines(width)
		for i, name := range []string{"order:1001", "order:1002"} {
			if !strings.HasPrefix(lines[1+i], name+"  ") {
				t.Errorf("width %d: %q", width, lines[1+i])
			}
		}
		for _, line := range lines {
			if width > 0 && columns(line) > width {
				t.Errorf("width %d: %d columns: %q", width, columns(line), line)
			}
		}
	}
	// The columns are cut one after the other.
	for width, want := range map[int]string{
		130: "web-frontend-7f9c5d/31245/ab12cd exclusive 1794942692472766 1h00m 20s - nightly run of the importer",
		120: "web-frontend-7f9c5d/31245/ab12cd exclusive 1794942692472766 1h00m 20s - nightly run of ",
		100: "web-frontend-7f9c5d/31245/ab12cd exclusive 1794942692",
		90:  "web-frontend-7f9c5d/31",
	} {
		line := strings.Join(strings.Fields(lockTable(all).lines(width)[1]), " ")
		if !strings.HasPrefix(line, "order:1001 "+want) {
			t.Errorf("width %d: %q, want %q…", width, line, want)
		}
	}
}

func TestNamesNeverLookAlike(t *testing.T) {
	long := strings.Repeat("a-very-long-name-of-a-tenant/", 4)
	names := []string{long + "1", long + "2", long + "21", "2" + long, "租户订单一二三四五六七八九十", "租户订单一二三四五六七八九百", "short"}
	for width := 20; width < 130; width++ {
		lines := lockTable(locksNamed(names...)).lines(width)
		text := fullScreen(lines, width, 1000)
		for i, name := range names {
			if !strings.HasPrefix(lines[1+i], name+"  ") || !strings.Contains(text, name+"  ") {
				t.Errorf("width %d: %q is cut", width, name)
			}
		}
	}
	if got, want := fullScreen([]string{"123456789", "12345", "1", "2"}, 5, 5), "\x1b[H123456789\x1b[K\n12345\n1\x1b[K\n\x1b[J"; got != want {
		t.Errorf("the screen is %q, want %q", got, want)
	}
}

// Some stores list names in the order of their hashes.
func TestListsAreSortedByName(t *testing.T) {
	lines := lockTable((&filter{}).apply(locksNamed("c", "a", "b"))).lines(0)
	for i, name := range []string{"a", "b", "c"} {
		if !strings.HasPrefix(lines[1+i], name) {
			t.Errorf("line %d: %q", 1+i, lines[1+i])
		}
	}
}

package zkstore

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-lock/holdfast/internal/testing/servers"
	"github.com/holdfast-lock/holdfast/internal/testing/suites"
	"github.com/holdfast-lock/holdfast/store"
	"github.com/holdfast-lock/holdfast/zkstore/internal/wire"
)

// A later format has another number in the data, or another form of the node's name.
func TestARecordOfALaterFormatIsRefusedAndLeftAlone(t *testing.T) {
	addr := servers.StartZooKeeper(t, servers.ZooKeeperOptions{}).Addr()
	a := connect(t, addr)
	const id = suites.NewerID
	for what, node := range map[string][2]string{
		"data":      {"x1.0-" + id + "-0000000000", "3 true " + id + " something"},
		"kept data": {"kx1.0-" + id + "-0000000000", "3 true " + id + " something"},
		"name":      {"held-3", "something"},
	} {
		t.Run(what, func(t *testing.T) {
			s := openQuick(t, "zk://"+addr)
			parent, bucket := s.place(suites.Newer)
			must(t, s.ensure(t.Context(), bucket))
			create := wire.Multi(wire.Create(parent, nil, s.acl, wire.Container), wire.Create(path.Join(parent, node[0]), []byte(node[1]), s.acl, wire.Persistent))
			must(t, a.Do(t.Context(), &wire.Call{Op: create}))
			suites.UnknownFormat(t, s, func() (list []string) {
				for _, child := range a.children(t, parent) {
					get := &wire.Call{Op: wire.Get(path.Join(parent, child), false)}
					must(t, a.Do(suites.Limited(t), get))
					list = append(list, fmt.Sprintf("%s %q %+v", child, get.Data, get.Stat))
				}
				return list
			})
			if err := a.Do(t.Context(), &wire.Call{Op: wire.Delete(path.Join(parent, node[0]), wire.AnyVersion)}, &wire.Call{Op: wire.Delete(parent, wire.AnyVersion)}); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// keptToken matches the token of a kept record, which depends on the number of changes before.
var keptToken = regexp.MustCompile(`( 40000000000 )\d+( )`)

func TestFormats(t *testing.T) {
	suites.Formats(t, func(t *testing.T) suites.FormatServer {
		addr := servers.StartZooKeeper(t, servers.ZooKeeperOptions{}).Addr()
		a, holder := connect(t, addr), openQuick(t, "zk://"+addr)
		t.Cleanup(func() { holder.Close() })
		return suites.FormatServer{
			Open: func(t testing.TB) store.Store { return openQuick(t, "zk://"+addr) },
			Dump: func(t testing.TB) (lines []string) {
				for _, path := range append([]string{defaultRoot + "/token"}, nodes(t, a, defaultRoot)...) { // grants need the tokens
					get := &wire.Call{Op: wire.Get(path, false)}
					must(t, a.Do(t.Context(), get))
					kind := "persistent"
					if get.Stat.EphemeralOwner != 0 {
						kind = "ephemeral"
					}
					if len(get.Data) > 0 { // not the parent of a name
						data := keptToken.ReplaceAllString(string(get.Data), "${1}4096$2")
						lines = append(lines, suites.QuoteFields(kind, path, data))
					}
				}
				slices.Sort(lines[1:])
				return lines
			},
			Load: func(t testing.TB, lines []string) {
				for _, line := range lines {
					node := suites.UnquoteFields(t, line)
					kind := wire.Persistent
					if node[0] == "ephemeral" {
						kind = wire.Ephemeral
					}
					data := strings.ReplaceAll(node[2], " 40000000000 ", " 5000000000 ") // the time of a kept record
					err := holder.ensure(t.Context(), path.Dir(node[1]))
					if err == nil {
						err = holder.wire.Do(t.Context(), &wire.Call{Op: wire.Create(node[1], []byte(data), holder.acl, kind)})
					}
					must(t, err)
				}
			},
			Expire: func() { holder.Close() },
		}
	})
}

func TestAWaiterOfALaterFormatDisturbsNoHolder(t *testing.T) {
	addr := servers.StartZooKeeper(t, servers.ZooKeeperOptions{}).Addr()
	a, s := connect(t, addr), openQuick(t, "zk://"+addr)
	parent, _ := s.place(suites.Newer)
	const newer = "waits-3"
	suites.NewerWaiter(t, s, openQuick(t, "zk://"+addr), func() error {
		return a.Do(t.Context(), &wire.Call{Op: wire.Create(path.Join(parent, newer), []byte("something"), s.acl, wire.Persistent)})
	})
	if left := a.children(t, parent); len(left) != 1 || left[0] != newer {
		t.Errorf("nodes %q are left, want only %q", left, newer)
	}
}

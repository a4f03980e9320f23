package zkstore

import (
	"fmt"
	"path"
	"testing"

	"github.com/holdfast-lock/holdfast/internal/testing/servers"
	"github.com/holdfast-lock/holdfast/internal/testing/suites"
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
			defer s.Close()
			parent, bucket := s.place(suites.Newer)
			if err := s.ensure(t.Context(), bucket); err != nil {
				t.Fatal(err)
			}
			create := wire.Multi(wire.Create(parent, nil, s.acl, wire.Container), wire.Create(path.Join(parent, node[0]), []byte(node[1]), s.acl, wire.Persistent))
			if err := a.Do(t.Context(), &wire.Call{Op: create}); err != nil {
				t.Fatal(err)
			}
			suites.UnknownFormat(t, s, func() (list []string) {
				for _, child := range a.children(t, parent) {
					get := &wire.Call{Op: wire.Get(path.Join(parent, child), false)}
					if err := a.Do(suites.Limited(t), get); err != nil {
						t.Fatal(err)
					}
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

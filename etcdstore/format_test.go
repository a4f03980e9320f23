package etcdstore

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-lock/holdfast/internal/testing/servers"
	"github.com/holdfast-lock/holdfast/internal/testing/suites"
	"github.com/holdfast-lock/holdfast/store"
)

// A later format has another number, or another kind of key among those of the holders.
func TestARecordOfALaterFormatIsRefusedAndLeftAlone(t *testing.T) {
	addr := servers.StartEtcd(t, servers.EtcdOptions{}).Addr()
	client := direct(t, addr)
	keys := newKeys(defaultPrefix)
	name := keys.name(suites.Newer)
	for what, kv := range map[string][2]string{
		"number":  {name + "e", `{"V":2,"ID":"` + suites.NewerID + `","Mode":1,"Weight":1}`},
		"absent":  {name + "e", `{"ID":"` + suites.NewerID + `","Mode":1,"Weight":1}`},
		"kind":    {name + "h7", `{"V":2,"Holder":{}}`},
		"no JSON": {name + "e", "\x02something"},
	} {
		t.Run(what, func(t *testing.T) {
			_, err := client.Put(t.Context(), kv[0], kv[1])
			noError(t, err)
			defer client.Delete(suites.Limited(t), kv[0])
			s := openQuick(t, "etcd://"+addr, quickBeat)
			suites.UnknownFormat(t, s, func() (list []string) {
				resp, err := client.Get(suites.Limited(t), name, clientv3.WithPrefix())
				noError(t, err)
				for _, kv := range resp.Kvs {
					list = append(list, fmt.Sprint(kv))
				}
				return list
			})
		})
	}
}

func TestAWaiterOfALaterFormatDisturbsNoHolder(t *testing.T) {
	addr := servers.StartEtcd(t, servers.EtcdOptions{}).Addr()
	client, s := direct(t, addr), opened(t, addr)
	newer := s.keys.key(suites.Newer, kindWaiting, 7)
	suites.NewerWaiter(t, s, opened(t, addr), func() error {
		_, err := client.Put(t.Context(), newer, "something")
		return err
	})
	resp, err := client.Get(t.Context(), s.keys.name(suites.Newer), clientv3.WithPrefix())
	if err != nil || len(resp.Kvs) != 1 || string(resp.Kvs[0].Key) != newer {
		t.Errorf("%v, %v are left, want only %q", resp, err, newer)
	}
}

func TestFormats(t *testing.T) {
	t.Parallel()
	suites.Formats(t, func(t *testing.T) suites.FormatServer {
		addr := servers.StartEtcd(t, servers.EtcdOptions{}).Addr()
		client := direct(t, addr)
		return suites.FormatServer{
			Open: func(t testing.TB) store.Store { return openQuick(t, "etcd://"+addr, slowBeat) },
			Dump: func(t testing.TB) (lines []string) {
				resp, err := client.Get(t.Context(), defaultPrefix, clientv3.WithPrefix(), clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend))
				noError(t, err)
				for _, kv := range resp.Kvs {
					key := strings.Replace(string(kv.Key), strconv.FormatInt(kv.Lease, 16), "LEASE", 1)
					lines = append(lines, suites.QuoteFields(key, string(kv.Value)))
				}
				return lines
			},
			Load: func(t testing.TB, lines []string) {
				for _, line := range lines {
					kv := suites.UnquoteFields(t, line)
					lease, err := client.Grant(t.Context(), 5)
					if err == nil {
						_, err = client.Put(t.Context(), strings.Replace(kv[0], "LEASE", strconv.FormatInt(int64(lease.ID), 16), 1), kv[1], clientv3.WithLease(lease.ID))
					}
					noError(t, err)
				}
			},
		}
	})
}

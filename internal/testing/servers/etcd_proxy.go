package servers

import (
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-lock/holdfast/internal/testing/ports"
)

// An EtcdProxy is an "etcd grpc-proxy" in front of etcd servers.
type EtcdProxy struct {
	*Process
	endpoint
}

// StartEtcdProxy starts a proxy, without TLS, in front of the servers with these addresses, and
// waits until it has connected to them.
func StartEtcdProxy(t testing.TB, addrs ...string) *EtcdProxy {
	t.Helper()
	dir := t.TempDir()
	p := &EtcdProxy{endpoint: endpoint{ports.Reserve(t)}}
	p.Process = newProcess(t, dir, program{
		binary: "etcd",
		args: []string{
			"grpc-proxy", "start",
			"--endpoints=" + strings.Join(addrs, ","),
			"--listen-addr=" + p.Addr(),
			"--advertise-client-url=" + p.Addr(),
			"--data-dir=" + filepath.Join(dir, "data"),
		},
		ready: p.healthy,
		paths: builtTools(),
	})
	startAll(p)
	return p
}

func (p *EtcdProxy) healthy() error {
	client := http.Client{Timeout: etcdRequest, Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Get("http://" + p.Addr() + "/health")
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("health of %s: %s", p.Addr(), response.Status)
	}
	return nil
}

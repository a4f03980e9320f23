package rediscore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast/internal/stores/diagnosis"
	"github.com/holdfast-lock/holdfast/store"
)

var answersCheck = diagnosis.New("redis.answers", store.LevelFailure,
	"a server does not answer: names that it keeps cannot be locked, and their leases are lost",
	"start the server, or promote its replica; see whether it can be reached from this host")

// Diagnose checks each server that has keys: see store.Diagnoser. It reads INFO, a few settings by CONFIG GET,
// and the slow log. Values that the user has no right to read are reported as unknown.
func (s *Store) Diagnose(ctx context.Context, ttl time.Duration) []store.Finding {
	if err := s.calls.EnterCall(ctx); err != nil {
		return []store.Finding{answersCheck.Unknown(err)}
	}
	defer s.calls.Exit()
	var findings []store.Finding
	servers, err := s.conn.Servers(ctx)
	if err = denied(err, "ROLE"); isDenied(err) {
		findings = append(findings, answersCheck.Unknown(err))
	} else if err != nil {
		findings = append(findings, answersCheck.Bad("%v", err))
	}
	var ahead []time.Duration
	for _, server := range servers {
		n := &node{Server: server, ctx: ctx, ttl: ttl, config: &s.config}
		n.info, n.infoErr = n.fields("INFO")
		found := []store.Finding{answersCheck.OK("the server answers")}
		if n.infoErr != nil && !isDenied(n.infoErr) {
			found[0] = answersCheck.Bad("%v", n.infoErr)
		} else {
			found = append(found, diagnosis.Run(server.Addr, n, probes)...)
			clock, d, ok := diagnosis.Clock(ttl, n.clock)
			if ok {
				ahead = append(ahead, d)
			}
			found = append(found, clock)
		}
		findings = append(findings, diagnosis.On(server.Addr, found)...)
	}
	if len(ahead) > 1 {
		findings = append(findings, diagnosis.Spread(ttl, ahead))
	}
	return findings
}

// A node is a server that is examined.
type node struct {
	Server
	ctx     context.Context
	ttl     time.Duration
	config  *Config
	info    map[string]string
	infoErr error
	err     error // the first one of a look
}

// fail records the error of a look, unless it is nil or there was one before.
func (n *node) fail(err error) { n.err = cmp.Or(n.err, err) }

// denied returns err as a Denied if it says that a right is missing.
func denied(err error, command string) error {
	for _, word := range []string{"NOPERM", "unknown command", "not allowed"} { // managed services remove or block commands
		if strings.Contains(fmt.Sprint(err), word) {
			return &diagnosis.Denied{Right: command, Err: err}
		}
	}
	return err
}

func isDenied(err error) bool { return errors.As(err, new(*diagnosis.Denied)) }

// do runs a command. If it is not allowed, the error names its first words, which must not be secrets.
func (n *node) do(args ...string) (any, error) {
	v, err := n.Do(n.ctx, args...)
	return v, denied(err, strings.Join(args[:min(2, len(args))], " "))
}

// fields runs a command whose reply has lines such as "name:value".
func (n *node) fields(args ...string) (map[string]string, error) {
	v, err := n.do(args...)
	return Fields(text(v)), err
}

// Fields parses a text with lines such as "name:value".
func Fields(text string) map[string]string {
	all := make(map[string]string)
	text = strings.TrimPrefix(text, "txt:") // the format of a verbatim string, which some libraries keep
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			all[name] = value
		}
	}
	return all
}

// field returns a field of INFO.
func (n *node) field(name string) string {
	n.fail(n.infoErr)
	value, ok := n.info[name]
	if !ok {
		n.fail(fmt.Errorf("INFO of this server has no %s", name))
	}
	return value
}

// count returns a field of INFO that is a number.
func (n *node) count(name string) int64 { return n.parse(n.field(name)) }

// setting reads a setting with CONFIG GET.
func (n *node) setting(name string) string {
	v, err := n.do("CONFIG", "GET", name)
	n.fail(err)
	value, ok := pairs(v)[name]
	if !ok {
		n.fail(fmt.Errorf("this server has no setting %s", name))
	}
	return value
}

// number returns a setting that is a number.
func (n *node) number(name string) int64 { return n.parse(n.setting(name)) }

func (n *node) parse(value string) int64 {
	number, err := strconv.ParseInt(value, 10, 64)
	n.fail(err)
	return number
}

// pairs converts a reply with names and values. In newer versions of the protocol it is a map.
func pairs(v any) map[string]string {
	all := make(map[string]string)
	for pair := range slices.Chunk(list(v), 2) {
		all[text(pair[0])] = text(pair[len(pair)-1])
	}
	named, _ := v.(map[string]any)
	for name, value := range named {
		all[name] = text(value)
	}
	return all
}

// clock reads the server's clock.
func (n *node) clock() (time.Time, error) {
	v, err := n.do("TIME")
	parts := list(v)
	if err != nil || len(parts) != 2 {
		return time.Time{}, cmp.Or(err, errRecord)
	}
	seconds, err1 := strconv.ParseInt(text(parts[0]), 10, 64)
	micros, err2 := strconv.ParseInt(text(parts[1]), 10, 64)
	return time.Unix(seconds, micros*1000), errors.Join(err1, err2)
}

func (n *node) isCluster() bool   { return n.config.Cluster }
func (n *node) hasReplicas() bool { return n.count("connected_slaves") > 0 }
func (n *node) hasAOF() bool      { return n.field("aof_enabled") == "1" }

// forgets looks whether the server writes its data to disk.
func (n *node) forgets() (bad bool, found string) {
	if n.hasAOF() || n.err != nil {
		return false, "append-only file"
	}
	if save := n.setting("save"); save != "" {
		return false, "snapshots, save " + save
	}
	return true, "no append-only file and no snapshots"
}

func percent(part, whole int64) int64 { return part * 100 / max(1, whole) }

func size(bytes int64) string {
	if bytes < 1<<20 {
		return fmt.Sprintf("%.1f KiB", float64(bytes)/(1<<10))
	}
	return fmt.Sprintf("%.1f MiB", float64(bytes)/(1<<20))
}

// older reports whether a version is less than another, both such as "6.0.6".
func older(version, than string) bool {
	var a, b [3]int
	fmt.Sscanf(version, "%d.%d.%d", &a[0], &a[1], &a[2])
	fmt.Sscanf(than, "%d.%d.%d", &b[0], &b[1], &b[2])
	return slices.Compare(a[:], b[:]) < 0
}

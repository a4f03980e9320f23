package suites

import (
	"bytes"
	"cmp"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/store"
)

// Newer is the name of the record in a test of UnknownFormat, and NewerID is its identity.
const Newer, NewerID = "newer", "0123456789abcdef0123456789abcdef"

// UnknownFormat tests that a store refuses every call for the name Newer, whose record has an unknown format, and
// leaves it as it is. Dump returns the contents of the server that belong to Newer.
func UnknownFormat(t *testing.T, s store.Store, dump func() []string) {
	t.Helper()
	ctx := Limited(t)
	id, err := store.ParseID(NewerID)
	before := dump()
	if err != nil || len(before) == 0 {
		t.Fatalf("the record does not exist (%v)", err)
	}
	acquire := func(req store.Request) func() error {
		return func() error { _, err := s.Acquire(ctx, req); return err }
	}
	shared, block := Request(Newer), Request(Newer)
	shared.Mode, block.Tokens = store.Shared, 10
	for what, call := range map[string]func() error{
		"Acquire":           acquire(Request(Newer)),
		"Acquire, queued":   acquire(Queued(Newer)),
		"Acquire, shared":   acquire(shared),
		"Acquire, a block":  acquire(block),
		"Break":             func() error { return s.Break(ctx, Newer, id) },
		"List, by name":     func() error { _, err := s.List(ctx, store.Query{Name: Newer}); return err },
		"List, by a prefix": func() error { _, err := s.List(ctx, store.Query{Prefix: Newer[:2]}); return err },
	} {
		err := call()
		if !errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), Newer) || !strings.Contains(err.Error(), "update this program") {
			t.Errorf("%s: %v; want an ErrInvalid that has the name and says what to do", what, err)
		}
	}
	other, newer := Request("other"), Request(Newer)
	newer.ID = id
	Granted(t, s, other)
	outcomes, err := s.Renew(ctx, []store.Renewal{Renewal(newer), Renewal(other)})
	if err != nil || !errors.Is(outcomes[0].Err, store.ErrInvalid) || outcomes[1].Status != store.Extended {
		t.Errorf("Renew: %+v, %v; want an ErrInvalid for the record, and that the other grant is renewed", outcomes, err)
	}
	Release(t, s, other)
	if after := dump(); !slices.Equal(after, before) {
		t.Errorf("the record has changed from %q to %q", before, after)
	}
}

// NewerWaiter tests that a holder of the name Newer can renew its grant, and that other can remove it,
// after join has put a waiter of a later format into the queue, which would otherwise wait for ever.
func NewerWaiter(t *testing.T, s, other store.Store, join func() error) {
	t.Helper()
	ctx, req := Limited(t), Request(Newer)
	Granted(t, s, req)
	must(t, join())
	renewal := Renewal(req)
	renewal.Tokens = 10
	if out, err := s.Renew(ctx, []store.Renewal{renewal}); err != nil || out[0].Status != store.Extended || out[0].Tokens != 0 {
		t.Errorf("Renew: %+v, %v; want no further tokens, because another program waits", out, err)
	}
	if err := other.Leave(ctx, req.Name, req.ID); err != nil { // as after a lost reply
		t.Errorf("Leave: %v", err)
	}
}

var updateFormats = flag.Bool("update-formats", false, "write the contents of the servers to testdata: see Formats")

// A FormatServer is a server without locks, for a test of Formats.
type FormatServer struct {
	Open func(t testing.TB) store.Store

	// Dump returns the contents of the server, without random values, as lines that Load accepts.
	Dump func(t testing.TB) []string
	Load func(t testing.TB, lines []string)

	Expire func() // ends all grants; nil if it is enough to wait for formatTTL
}

const (
	formatTTL  = 40 * time.Second // of the grants that are written
	loadedTTL  = 5 * time.Second  // what remains of it when a file is loaded
	formatStep = 5 * time.Second  // resolution of the times in a file
)

// Formats tests that what a store writes has the newest format in testdata, and that it can read all
// formats there. The files are format1, format2 and so on. The file of a format that was released must
// not change, so that programs of two versions exclude each other: see docs/versions.md.
//
// A file has the contents of a server with five names. With -update-formats, the newest file is written.
// Times near the present are {ms+40s} or {us+40s}, and {time}.
func Formats(t *testing.T, start func(t *testing.T) FormatServer) {
	files, err := filepath.Glob("testdata/format*")
	if err != nil || len(files) == 0 {
		t.Fatalf("no files in testdata (%v)", err)
	}
	slices.SortFunc(files, func(a, b string) int { return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b)) })
	t.Run("written", func(t *testing.T) {
		server := start(t)
		s := server.Open(t)
		defer s.Close()
		begin := time.Now()
		takeFormats(t, s)
		got := freeze(strings.Join(server.Dump(t), "\n")+"\n", begin)
		file := files[len(files)-1]
		want, err := os.ReadFile(file)
		if *updateFormats {
			err = os.WriteFile(file, []byte(got), 0o644)
		} else if got != string(want) {
			t.Errorf("the store writes another format than %s; if that is released, add the next file and see docs/versions.md; written only:\n%s\nin the file only:\n%s",
				file, linesWithout(got, string(want)), linesWithout(string(want), got))
		}
		if err != nil {
			t.Error(err)
		}
	})
	for _, file := range files {
		t.Run("read "+filepath.Base(file), func(t *testing.T) {
			text, err := os.ReadFile(file)
			must(t, err)
			server := start(t)
			server.Load(t, strings.Split(strings.TrimSpace(thaw(string(text), time.Now())), "\n"))
			readFormats(t, server)
		})
	}
}

// linesWithout returns the lines of a text that are not in another one.
func linesWithout(text, other string) string {
	lines := strings.Split(other, "\n")
	return strings.Join(slices.DeleteFunc(strings.Split(text, "\n"), func(line string) bool { return slices.Contains(lines, line) }), "\n")
}

func takeFormats(t *testing.T, s store.Store) {
	t.Helper()
	n := byte(0)
	request := func(name string, mode store.Mode, weight, limit int) store.Request {
		n++
		req := Request(name)
		req.ID = store.ID(bytes.Repeat([]byte{0xa0 + n}, len(req.ID)))
		req.TTL, req.Mode, req.Weight, req.Limit, req.Meta = formatTTL, mode, weight, limit, "meta of "+name
		return req
	}
	Granted(t, s, request("alone", store.Exclusive, 1, 0))
	Granted(t, s, request("queued", store.Exclusive, 1, 0))
	waiter := request("queued", store.Exclusive, 1, 0)
	waiter.Queue = true
	Refused(t, s, waiter)
	Granted(t, s, request("shared", store.Shared, 1, 0))
	Granted(t, s, request("shared", store.Shared, 1, 0))
	Granted(t, s, request("permits", store.Permits, 2, 8))
	done := request("done", store.Exclusive, 1, 0)
	done.TTL -= time.Second // so that it is closed for longer, even if both are written in the same millisecond
	Granted(t, s, done)
	must(t, s.Release(Limited(t), done.Name, done.ID, store.Keep{State: store.Done, For: formatTTL}))
}

// readFormats checks that the names of a file are held until they expire.
func readFormats(t *testing.T, server FormatServer) {
	t.Helper()
	s := server.Open(t)
	defer s.Close()
	tokens := make(map[string]int64)
	for name, want := range map[string]string{
		"alone":   "exclusive 1 of 0, held by a1",
		"queued":  "exclusive 1 of 0, held by a2, waiter a3",
		"shared":  "shared 1 of 0, held by a4, shared 1 of 0, held by a5",
		"permits": "permits 2 of 8, held by a6",
		"done":    "exclusive 1 of 0, done by a7",
	} {
		page, err := s.List(Limited(t), store.Query{Name: name})
		if err != nil || len(page.Locks) != 1 {
			t.Fatalf("List %q: %+v, %v", name, page.Locks, err)
		}
		var got []string
		for _, h := range page.Locks[0].Holders {
			got = append(got, fmt.Sprintf("%v %d of %d, %v by %.2s", h.Mode, h.Weight, page.Locks[0].Limit, h.State, h.ID))
			tokens[name] = max(tokens[name], h.Token)
			if h.Owner != Request(name).Owner || h.Meta != "meta of "+name || h.Token == 0 || h.Left <= 0 {
				t.Errorf("%s: %+v", name, h)
			}
		}
		for _, w := range page.Locks[0].Waiters {
			got = append(got, fmt.Sprintf("waiter %.2s", w.ID))
		}
		slices.Sort(got)
		if text := strings.Join(got, ", "); text != want {
			t.Errorf("%s is %s, want %s", name, text, want)
		}
		Refused(t, s, Request(name))
	}
	if server.Expire != nil {
		server.Expire()
	}
	for name, token := range tokens {
		req := Request(name)
		Eventually(t, name+" is not granted after the TTL of its holders", func() bool {
			answer, err := s.Acquire(Limited(t), req)
			must(t, err)
			if answer.Granted() && answer.Token <= token {
				t.Errorf("%s: token %d after %d", name, answer.Token, token)
			}
			return answer.Granted()
		})
		Release(t, s, req)
	}
}

var (
	number    = regexp.MustCompile(`\d+`)
	timestamp = regexp.MustCompile(`\d{4}-\d\d-\d\dT[\d:.]+(Z|[+-]\d\d:\d\d)`)
	frozen    = regexp.MustCompile(`\{(ms|us)\+(\d+)s\}`)
)

// freeze replaces times near the present.
func freeze(text string, now time.Time) string {
	text = timestamp.ReplaceAllString(text, "{time}")
	return number.ReplaceAllStringFunc(text, func(digits string) string {
		n, err := strconv.ParseInt(digits, 10, 64)
		for unit, at := range map[string]func(int64) time.Time{"ms": time.UnixMilli, "us": time.UnixMicro} {
			if d := at(n).Sub(now).Round(formatStep); err == nil && d.Abs() < time.Hour {
				return fmt.Sprintf("{%s+%ds}", unit, d/time.Second)
			}
		}
		return digits
	})
}

// thaw is the reverse of freeze. Times in the future become loadedTTL.
func thaw(text string, now time.Time) string {
	text = strings.ReplaceAll(text, "{time}", now.Format(time.RFC3339Nano))
	return frozen.ReplaceAllStringFunc(text, func(match string) string {
		at := now
		if !strings.HasSuffix(match, "+0s}") {
			at = now.Add(loadedTTL)
		}
		if strings.HasPrefix(match, "{ms") {
			return strconv.FormatInt(at.UnixMilli(), 10)
		}
		return strconv.FormatInt(at.UnixMicro(), 10)
	})
}

// QuoteFields returns a line with these fields.
func QuoteFields(fields ...string) string {
	for i := range fields {
		fields[i] = strconv.Quote(fields[i])
	}
	return strings.Join(fields, " ")
}

// UnquoteFields returns the fields of a line.
func UnquoteFields(t testing.TB, line string) (fields []string) {
	t.Helper()
	for line != "" {
		quoted, err := strconv.QuotedPrefix(line)
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		field, _ := strconv.Unquote(quoted)
		fields = append(fields, field)
		line = strings.TrimPrefix(line[len(quoted):], " ")
	}
	return fields
}

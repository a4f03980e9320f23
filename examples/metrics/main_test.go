package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/fence"
	"github.com/holdfast-lock/holdfast/memstore"
	"github.com/holdfast-lock/holdfast/store"
)

const deploy = "../../deploy"

// scrape returns the metrics in the form that Prometheus gets. Like Prometheus, it declares that
// it can read names with dots.
func scrape(t *testing.T, h http.Handler) string {
	t.Helper()
	r := httptest.NewRequest("GET", "/metrics", nil)
	r.Header.Set("Accept", "text/plain;version=1.0.0;escaping=allow-utf-8;q=0.6,text/plain;version=0.0.4;q=0.5")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if w.Code != http.StatusOK {
		t.Fatalf("status %d: %s", w.Code, w.Body)
	}
	return w.Body.String()
}

func promtool(t *testing.T, stdin string, args ...string) {
	t.Helper()
	cmd := exec.Command("promtool", args...)
	cmd.Stdin = strings.NewReader(stdin)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// A breakable is a store whose renewals fail while it is broken.
type breakable struct {
	store.Store
	broken atomic.Bool
}

func (b *breakable) Renew(ctx context.Context, grants []store.Renewal) ([]store.Renewed, error) {
	if b.broken.Load() {
		return nil, errors.New("connection reset")
	}
	return b.Store.Renew(ctx, grants)
}

func (b *breakable) Acquire(ctx context.Context, req store.Request) (store.Answer, error) {
	if b.broken.Load() {
		return store.Answer{}, errors.New("connection reset")
	}
	return b.Store.Acquire(ctx, req)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestMetrics(t *testing.T) {
	healthy, all := everything(t)
	t.Run("every metric that is queried exists", func(t *testing.T) { everyMetricThatIsQueriedExists(t, all) })
	t.Run("the dashboard shows every metric", func(t *testing.T) { theDashboardShowsEveryMetric(t, all) })
	t.Run("counters of failures begin with zero", func(t *testing.T) { countersOfFailuresBeginWithZero(t, healthy, all) })
}

// everything makes each event that the metrics count happen once. It returns the metrics before
// any failure and at the end.
func everything(t *testing.T) (healthy, all string) {
	t.Helper()
	observer, handler, err := observed()
	must(t, err)
	s := &breakable{Store: memstore.New()}
	ctx := t.Context()
	c, err := holdfast.New(s, holdfast.WithTTL(600*time.Millisecond), holdfast.WithObserver(observer.Observe))
	must(t, err)
	lease, err := c.Lock(ctx, "order:1")
	must(t, err)
	if _, err := c.Lock(ctx, "order:1", holdfast.Wait(500*time.Millisecond)); !errors.Is(err, holdfast.ErrHeld) { // meanwhile it is renewed
		t.Fatal(err)
	}
	campaign, resign := context.WithCancel(ctx)
	go c.Campaign(campaign, "order:1", func(context.Context) error { return nil })
	defer resign()
	healthy = scrape(t, handler)
	if _, err := c.Lock(ctx, "order:2"); err != nil { // and never unlocked
		t.Fatal(err)
	}
	for begin := time.Now(); !regexp.MustCompile(`holdfast_leaks_total{[^}]*} 1`).MatchString(scrape(t, handler)); time.Sleep(10 * time.Millisecond) {
		if time.Since(begin) > 30*time.Second {
			t.Fatal("a leak was not found")
		}
		runtime.GC()
	}
	s.broken.Store(true)
	<-lease.Done()
	if _, err := c.Lock(ctx, "order:3", holdfast.Wait(100*time.Millisecond)); err == nil {
		t.Fatal("acquired from a broken store")
	}
	if err := observer.Fence(ctx, fence.ErrStale); err == nil {
		t.Fatal("no error")
	}
	s.broken.Store(false)
	if lease, err = c.Lock(ctx, "order:1"); err != nil {
		t.Fatal(err)
	}
	must(t, lease.Unlock(ctx))
	c.Close()
	return healthy, scrape(t, handler)
}

var (
	word   = regexp.MustCompile(`\bholdfast_[a-z_]+\b`)
	sample = regexp.MustCompile(`(?m)^(holdfast_[a-z_]+)({.*})? `)
	kind   = regexp.MustCompile(`(?m)^# TYPE (holdfast_[a-z_]+) `)
	label  = regexp.MustCompile(`[{,](holdfast_[a-z_]+)="`)
)

// names returns the names that an expression finds in a text, without duplicates.
func names(text string, expression *regexp.Regexp) []string {
	var all []string
	for _, match := range expression.FindAllStringSubmatch(text, -1) {
		all = append(all, match[len(match)-1])
		if expression == sample {
			all[len(all)-1] = match[1]
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func everyMetricThatIsQueriedExists(t *testing.T, all string) {
	promtool(t, all, "check", "metrics")
	exist := append(names(all, sample), names(all, label)...)
	for _, file := range []string{"grafana/holdfast.json", "prometheus/alerts.yml", "prometheus/alerts_test.yml"} {
		text, err := os.ReadFile(filepath.Join(deploy, file))
		must(t, err)
		queried := names(string(text), word)
		if len(queried) < 5 {
			t.Errorf("%s queries only %v", file, queried)
		}
		for _, name := range queried {
			if !slices.Contains(exist, name) {
				t.Errorf("%s queries %s, which does not exist; there are %v", file, name, exist)
			}
		}
	}
	// The labels that the alerts compare must have these values, and names are grouped.
	for _, want := range []string{`holdfast_result="unavailable"`, `holdfast_result="error"`, `holdfast_reason="max_hold"`, `holdfast_name="order"`} {
		if !strings.Contains(all, want) {
			t.Errorf("no %s in:\n%s", want, all)
		}
	}
}

// The dashboard shows every metric, standby leaders apart from waiting calls, and its page lists
// the panels.
func theDashboardShowsEveryMetric(t *testing.T, all string) {
	text, err := os.ReadFile(filepath.Join(deploy, "grafana/holdfast.json"))
	must(t, err)
	page, err := os.ReadFile(filepath.Join(deploy, "README.md"))
	must(t, err)
	var dashboard struct {
		Panels []struct {
			Title, Description string
			Targets            []struct{ Expr string }
		}
	}
	must(t, json.Unmarshal(text, &dashboard))
	shown := make(map[string][]string) // the first name in each query of a panel
	var queries strings.Builder
	for _, p := range dashboard.Panels {
		for _, target := range p.Targets {
			queries.WriteString(target.Expr)
			shown[p.Title] = append(shown[p.Title], word.FindString(target.Expr))
		}
		if line := "| " + p.Title + " | " + p.Description + " |"; !bytes.Contains(page, []byte(line)) {
			t.Errorf("deploy/README.md has no line %q", line)
		}
	}
	for _, name := range names(all, kind) {
		if !strings.Contains(queries.String(), name) {
			t.Errorf("the dashboard does not show %s", name)
		}
	}
	for title, want := range map[string]string{"Waiting now": "holdfast_waiting", "Standing by now": "holdfast_standby"} {
		if got := shown[title]; !slices.Equal(got, []string{want}) {
			t.Errorf("%q shows %v, want %s", title, got, want)
		}
	}
}

// For Prometheus, a counter that starts at 1 has not increased. It would miss the first loss.
func countersOfFailuresBeginWithZero(t *testing.T, healthy, all string) {
	for _, series := range []string{
		`holdfast_losses_total{[^}]*holdfast_reason="expired"[^}]*}`, `holdfast_losses_total{[^}]*holdfast_reason="gone"[^}]*}`,
		`holdfast_leaks_total{[^}]*}`, `holdfast_errors_total{[^}]*}`, `holdfast_fence_rejections_total{[^}]*}`,
		`holdfast_renewals_total{[^}]*holdfast_result="error"[^}]*}`,
	} {
		if !regexp.MustCompile(series + " 0").MatchString(healthy) {
			t.Errorf("%s is not 0 before the first failure:\n%s", series, healthy)
		}
		if strings.Contains(series, "gone") {
			continue
		}
		if !regexp.MustCompile(series + " [1-9]").MatchString(all) {
			t.Errorf("%s does not count:\n%s", series, all)
		}
	}
}

func TestTheAlertRulesPassTheirTests(t *testing.T) {
	promtool(t, "", "check", "rules", filepath.Join(deploy, "prometheus/alerts.yml"))
	promtool(t, "", "test", "rules", filepath.Join(deploy, "prometheus/alerts_test.yml"))
	rules, err := os.ReadFile(filepath.Join(deploy, "prometheus/alerts.yml"))
	must(t, err)
	tests, err := os.ReadFile(filepath.Join(deploy, "prometheus/alerts_test.yml"))
	must(t, err)
	for _, rule := range names(string(rules), regexp.MustCompile(`alert: (\w+)`)) {
		if !bytes.Contains(tests, []byte("alertname: "+rule+"\n")) {
			t.Errorf("the alert %s has no test", rule)
		}
	}
}

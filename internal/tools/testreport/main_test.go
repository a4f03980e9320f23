package main

import (
	"strings"
	"testing"
)

const events = `{"Action":"start","Package":"p"}
{"Action":"run","Package":"p","Test":"TestGood"}
{"Action":"output","Package":"p","Test":"TestGood","Output":"=== RUN   TestGood\n"}
{"Action":"output","Package":"p","Test":"TestGood","Output":"    p_test.go:1: chatter\n"}
{"Action":"pass","Package":"p","Test":"TestGood"}
{"Action":"output","Package":"p","Test":"TestAway/sub","Output":"=== RUN   TestAway/sub\n"}
{"Action":"output","Package":"p","Test":"TestAway/sub","Output":"    p_test.go:2: no server here\n"}
{"Action":"output","Package":"p","Test":"TestAway/sub","Output":"    --- SKIP: TestAway/sub (0.00s)\n"}
{"Action":"skip","Package":"p","Test":"TestAway/sub"}
{"Action":"output","Package":"p","Output":"PASS\n"}
{"Action":"output","Package":"p","Output":"ok  \tp\t0.1s\n"}
{"Action":"pass","Package":"p"}
go: a word of its own
{"Action":"output","Package":"q","Test":"TestBad","Output":"    q_test.go:3: got 1, want 2\n"}
{"Action":"fail","Package":"q","Test":"TestBad"}
{"Action":"output","Package":"q","Test":"TestHung","Output":"panic: test timed out\n"}
{"Action":"output","Package":"q","Output":"FAIL\tq\t0.1s\n"}
{"Action":"fail","Package":"q"}
{"Action":"output","Package":"r","Output":"?   \tr\t[no test files]\n"}
{"Action":"skip","Package":"r"}
`

func TestReportShowsFailuresAndSkipsAndKeepsPassingTestsQuiet(t *testing.T) {
	var out strings.Builder
	r := newReport(&out)
	if err := r.read(strings.NewReader(events)); err != nil {
		t.Fatal(err)
	}
	r.sum()
	want := "ok  \tp\t0.1s\n" +
		"go: a word of its own\n" +
		"    q_test.go:3: got 1, want 2\n" +
		"panic: test timed out\n" +
		"FAIL\tq\t0.1s\n" +
		"?   \tr\t[no test files]\n" +
		"SKIP p TestAway/sub: p_test.go:2: no server here\n" +
		"1 passed, 1 failed, 1 skipped\n"
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
}

func TestASkippedTestOrNoneIsAFailureInCIOnly(t *testing.T) {
	for _, r := range []*report{{passed: 1, skipped: []string{"p TestAway"}}, {}} {
		if r.verdict(true) == nil {
			t.Errorf("%+v passed in CI", r)
		}
		if err := r.verdict(false); err != nil {
			t.Error("outside of CI:", err)
		}
	}
}

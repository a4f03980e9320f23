package fence_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/fence"
	"github.com/holdfast-lock/holdfast/internal/testing/suites"
)

const patience = suites.Patience

func path(r *http.Request) string { return r.URL.Path }

// serve starts a real server whose resources are guarded by gates.
func serve(t *testing.T, next http.HandlerFunc) (*httptest.Server, *fence.Gates) {
	gates := new(fence.Gates)
	server := httptest.NewServer(fence.Handler(gates, path, next))
	t.Cleanup(server.Close)
	return server, gates
}

// put sends a request with these values of the header.
func put(t *testing.T, url string, tokens ...string) (*http.Response, string) {
	t.Helper()
	req := request(t, t.Context(), url, nil)
	req.Header[fence.Header] = tokens
	resp, err := (&http.Client{Timeout: patience}).Do(req)
	must(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	wantNil(t, err)
	return resp, string(body)
}

func TestHandlerAnswersByTheToken(t *testing.T) {
	for _, test := range []struct {
		name   string
		tokens []string
		status int
		says   string
	}{
		{"missing", nil, 428, "acquire the lock"},
		{"word", []string{"seven"}, 400, `"seven"`},
		{"2^53", []string{"9007199254740992"}, 400, "1 to 2^53-1"},
		{"list", []string{"70, 71"}, 400, "decimal digits"},
		{"two headers", []string{"70", "70"}, 400, "want one"},
		{"lower", []string{"6"}, 412, "has seen 7"},
		{"equal", []string{"7"}, 200, "served 7"},
		{"higher", []string{"8"}, 200, "served 8"},
	} {
		t.Run(test.name, func(t *testing.T) {
			server, gates := serve(t, func(w http.ResponseWriter, r *http.Request) {
				fmt.Fprint(w, "served ", fence.TokenFrom(r.Context()))
			})
			wantNil(t, gates.Gate("/doc").Check(7))
			resp, body := put(t, server.URL+"/doc", test.tokens...)
			if resp.StatusCode != test.status || !strings.Contains(body, test.says) {
				t.Errorf("got %d %q, want %d with %q", resp.StatusCode, body, test.status, test.says)
			}
			if test.status != 200 && (strings.Contains(body, "served") || !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/plain")) {
				t.Errorf("refused with %q as %s", body, resp.Header.Get("Content-Type"))
			}
			highest := ""
			if test.status == 412 {
				highest = "7"
			}
			if got := resp.Header.Get(fence.HeaderHighest); got != highest {
				t.Errorf("%s: %q, want %q", fence.HeaderHighest, got, highest)
			}
			if test.status == 400 || test.status == 428 {
				if got := gates.Gate("/doc").Highest(); got != 7 {
					t.Errorf("a refused request raised the gate to %d", got)
				}
			}
		})
	}
}

func TestPanicInAHandlerLeavesTheGateUsable(t *testing.T) {
	server, _ := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		if fence.TokenFrom(r.Context()) == 1 {
			panic(http.ErrAbortHandler)
		}
	})
	req := request(t, t.Context(), server.URL+"/doc", nil)
	fence.SetHeader(req, 1)
	if resp, err := http.DefaultClient.Do(req); err == nil {
		resp.Body.Close()
		t.Errorf("the aborted request was answered with %d", resp.StatusCode)
	}
	if resp, body := put(t, server.URL+"/doc", "2"); resp.StatusCode != 200 {
		t.Errorf("got %d %q", resp.StatusCode, body)
	}
}

// Fencing must handle a holder that is paused in the middle of its upload.
func TestStalledUploadDoesNotDelayTheNextHolder(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		t.Run(fmt.Sprintf("http2=%t", http2), func(t *testing.T) { testStalledUpload(t, http2) })
	}
}

func testStalledUpload(t *testing.T, http2 bool) {
	began := make(chan struct{})
	stopped := make(chan error, 1)
	cause := make(chan error, 1)
	var gates fence.Gates
	server := httptest.NewUnstartedServer(fence.Handler(&gates, path, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if (r.ProtoMajor == 2) != http2 {
			t.Errorf("served over %s", r.Proto)
		}
		if fence.TokenFrom(r.Context()) != 1 {
			return
		}
		close(began)
		_, err := io.ReadAll(r.Body)
		stopped <- err
		cause <- context.Cause(r.Context())
	})))
	server.EnableHTTP2 = http2
	server.StartTLS()
	defer server.Close()
	send := func(token int64, body io.Reader) error {
		req, err := http.NewRequest(http.MethodPut, server.URL+"/doc", body)
		if err != nil {
			return err
		}
		fence.SetHeader(req, token)
		resp, err := server.Client().Do(req)
		if err != nil {
			return err
		}
		resp.Body.Close()
		if resp.StatusCode != 200 {
			return errors.New(resp.Status)
		}
		return nil
	}

	body, upload := io.Pipe()
	defer upload.Close() // otherwise the server cannot close
	old := async(func() error { return send(1, body) })
	_, err := io.WriteString(upload, "the first few bytes")
	wantNil(t, err)
	receive(t, began)
	newer := async(func() error { return send(2, nil) })
	if err := receive(t, stopped); err == nil {
		t.Error("the stalled upload was read to its end")
	}
	wantNil(t, receive(t, newer))
	var stale *fence.StaleError
	if err := receive(t, cause); !errors.As(err, &stale) || stale.Token != 1 || stale.Highest != 2 {
		t.Errorf("the request's context ended with %v, want a StaleError", err)
	}
	upload.Close()
	receive(t, old) // the result does not matter, because its connection may be closed
}

func TestOvertakenRequestCanStillAnswer(t *testing.T) {
	began := make(chan struct{})
	server, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if fence.TokenFrom(r.Context()) == 1 {
			_, _ = io.ReadAll(r.Body)
			close(began)
			<-r.Context().Done()
			http.Error(w, context.Cause(r.Context()).Error(), http.StatusConflict)
		}
	})
	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	must(t, err)
	defer conn.Close()
	fmt.Fprint(conn, "PUT /doc HTTP/1.1\r\nHost: x\r\nFencing-Token: 1\r\nContent-Length: 3\r\n\r\nall")
	receive(t, began)
	put(t, server.URL+"/doc", "2")
	_ = conn.SetReadDeadline(time.Now().Add(patience))
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	must(t, err)
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	if resp.StatusCode != http.StatusConflict || !strings.Contains(string(body), "has seen 2") {
		t.Errorf("got %d %q", resp.StatusCode, body)
	}
}

func TestWaitingRequestLeavesWithItsClient(t *testing.T) {
	gates := new(fence.Gates)
	guarded := fence.Handler(gates, path, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("token %d was served inside older work", fence.TokenFrom(r.Context()))
	}))
	wantNil(t, gates.Gate("/doc").Do(1, func() error {
		ctx, cancel := context.WithCancel(t.Context())
		req := httptest.NewRequestWithContext(ctx, http.MethodPut, "/doc", nil)
		fence.SetHeader(req, 2)
		w := httptest.NewRecorder()
		left := async(func() int {
			guarded.ServeHTTP(w, req)
			return w.Code
		})
		suites.Eventually(t, "the request does not wait", func() bool { return gates.Gate("/doc").Highest() == 2 })
		cancel()
		if got := receive(t, left); got != http.StatusServiceUnavailable {
			t.Errorf("got %d", got)
		}
		return nil
	}))
}

func FuzzHeader(f *testing.F) {
	for _, s := range []string{"", "0", "1", "-1", "+1", "01", "1 ", "1,2", "0x70", "7_0", "70.0", "7e1", "٧٠", "9007199254740991", "9007199254740992", "9223372036854775808", "18446744073709551623", "１"} {
		f.Add(s)
	}
	serveToken := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, fence.TokenFrom(r.Context()))
	})
	f.Fuzz(func(t *testing.T, header string) {
		var gates fence.Gates
		r := httptest.NewRequest(http.MethodPut, "/doc", nil)
		r.Header[fence.Header] = []string{header}
		w := httptest.NewRecorder()
		fence.Handler(&gates, path, serveToken).ServeHTTP(w, r)

		want := canonical(header)
		switch {
		case want && (w.Code != 200 || w.Body.String() != header || strconv.FormatInt(gates.Gate("/doc").Highest(), 10) != header):
			t.Errorf("%q: %d %q, want it served", header, w.Code, w.Body)
		case !want && (w.Code != 400 || gates.Gate("/doc").Highest() != 0):
			t.Errorf("%q: %d %q, want 400", header, w.Code, w.Body)
		}
	})
}

// canonical reports whether s is a number from 1 to 2^53-1. It only compares characters, and does
// not use strconv.
func canonical(s string) bool {
	const limit = "9007199254740992"
	return s != "" && s[0] != '0' && strings.Trim(s, "0123456789") == "" &&
		(len(s) < len(limit) || len(s) == len(limit) && s < limit)
}

func async[T any](f func() T) <-chan T {
	c := make(chan T, 1)
	go func() { c <- f() }()
	return c
}

func receive[T any](t *testing.T, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(patience):
		t.Fatalf("nothing happened for %v", patience)
		panic("unreachable")
	}
}

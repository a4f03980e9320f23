package fence_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/fence"
	"github.com/holdfast-lock/holdfast/memstore"
)

// locks returns a client on a store of its own.
func locks(t *testing.T) *holdfast.Client {
	c, err := holdfast.New(memstore.New())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { wantNil(t, c.Close()) })
	return c
}

// lock takes the lock of the test's resource and returns a context made from the lease.
func lock(t *testing.T, c *holdfast.Client) (context.Context, *holdfast.Lease) {
	t.Helper()
	lease, err := c.TryLock(t.Context(), "doc")
	if err != nil {
		t.Fatal(err)
	}
	return lease.Context(t.Context()), lease
}

// fenced returns an HTTP client whose connections end with the test.
func fenced(t *testing.T) *http.Client {
	client := &http.Client{
		Transport: &fence.Transport{Base: http.DefaultTransport.(*http.Transport).Clone()},
		Timeout:   patience,
	}
	t.Cleanup(client.CloseIdleConnections)
	return client
}

func request(t *testing.T, ctx context.Context, url string, body io.Reader) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, url, body)
	if err != nil {
		t.Fatal(err)
	}
	return req
}

func TestTransportSendsTheTokenOfTheLease(t *testing.T) {
	server, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, fence.TokenFrom(r.Context()), " ")
		_, _ = io.Copy(w, r.Body)
	})
	ctx, lease := lock(t, locks(t))
	req := request(t, ctx, server.URL, strings.NewReader("body"))
	before := req.Header.Clone()
	resp, err := fenced(t).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	wantNil(t, err)
	if want := fmt.Sprint(lease.Token(), " body"); string(body) != want {
		t.Errorf("the server got %q, want %q", body, want)
	}
	if len(req.Header) != len(before) {
		t.Errorf("the request was changed: %v", req.Header)
	}
}

func TestTransportSendsTheTokenOfTheInnermostLease(t *testing.T) {
	server, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, fence.TokenFrom(r.Context()))
	})
	c := locks(t)
	ctx, _ := lock(t, c)
	err := c.Do(ctx, "inner", func(ctx context.Context) error {
		req := request(t, ctx, server.URL, nil)
		fence.SetHeader(req, 12345) // the token of another lease, by mistake
		resp, err := fenced(t).Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if want := fmt.Sprint(holdfast.TokenFrom(ctx)); string(body) != want {
			t.Errorf("the server got %q, want %q", body, want)
		}
		return err
	})
	wantNil(t, err)
}

// closeCounter is a body that counts how often it was closed.
type closeCounter struct {
	io.Reader
	closed atomic.Int32
}

func (c *closeCounter) Close() error { c.closed.Add(1); return nil }

func TestTransportSendsNothingWithoutALease(t *testing.T) {
	sent := false
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { sent = true }))
	defer server.Close()
	body := &closeCounter{Reader: strings.NewReader("body")}
	for _, req := range []*http.Request{
		request(t, t.Context(), server.URL, body),
		request(t, t.Context(), server.URL, nil),
	} {
		resp, err := (&fence.Transport{}).RoundTrip(req)
		if resp != nil || !errors.Is(err, holdfast.ErrInvalid) || !strings.Contains(err.Error(), "Lease.Context") {
			t.Errorf("got %v, %v; want ErrInvalid that says what to do", resp, err)
		}
	}
	if sent {
		t.Error("the request was sent")
	}
	if n := body.closed.Load(); n != 1 {
		t.Errorf("the body was closed %d times, want once", n)
	}
}

func TestTransportReturnsErrStaleToAStaleHolder(t *testing.T) {
	server, _ := serve(t, func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) })
	c, client := locks(t), fenced(t)
	first, lease := lock(t, c)
	// The holder is paused and does not notice that its lease is over.
	paused := context.WithoutCancel(first)
	wantNil(t, lease.Unlock(t.Context()))
	second, newer := lock(t, c)
	resp, err := client.Do(request(t, second, server.URL, nil))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()

	var reused []bool
	trace := &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) { reused = append(reused, info.Reused) }}
	for range 2 {
		body := &closeCounter{Reader: strings.NewReader("stale write")}
		resp, err := client.Do(request(t, httptrace.WithClientTrace(paused, trace), server.URL, body))
		if err == nil {
			resp.Body.Close()
		}
		var stale *fence.StaleError
		if !errors.Is(err, fence.ErrStale) || !errors.As(err, &stale) {
			t.Fatalf("got %v, want ErrStale", err)
		}
		if stale.Token != lease.Token() || stale.Highest != newer.Token() {
			t.Errorf("got %+v, want token %d and highest %d", stale, lease.Token(), newer.Token())
		}
	}
	if len(reused) != 2 || !reused[0] || !reused[1] {
		t.Errorf("connections reused: %v: a refusal's body was not read to its end", reused)
	}
}

func TestTransportPassesOtherAnswersOn(t *testing.T) {
	for _, test := range []struct {
		name    string
		status  int
		highest string
	}{
		{"412 of another condition", 412, ""},
		{"412 with a word", 412, "high"},
		{"412 with a lower token", 412, "1"},
		{"another status with the header", 409, "9007199254740991"},
		{"428", 428, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				if test.highest != "" {
					w.Header().Set(fence.HeaderHighest, test.highest)
				}
				http.Error(w, "reason", test.status)
			}))
			defer server.Close()
			ctx, _ := lock(t, locks(t))
			resp, err := fenced(t).Do(request(t, ctx, server.URL, nil))
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			body, err := io.ReadAll(resp.Body)
			wantNil(t, err)
			if resp.StatusCode != test.status || string(body) != "reason\n" {
				t.Errorf("got %d %q", resp.StatusCode, body)
			}
		})
	}
}

// fakeBase answers every request with status 412, the header for a stale token, and an endless
// body.
type fakeBase struct {
	body *closeCounter
	idle int
}

func (b *fakeBase) RoundTrip(req *http.Request) (*http.Response, error) {
	return &http.Response{
		StatusCode: http.StatusPreconditionFailed,
		Header:     http.Header{fence.HeaderHighest: {"9007199254740991"}},
		Body:       b.body,
		Request:    req,
	}, nil
}

func (b *fakeBase) CloseIdleConnections() { b.idle++ }

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

func TestTransportClosesTheBodyOfARefusalHoweverLong(t *testing.T) {
	ctx, _ := lock(t, locks(t))
	base := &fakeBase{body: &closeCounter{Reader: zeros{}}}
	client := &http.Client{Transport: &fence.Transport{Base: base}}
	resp, err := client.Do(request(t, ctx, "http://resource.invalid", nil))
	if err == nil {
		resp.Body.Close()
	}
	wantStale(t, err)
	if n := base.body.closed.Load(); n != 1 {
		t.Errorf("the body was closed %d times, want once", n)
	}
	if client.CloseIdleConnections(); base.idle != 1 {
		t.Errorf("idle connections of the base were closed %d times, want once", base.idle)
	}
}

func TestTransportReturnsTheErrorOfItsBase(t *testing.T) {
	ctx, lease := lock(t, locks(t))
	wantNil(t, lease.Unlock(t.Context()))
	server, _ := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("sent under a lease that is over") })
	resp, err := fenced(t).Do(request(t, ctx, server.URL, nil))
	if err == nil {
		resp.Body.Close()
		t.Error("a request under a context that had ended was answered")
	}
}

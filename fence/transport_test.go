package fence_test

import (
	"context"
	"crypto/rand"
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
	"github.com/holdfast-lock/holdfast/internal/testing/suites"
	"github.com/holdfast-lock/holdfast/memstore"
)

// locks returns a client on a store of its own.
func locks(t *testing.T) *holdfast.Client { return suites.Client(t, memstore.New()) }

// lock takes the lock of the test's resource and returns a context made from the lease.
func lock(t *testing.T, c *holdfast.Client) (context.Context, *holdfast.Lease) {
	t.Helper()
	lease, err := c.TryLock(t.Context(), "doc")
	must(t, err)
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
	must(t, err)
	return req
}

func TestTransportSendsTheTokenOfTheInnermostLease(t *testing.T) {
	server, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, fence.TokenFrom(r.Context()), " ")
		_, _ = io.Copy(w, r.Body)
	})
	c := locks(t)
	outer, _ := lock(t, c)
	wantNil(t, c.Do(outer, "inner", func(inner context.Context) error {
		for _, ctx := range []context.Context{outer, inner} {
			req := request(t, ctx, server.URL, strings.NewReader("body"))
			fence.SetHeader(req, 12345) // the token of another lease, by mistake
			resp, err := fenced(t).Do(req)
			if err != nil {
				return err
			}
			body, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			if want := fmt.Sprint(holdfast.TokenFrom(ctx), " body"); string(body) != want {
				t.Errorf("the server got %q, want %q", body, want)
			}
			if req.Header.Get(fence.Header) != "12345" {
				t.Errorf("the request was changed: %v", req.Header)
			}
			wantNil(t, err)
		}
		return nil
	}))
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
	must(t, err)
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

// A fakeBase answers every request.
type fakeBase struct {
	status  int
	highest string
	body    *closeCounter
	idle    int
}

func (b *fakeBase) RoundTrip(req *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: b.status, Header: http.Header{fence.HeaderHighest: {b.highest}}, Body: b.body, Request: req}, nil
}

func (b *fakeBase) CloseIdleConnections() { b.idle++ }

func TestTransportPassesOtherAnswersOn(t *testing.T) {
	ctx, _ := lock(t, locks(t))
	for _, base := range []*fakeBase{
		{status: 412}, // of another condition
		{status: 412, highest: "high"},
		{status: 412, highest: "1"}, // lower
		{status: 409, highest: "9007199254740991"},
		{status: 428},
	} {
		base.body = &closeCounter{Reader: strings.NewReader("reason")}
		resp, err := (&fence.Transport{Base: base}).RoundTrip(request(t, ctx, "http://resource.invalid", nil))
		if err != nil {
			t.Errorf("%d %q: %v", base.status, base.highest, err)
			continue
		}
		if body, err := io.ReadAll(resp.Body); resp.StatusCode != base.status || string(body) != "reason" || err != nil {
			t.Errorf("got %d %q, %v", resp.StatusCode, body, err)
		}
		resp.Body.Close()
	}
}

func TestTransportClosesTheBodyOfARefusalHoweverLong(t *testing.T) {
	ctx, _ := lock(t, locks(t))
	base := &fakeBase{status: 412, highest: "9007199254740991", body: &closeCounter{Reader: rand.Reader}}
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

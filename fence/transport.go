package fence

import (
	"fmt"
	"io"
	"net/http"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/store"
)

// maxDrain is how much of a refusal's body is read so that the connection can be used
// again; a longer one costs the connection.
const maxDrain = 64 << 10

// A Transport is an http.RoundTripper that sends with each request the token of the
// innermost lease that its context was made from (see holdfast.Lease.Context).
//
// It returns an error that matches holdfast.ErrInvalid, and sends nothing, if the context
// was made from no lease; and a *StaleError if the resource answers that the token is
// stale, as [Handler] does. Every other response is passed on.
type Transport struct {
	// Base sends the requests; nil means http.DefaultTransport.
	Base http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	token := holdfast.TokenFrom(req.Context())
	if token == 0 {
		if req.Body != nil {
			req.Body.Close() // as every RoundTripper must
		}
		return nil, fmt.Errorf("holdfast: %w: the request's context was made from no lease: make the request with the context of Client.Do or Lease.Context", store.ErrInvalid)
	}
	sent := req.Clone(req.Context()) // a RoundTripper must not change the request
	SetHeader(sent, token)
	resp, err := t.base().RoundTrip(sent)
	if err != nil {
		return nil, err
	}
	if stale := staleOf(resp, token); stale != nil {
		_, _ = io.CopyN(io.Discard, resp.Body, maxDrain)
		resp.Body.Close()
		return nil, stale
	}
	return resp, nil
}

// CloseIdleConnections passes the call of an http.Client on to Base.
func (t *Transport) CloseIdleConnections() {
	if base, ok := t.base().(interface{ CloseIdleConnections() }); ok {
		base.CloseIdleConnections()
	}
}

func (t *Transport) base() http.RoundTripper {
	if t.Base == nil {
		return http.DefaultTransport
	}
	return t.Base
}

// staleOf returns an error if the response says that token is stale. A 412 has other
// meanings too, and then comes without that header.
func staleOf(resp *http.Response, token int64) error {
	if resp.StatusCode != http.StatusPreconditionFailed {
		return nil
	}
	highest, err := parseToken(resp.Header.Get(HeaderHighest))
	if err != nil || highest <= token {
		return nil
	}
	return &StaleError{Token: token, Highest: highest}
}

package fence_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/fence"
	"github.com/holdfast-lock/holdfast/memstore"
)

// A holder that was paused until after the end of its lease continues and writes.
func ExampleGate_Do() {
	var gate fence.Gate
	balance := 100
	set := func(token int64, amount int) error {
		return gate.Do(token, func() error {
			balance = amount
			return nil
		})
	}

	fmt.Println(set(33, 90))
	fmt.Println(set(34, 80)) // the next holder
	err := set(33, 70)       // the first one, too late
	fmt.Println(errors.Is(err, fence.ErrStale))
	fmt.Println(err)
	fmt.Println("balance", balance)
	// Output:
	// <nil>
	// <nil>
	// true
	// holdfast: stale fencing token 33: the resource has seen 34, so the lease with token 33 is over; stop this work and acquire the lock again
	// balance 80
}

// A holder raises the gate after it has acquired the lock, before it reads.
func ExampleGate_Raise() {
	var gate fence.Gate
	fmt.Println(gate.Raise(34) == nil)
	// Nothing was written with token 34 yet, but token 33 is already refused:
	fmt.Println(errors.Is(gate.Check(33), fence.ErrStale))
	// Output:
	// true
	// true
}

// A service that keeps documents, and a client that writes to one under a lock.
func Example_http() {
	var gates fence.Gates
	save := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, err := io.ReadAll(r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		fmt.Fprintf(w, "%s saved under token %d: %s", r.PathValue("id"), fence.TokenFrom(r.Context()), text)
	})
	document := func(r *http.Request) string { return r.PathValue("id") }
	mux := http.NewServeMux()
	mux.Handle("PUT /documents/{id}", fence.Handler(&gates, document, save))
	server := httptest.NewServer(mux)
	defer server.Close()

	locks, err := holdfast.New(memstore.New())
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()
	client := &http.Client{Transport: &fence.Transport{}}
	err = locks.Do(context.Background(), "document:7", func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodPut, server.URL+"/documents/7", strings.NewReader("hello"))
		if err != nil {
			return err
		}
		resp, err := client.Do(req)
		if err != nil {
			return err // fence.ErrStale if a newer holder has written
		}
		defer resp.Body.Close()
		answer, err := io.ReadAll(resp.Body)
		fmt.Println(string(answer))
		return err
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output:
	// 7 saved under token 1: hello
}

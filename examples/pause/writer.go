package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/fence"
)

// reportLines is the length of the report, which is written line by line.
const reportLines = 6

// A writer writes a report to a file server. Only one process at a time may do that, so it holds a lock.
type writer struct {
	locks   *holdfast.Client
	storage string // URL
	author  string
	before  func(line int) // called before each line, for the demonstration
}

// The transport of client adds the token of the lease to every request.
var client = &http.Client{Transport: new(fence.Transport), Timeout: 10 * time.Second}

func (w *writer) writeReport(ctx context.Context) error {
	return w.locks.Do(ctx, "report", func(ctx context.Context) error {
		fmt.Println("holds the lock with token", holdfast.TokenFrom(ctx))
		for line := 1; line <= reportLines; line++ {
			w.before(line)
			// A program should stop here if its context is cancelled, and that is nearly always in time.
			// But a process can be suspended after the check, or when the write is already in a buffer of
			// the kernel. WithoutCancel simulates such a write, which is sent although the lease is over.
			if err := w.put(context.WithoutCancel(ctx), line); err != nil {
				return err // errors.Is(err, fence.ErrStale) if another process holds the lock now
			}
		}
		return nil
	})
}

func (w *writer) put(ctx context.Context, line int) error {
	body := strings.NewReader("line " + fmt.Sprint(line) + " by " + w.author)
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, fmt.Sprintf("%s/report/%d", w.storage, line), body)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusNoContent {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 1000))
		return fmt.Errorf("%s: %s", resp.Status, text)
	}
	return nil
}

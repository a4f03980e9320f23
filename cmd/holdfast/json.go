package main

import (
	"bytes"
	"encoding/json"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/internal/core/printable"
	"github.com/holdfast-lock/holdfast/store"
)

// A lockJSON is a lock in the format of ls, show and watch with --json.
type lockJSON struct {
	Name    string       `json:"name"`
	Limit   int          `json:"limit,omitempty"`
	Holders []holderJSON `json:"holders"`
	Waiters []waiterJSON `json:"waiters"`
}

type holderJSON struct {
	ID      string    `json:"id"`
	Owner   string    `json:"owner"`
	Meta    string    `json:"meta,omitempty"`
	Mode    string    `json:"mode"`
	Permits int       `json:"permits,omitempty"`
	Token   int64     `json:"token"`
	State   string    `json:"state"`
	Since   time.Time `json:"since"`
	Left    float64   `json:"left_seconds"`
}

type waiterJSON struct {
	ID      string    `json:"id"`
	Owner   string    `json:"owner"`
	Meta    string    `json:"meta,omitempty"`
	Mode    string    `json:"mode"`
	Permits int       `json:"permits,omitempty"`
	Since   time.Time `json:"since"`
}

func locksJSON(locks []holdfast.Info) []lockJSON {
	all := []lockJSON{}
	for _, info := range locks {
		l := lockJSON{info.Name, info.Limit, holdersJSON(info.Holders), []waiterJSON{}}
		for _, w := range info.Waiters {
			l.Waiters = append(l.Waiters, waiterJSON{w.ID.String(), w.Owner, w.Meta, w.Mode.String(), permits(w.Mode, w.Weight), time.Now().Add(-w.Age)})
		}
		all = append(all, l)
	}
	return all
}

func holdersJSON(holders []holdfast.Holder) []holderJSON {
	all := []holderJSON{}
	for _, h := range holders {
		all = append(all, holderJSON{h.ID.String(), h.Owner, h.Meta, h.Mode.String(), permits(h.Mode, h.Weight), h.Token, h.State.String(), time.Now().Add(-h.Age), *seconds(h.Left)})
	}
	return all
}

func permits(mode store.Mode, n int) int {
	if mode != store.Permits {
		return 0
	}
	return n
}

// outputJSON writes each value as a line of JSON to stdout, which may be a terminal.
func outputJSON[T any](values ...T) error {
	for _, v := range values {
		var line bytes.Buffer
		enc := json.NewEncoder(&line)
		enc.SetEscapeHTML(false)
		if err := enc.Encode(v); err != nil {
			return err
		}
		if err := output(string(printable.EscapeJSON(line.Bytes()))); err != nil {
			return err
		}
	}
	return nil
}

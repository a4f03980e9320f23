package store

import (
	"context"
	"time"
)

// A Level says how serious a Finding is.
type Level uint8

// The levels of findings. A setting that could not be read has LevelUnknown, and never LevelOK.
const (
	LevelOK Level = iota
	LevelNote
	LevelUnknown
	LevelWarning
	LevelFailure
)

// String returns the level in one word, such as "warning".
func (l Level) String() string {
	return word(l, "invalid", "ok", "note", "unknown", "warning", "failure")
}

// A Finding is the outcome of one check of a store.
type Finding struct {
	ID     string // of the check; stable, such as "redis.eviction"
	Node   string // the server that was checked; empty if the finding is about the store as a whole
	Level  Level
	Found  string // what was found
	Risk   string // what can go wrong; empty for LevelOK
	Remedy string // what to set or to do; empty for LevelOK
}

// A Diagnoser is a store that can check whether its servers are set up safely for locks with that
// TTL. Diagnose leaves no trace in the store. Findings contain no password. A setting that cannot
// be read has LevelUnknown, and the finding says which right is missing.
//
// A store with several servers returns the findings of each of them. A store that is made of
// other stores returns their findings with the Node set, and may raise their levels.
type Diagnoser interface {
	Diagnose(ctx context.Context, ttl time.Duration) []Finding
}

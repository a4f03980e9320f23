package redis

import (
	"crypto/sha1"
	_ "embed"
	"encoding/hex"
	"fmt"
)

// A Script is run by its SHA1. A server that does not know it says NOSCRIPT, and is sent
// the text then.
type Script struct {
	Text string
	SHA  string
}

// NewScript returns a script of that text.
func NewScript(text string) *Script {
	sum := sha1.Sum([]byte(text))
	return &Script{Text: text, SHA: hex.EncodeToString(sum[:])}
}

var (
	//go:embed scripts/take.lua
	takeText string
	//go:embed scripts/many.lua
	manyText string
	//go:embed scripts/extend.lua
	extendText string
	//go:embed scripts/join.lua
	joinText string
	//go:embed scripts/pass.lua
	passText string
	//go:embed scripts/state.lua
	stateText string
	//go:embed scripts/acquire.lua
	acquireText string
	//go:embed scripts/release.lua
	releaseText string
	//go:embed scripts/renew.lua
	renewText string
	//go:embed scripts/show.lua
	showText string

	take    = NewScript(takeText)
	many    = NewScript(manyText)
	extend  = NewScript(extendText)
	join    = NewScript(joinText)
	pass    = NewScript(passText)
	acquire = NewScript(stateText + acquireText)
	release = NewScript(stateText + releaseText)
	renew   = NewScript(stateText + renewText)
	show    = NewScript(stateText + showText)
)

// A ReplicasError means that too few replicas confirmed a write in time. The server has it,
// but a failover may lose it.
type ReplicasError struct{ Want, Got int }

func (e *ReplicasError) Error() string {
	return fmt.Sprintf("only %d of %d replicas confirmed it in time: see whether they run and keep up, or ask for fewer", e.Got, e.Want)
}

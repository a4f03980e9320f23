package rediscore

import (
	"crypto/sha1"
	"embed"
	"encoding/hex"
	"strings"
)

//go:embed scripts/*.lua
var scriptFiles embed.FS

var (
	plainScript   = join("clock", "tokens", "plain")
	acquireScript = join("clock", "name", "tokens", "join", "state", "acquire")
	releaseScript = join("clock", "name", "tokens", "push", "state", "release")
	renewScript   = join("clock", "name", "tokens", "state", "renew")
	showScript    = join("clock", "name", "tokens", "state", "show")
	extendScript  = join("extend")
)

// A Script is run by its SHA1. A server that does not know it replies NOSCRIPT, and then gets the text.
type Script struct{ Text, SHA string }

// NewScript returns a script with this text.
func NewScript(text string) *Script {
	sum := sha1.Sum([]byte(text))
	return &Script{Text: text, SHA: hex.EncodeToString(sum[:])}
}

// join makes one script from several files.
func join(names ...string) *Script {
	var text strings.Builder
	for _, name := range names {
		part, err := scriptFiles.ReadFile("scripts/" + name + ".lua")
		if err != nil {
			panic(err) // a name above is wrong
		}
		text.Write(part)
	}
	return NewScript(text.String())
}

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
	plainScript   = newScript(join("clock", "tokens", "plain"))
	acquireScript = newScript(join("clock", "name", "tokens", "join", "state", "acquire"))
	releaseScript = newScript(join("clock", "name", "tokens", "pass", "state", "release"))
	renewScript   = newScript(join("clock", "name", "tokens", "state", "renew"))
	showScript    = newScript(join("clock", "name", "tokens", "state", "show"))
	extendScript  = newScript(join("extend"))
	fenceText     = join("fence")
)

// A Script is run by its SHA1. A server that does not know it replies NOSCRIPT, and is then
// sent the text.
type Script struct{ Text, SHA string }

func newScript(text string) *Script {
	sum := sha1.Sum([]byte(text))
	return &Script{Text: text, SHA: hex.EncodeToString(sum[:])}
}

// join joins files.
func join(names ...string) string {
	var text strings.Builder
	for _, name := range names {
		part, err := scriptFiles.ReadFile("scripts/" + name + ".lua")
		if err != nil {
			panic(err) // a name above is wrong
		}
		text.Write(part)
	}
	return text.String()
}

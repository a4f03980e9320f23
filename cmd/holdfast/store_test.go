package main

import (
	"testing"
	"time"
)

func TestTheURLOfAZooKeeperServerGetsASessionThatAllowsTheTTL(t *testing.T) {
	for url, want := range map[string]string{
		"zk://h":             "zk://h?session=2m6s",
		"zks://h":            "zks://h?session=2m6s",
		"zks://h?ca=f":       "zks://h?ca=f&session=2m6s",
		"zks://h?session=9s": "zks://h?session=9s",
		"redis://h":          "redis://h",
	} {
		if got := withSession(url, 100*time.Second); got != want {
			t.Errorf("%s: %s, want %s", url, got, want)
		}
	}
}

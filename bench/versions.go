package main

import (
	"bufio"
	"cmp"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/debug"
	"strings"
)

var versionNumber = regexp.MustCompile(`\d+\.\d+(\.\d+)?`)

// versions returns the versions of the servers that are installed, and of the peers that this
// program was built with.
func versions() map[string]string {
	found := make(map[string]string)
	note := func(name, text string) {
		if v := versionNumber.FindString(text); v != "" {
			found[name] = v
		}
	}
	postgres, _ := filepath.Glob("/usr/lib/postgresql/*/bin/postgres")
	for name, commands := range map[string][]string{
		"Redis":      {"redis-server"},
		"etcd":       {filepath.Join(".bin", "etcd"), "etcd"},
		"MariaDB":    {"mariadbd"},
		"PostgreSQL": append(postgres, "postgres"),
	} {
		for _, command := range commands {
			if out, err := exec.Command(command, "--version").Output(); err == nil {
				note(name, string(out))
				break
			}
		}
	}
	jar := cmp.Or(os.Getenv("ZOOKEEPER_JAR"), "/usr/share/java/zookeeper.jar")
	if named, _ := filepath.Glob(filepath.Join(filepath.Dir(jar), "zookeeper-[0-9]*.jar")); len(named) > 0 {
		note("ZooKeeper", filepath.Base(named[0]))
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			switch m.Path {
			case "github.com/bsm/redislock", "github.com/go-redsync/redsync/v4", "github.com/redis/rueidis",
				"go.etcd.io/etcd/client/v3", "github.com/go-zookeeper/zk", "modernc.org/sqlite":
				found[m.Path] = m.Version
			}
		}
	}
	return found
}

// cpu returns the model name of the processor.
func cpu() string {
	file, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return runtime.GOARCH
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if name, value, ok := strings.Cut(lines.Text(), ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOARCH
}

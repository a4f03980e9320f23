package main

import (
	"bytes"
	"cmp"
	"context"
	"os"
	"os/exec"
	"slices"
	"strings"

	"github.com/holdfast-lock/holdfast/internal/tools/must"
)

// A command is a folder in which programs run, and what they have in addition to our environment.
type command struct {
	dir string
	env []string
}

// run runs a program and returns its standard output. The error of a failure has its whole output.
func (c command) run(ctx context.Context, name string, args ...string) string {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = c.dir
	// In a git hook, the hook's variables would make git use the hook's repository.
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "GIT_DIR=") || strings.HasPrefix(v, "GIT_INDEX_FILE=") || strings.HasPrefix(v, "GIT_WORK_TREE=")
	})
	cmd.Env = append(cmd.Env, c.env...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		must.Fail("in %s: %s %s: %w\n%s%s", cmp.Or(c.dir, "."), name, strings.Join(args, " "), err, &stdout, &stderr)
	}
	return strings.TrimRight(stdout.String(), "\n")
}

// lines is like run, and splits the output into lines.
func (c command) lines(ctx context.Context, name string, args ...string) []string {
	out := c.run(ctx, name, args...)
	if out == "" {
		return nil
	}
	return strings.Split(out, "\n")
}

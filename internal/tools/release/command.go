package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
)

// A command describes how to run programs: in which folder, and with which additions to our own
// environment.
type command struct {
	dir string
	env []string
}

// run runs a program and returns its standard output. If the program fails, the error contains
// its whole output.
func (c command) run(ctx context.Context, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = c.dir
	// If a git hook runs this program, the hook's variables would make git use the hook's
	// repository.
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "GIT_DIR=") || strings.HasPrefix(v, "GIT_INDEX_FILE=") || strings.HasPrefix(v, "GIT_WORK_TREE=")
	})
	cmd.Env = append(cmd.Env, c.env...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s%s", name, strings.Join(args, " "), err, &stdout, &stderr)
	}
	return strings.TrimRight(stdout.String(), "\n"), nil
}

// lines is like run, and splits the output into lines.
func (c command) lines(ctx context.Context, name string, args ...string) ([]string, error) {
	out, err := c.run(ctx, name, args...)
	if out == "" {
		return nil, err
	}
	return strings.Split(out, "\n"), err
}

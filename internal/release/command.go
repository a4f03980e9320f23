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

// A command is a program to run, with the place where it runs and what its environment has
// beside our own.
type command struct {
	dir string
	env []string
}

// run returns what the program prints to standard output. If the program fails, the error
// has everything that it printed.
func (c command) run(ctx context.Context, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = c.dir
	// A git hook that runs us has variables that would lead git to its repository.
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

// lines is like run, and splits the output.
func (c command) lines(ctx context.Context, name string, args ...string) ([]string, error) {
	out, err := c.run(ctx, name, args...)
	if out == "" {
		return nil, err
	}
	return strings.Split(out, "\n"), err
}

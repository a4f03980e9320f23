package main

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/examples/internal/stores"
	"github.com/holdfast-lock/holdfast/internal/testing/servers"
)

func TestMain(m *testing.M) { stores.Main(m, main) }

func TestManyRequestsCreateOneUser(t *testing.T) {
	requests = 60
	postgres := servers.StartPostgres(t, servers.PostgresOptions{}).URL()
	stores.Play(t, example, "60 requests, 3 instances, 1 killed: 1 row ", postgres)
}

// The standard input of an instance ends when its parent does, even if the parent is killed.
func TestAnInstanceEndsWithItsStandardInput(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	self, err := os.Executable()
	cmd := exec.CommandContext(ctx, self, "instance", "a", "2s", t.TempDir()+"/data.db")
	cmd.Env = append(os.Environ(), "HOLDFAST_STORE=sqlite:"+t.TempDir()+"/locks.db")
	stdin, stdinErr := cmd.StdinPipe()
	output, outputErr := cmd.StdoutPipe()
	if err := errors.Join(err, stdinErr, outputErr, cmd.Start()); err != nil {
		t.Fatal(err)
	}
	io.WriteString(stdin, "start\n")
	for lines := bufio.NewScanner(output); lines.Scan(); {
		if strings.HasPrefix(lines.Text(), "listening on ") {
			stdin.Close()
		}
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

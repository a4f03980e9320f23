//go:build unix

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// deploy is the folder with files for users to copy.
const deploy = "../../deploy"

func readDeploy(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(deploy, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// runTwice starts the same command line on two hosts at the same time, with a job that takes a
// moment. The job must run once, and both commands must succeed.
func (s *site) runTwice(line, job string) {
	s.t.Helper()
	if strings.Count(line, job) != 1 {
		s.t.Fatalf("%q does not run %s", line, job)
	}
	s.write("job", "#!/bin/sh\necho run >>\"$DIR/runs\"; sleep 0.2\n")
	line = strings.Replace(line, job, s.path("job"), 1)
	var hosts []*process
	for range 2 {
		hosts = append(hosts, s.program("/bin/sh", "-c", line).start())
	}
	for _, p := range hosts {
		p.wantCode(0)
		if said := p.out.String() + p.err.String(); said != "" {
			s.t.Errorf("%s: cron would send a mail: %s", line, said)
		}
	}
	if runs := s.read("runs"); runs != "run\n" {
		s.t.Errorf("%s: two hosts ran it: %q", line, runs)
	}
}

func TestTheCrontabLineRunsAJobOnOneHost(t *testing.T) {
	s := newSite(t)
	var line string
	for l := range strings.Lines(readDeploy(t, "cron/holdfast")) {
		if fields := strings.Fields(l); len(fields) > 6 && !strings.HasPrefix(l, "#") {
			line = strings.Join(fields[6:], " ") // the command is after five fields of time and the user
		}
		if strings.Contains(l, "%") {
			t.Errorf("cron takes %% as the end of a command: %q", l)
		}
	}
	s.runTwice(line, "/usr/local/bin/backup.sh")
}

func TestTheSystemdUnitsAreValidAndRunAJobOnOneHost(t *testing.T) {
	s := newSite(t)
	const installed = "/usr/local/bin/holdfast"
	service := readDeploy(t, "systemd/nightly-backup.service")
	for name, text := range map[string]string{
		"nightly-backup.service": strings.Replace(service, installed, command, 1), // verify looks for the program
		"nightly-backup.timer":   readDeploy(t, "systemd/nightly-backup.timer"),
	} {
		if err := os.WriteFile(s.path(name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("systemd-analyze", "verify", "--man=no", s.path("nightly-backup.service"), s.path("nightly-backup.timer"))
	if out, err := cmd.CombinedOutput(); err != nil || strings.Contains(string(out), "nightly-backup") { // there may be warnings about other units
		t.Errorf("%s: %v\n%s", cmd, err, out)
	}
	line := serviceCommand(t)
	if timer := readDeploy(t, "systemd/nightly-backup.timer"); !strings.Contains(timer, "\nOnCalendar=*-*-* 02:00:00 UTC\n") {
		t.Errorf("the date in the name of the lock changes at 02:00 UTC; the timer starts at another time:\n%s", timer)
	}
	s.runTwice(line, "/usr/local/bin/backup.sh")
}

// serviceCommand returns the command line of the systemd service, for a shell, with the holdfast in
// PATH.
func serviceCommand(t *testing.T) string {
	t.Helper()
	_, line, ok := strings.Cut(readDeploy(t, "systemd/nightly-backup.service"), "\nExecStart=")
	if !ok {
		t.Fatal("the service starts nothing")
	}
	line, _, _ = strings.Cut(line, "\n")
	return strings.NewReplacer("$$", "$", "%%", "%", "/usr/local/bin/holdfast", "holdfast").Replace(line)
}

// A timer with Persistent=true starts the job on a host as soon as the host is on again.
func TestAHostThatBootsLateNeitherRepeatsNorSkipsANight(t *testing.T) {
	s := newSite(t)
	if !strings.Contains(readDeploy(t, "systemd/nightly-backup.timer"), "\nPersistent=true\n") {
		t.Fatal("the timer does not start missed runs")
	}
	date, err := exec.LookPath("date")
	if err != nil {
		t.Fatal(err)
	}
	s.write("date", "#!/bin/sh\n[ \"$1 $2\" = '-u -d' ] && exec "+date+" -u -d \"$NOW UTC $3\" \"$4\"\n")
	s.write("job", "#!/bin/sh\necho run >>\"$DIR/runs\"\n")
	line := strings.Replace(serviceCommand(t), "/usr/local/bin/backup.sh", s.path("job"), 1)
	for _, start := range []struct {
		now  string
		runs int
	}{
		{"2026-01-01 02:00", 1},
		{"2026-01-01 02:00:01", 1}, // another host
		{"2026-01-01 15:00", 1},    // a host that boots late
		{"2026-01-02 02:00", 2},    // the next night
		{"2026-01-04 01:00", 3},    // all hosts were off at 02:00 of the third
		{"2026-01-04 02:00", 4},
	} {
		p := s.program("/bin/sh", "-c", line)
		p.cmd.Env = append(s.env, "NOW="+start.now, "PATH="+s.dir+":"+filepath.Dir(command)+":"+os.Getenv("PATH"))
		p.start().wantCode(0)
		if runs := strings.Count(s.read("runs"), "run\n"); runs != start.runs {
			t.Fatalf("after the start at %s: %d runs, want %d", start.now, runs, start.runs)
		}
	}
}

// manifestCommand returns the command line of the only container in a manifest.
func manifestCommand(t *testing.T, name string) string {
	t.Helper()
	text := readDeploy(t, name)
	if err := yaml.Unmarshal([]byte(text), new(any)); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	_, list, _ := strings.Cut(text, " command: ")
	list, _, _ = strings.Cut(list, "\n")
	command := decode[[]string](t, list)
	if !slices.Contains(command, "--") || slices.ContainsFunc(command, func(word string) bool { return shellQuote(word) != word }) {
		t.Errorf("%s: command %q", name, command)
	}
	return strings.Join(command, " ")
}

func TestTheCronJobRunsAJobOnce(t *testing.T) {
	newSite(t).runTwice(manifestCommand(t, "kubernetes/cronjob.yaml"), "/app/backup.sh")
}

// The test of examples/leader checks that one of several such programs leads.
func TestTheDeploymentWithCampaignServesInAllPods(t *testing.T) {
	var d struct {
		Spec struct {
			Replicas int
			Strategy struct {
				RollingUpdate map[string]any `yaml:"rollingUpdate"`
			}
			Template struct {
				Spec struct {
					Containers []struct {
						ReadinessProbe map[string]any `yaml:"readinessProbe"`
					}
				}
			}
		}
	}
	if err := yaml.Unmarshal([]byte(readDeploy(t, "kubernetes/campaign.yaml")), &d); err != nil {
		t.Fatal(err)
	}
	pods := d.Spec.Template.Spec.Containers
	if d.Spec.Replicas < 2 || d.Spec.Strategy.RollingUpdate["maxUnavailable"] != 0 || len(pods) != 1 || pods[0].ReadinessProbe["httpGet"] == nil {
		t.Errorf("an update leaves fewer pods that are ready: %+v", d.Spec)
	}
}

func TestTheDeploymentHasOneLeader(t *testing.T) {
	s := newSite(t)
	line := manifestCommand(t, "kubernetes/leader.yaml")
	s.write("job", "#!/bin/sh\necho \"$HOLDFAST_TOKEN\" >>\"$DIR/leaders\"; exec sleep 60\n")
	line = strings.Replace(line, "/app/scheduler", s.path("job"), 1)
	var pods []*process
	for range 2 {
		pods = append(pods, s.start(strings.Fields(line)[1:]...))
		s.exists("locks.db")
	}
	leaders := func() int { return strings.Count(s.read("leaders"), "\n") }
	until(t, "a leader", func() bool { return leaders() == 1 })
	s.waiting("leader:scheduler", 1)
	for _, p := range pods { // stop a pod as Kubernetes does
		if strings.Contains(s.look("leader:scheduler").Holders[0].Owner, "/"+strconv.Itoa(p.cmd.Process.Pid)+"/") {
			p.signal(15)
			p.wait()
			break
		}
	}
	until(t, "another leader", func() bool { return leaders() == 2 })
}

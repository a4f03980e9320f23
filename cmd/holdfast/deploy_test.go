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
	"time"

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
		p := s.command()
		p.cmd = exec.Command("/bin/sh", "-c", line)
		p.cmd.Env, p.cmd.Dir = append(s.env, "PATH="+filepath.Dir(command)+":"+os.Getenv("PATH")), s.dir
		p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.err
		hosts = append(hosts, p.start())
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
		{"2026-01-02 01:00", 1},    // later still
		{"2026-01-02 02:00", 2},    // the next night
		{"2026-01-02 15:00", 2},
		{"2026-01-04 01:00", 3}, // all hosts were off at 02:00 of the third
		{"2026-01-04 02:00", 4},
	} {
		p := s.command()
		p.cmd = exec.Command("/bin/sh", "-c", line)
		p.cmd.Env, p.cmd.Dir = append(s.env, "NOW="+start.now, "PATH="+s.dir+":"+filepath.Dir(command)+":"+os.Getenv("PATH")), s.dir
		p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.err
		p.start().wantCode(0)
		if runs := strings.Count(s.read("runs"), "run\n"); runs != start.runs {
			t.Fatalf("after the start at %s: %d runs, want %d", start.now, runs, start.runs)
		}
	}
}

// These types have the fields of Kubernetes that the manifests use. A field that is not here is an
// error: it may be misspelled, which Kubernetes ignores.
type (
	metadata struct {
		Name   string
		Labels map[string]string
	}
	podTemplate struct {
		Metadata metadata
		Spec     struct {
			RestartPolicy                 string `yaml:"restartPolicy"`
			TerminationGracePeriodSeconds int    `yaml:"terminationGracePeriodSeconds"`
			Containers                    []struct {
				Name, Image string
				Command     []string
				Env         []struct {
					Name      string
					ValueFrom struct {
						SecretKeyRef struct{ Name, Key string } `yaml:"secretKeyRef"`
					} `yaml:"valueFrom"`
				}
				ReadinessProbe struct {
					HTTPGet struct {
						Path string
						Port int
					} `yaml:"httpGet"`
				} `yaml:"readinessProbe"`
				Resources struct {
					Requests, Limits struct{ CPU, Memory string }
				}
				SecurityContext struct {
					AllowPrivilegeEscalation *bool `yaml:"allowPrivilegeEscalation"`
					RunAsNonRoot             bool  `yaml:"runAsNonRoot"`
				} `yaml:"securityContext"`
			}
		}
	}
	cronJob struct {
		APIVersion string `yaml:"apiVersion"`
		Kind       string
		Metadata   metadata
		Spec       struct {
			Schedule                   string
			TimeZone                   string `yaml:"timeZone"`
			ConcurrencyPolicy          string `yaml:"concurrencyPolicy"`
			StartingDeadlineSeconds    int    `yaml:"startingDeadlineSeconds"`
			SuccessfulJobsHistoryLimit int    `yaml:"successfulJobsHistoryLimit"`
			FailedJobsHistoryLimit     int    `yaml:"failedJobsHistoryLimit"`
			JobTemplate                struct {
				Spec struct {
					BackoffLimit int `yaml:"backoffLimit"`
					Template     podTemplate
				}
			} `yaml:"jobTemplate"`
		}
	}
	deployment struct {
		APIVersion string `yaml:"apiVersion"`
		Kind       string
		Metadata   metadata
		Spec       struct {
			Replicas int
			Selector struct {
				MatchLabels map[string]string `yaml:"matchLabels"`
			}
			Strategy struct {
				Type          string
				RollingUpdate struct {
					MaxSurge       int `yaml:"maxSurge"`
					MaxUnavailable int `yaml:"maxUnavailable"`
				} `yaml:"rollingUpdate"`
			}
			Template podTemplate
		}
	}
)

// manifest reads a manifest that has one document. An unknown field is an error.
func manifest[T any](t *testing.T, name string) (m T) {
	t.Helper()
	d := yaml.NewDecoder(strings.NewReader(readDeploy(t, name)))
	d.KnownFields(true)
	if err := d.Decode(&m); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return m
}

// checkPod checks a pod whose only container runs holdfast, and returns its command line.
func checkPod(t *testing.T, p *podTemplate) string {
	t.Helper()
	checkContainer(t, p)
	command := p.Spec.Containers[0].Command
	if !slices.Contains(command, "--") || slices.ContainsFunc(command, func(word string) bool { return shellQuote(word) != word }) {
		t.Errorf("command: %q", command)
	}
	return strings.Join(command, " ")
}

// checkContainer checks a pod whose only container uses the store.
func checkContainer(t *testing.T, p *podTemplate) {
	t.Helper()
	if len(p.Spec.Containers) != 1 {
		t.Fatalf("%d containers", len(p.Spec.Containers))
	}
	c := p.Spec.Containers[0]
	readme := readDeploy(t, "README.md")
	if len(c.Env) != 1 || c.Env[0].Name != "HOLDFAST_STORE" ||
		!strings.Contains(readme, "secret generic "+c.Env[0].ValueFrom.SecretKeyRef.Name+" --from-literal="+c.Env[0].ValueFrom.SecretKeyRef.Key+"=") {
		t.Errorf("the store is not that of the Secret in the README: %+v", c.Env)
	}
	if c.SecurityContext.AllowPrivilegeEscalation == nil || *c.SecurityContext.AllowPrivilegeEscalation || !c.SecurityContext.RunAsNonRoot {
		t.Errorf("security context: %+v", c.SecurityContext)
	}
	if p.Spec.TerminationGracePeriodSeconds < 30 || c.Resources.Limits.Memory == "" || c.Image == "" {
		t.Errorf("incomplete: %+v", p.Spec)
	}
}

func TestTheCronJobRunsAJobOnce(t *testing.T) {
	s := newSite(t)
	j := manifest[cronJob](t, "kubernetes/cronjob.yaml")
	if j.APIVersion != "batch/v1" || j.Kind != "CronJob" || j.Metadata.Name == "" || len(strings.Fields(j.Spec.Schedule)) != 5 || j.Spec.ConcurrencyPolicy != "Forbid" {
		t.Errorf("%+v", j)
	}
	if _, err := time.LoadLocation(j.Spec.TimeZone); err != nil {
		t.Error(err)
	}
	pod := j.Spec.JobTemplate.Spec.Template
	if pod.Spec.RestartPolicy != "Never" { // OnFailure, the only other policy of a job, restarts in the same pod
		t.Errorf("restart policy %q", pod.Spec.RestartPolicy)
	}
	s.runTwice(checkPod(t, &pod), "/app/backup.sh")
}

// readDeployment reads a manifest of a Deployment and checks it.
func readDeployment(t *testing.T, name string) deployment {
	t.Helper()
	d := manifest[deployment](t, name)
	if d.APIVersion != "apps/v1" || d.Kind != "Deployment" || d.Metadata.Name == "" || d.Spec.Replicas < 2 {
		t.Errorf("%+v", d)
	}
	for key, value := range d.Spec.Selector.MatchLabels {
		if d.Spec.Template.Metadata.Labels[key] != value {
			t.Errorf("the selector does not match the pods: %s=%s", key, value)
		}
	}
	if d.Spec.Template.Spec.RestartPolicy != "" {
		t.Error("a Deployment allows no other restart policy than Always")
	}
	return d
}

// The test of examples/leader checks that one of several such programs leads.
func TestTheDeploymentWithCampaignServesInAllPods(t *testing.T) {
	d := readDeployment(t, "kubernetes/campaign.yaml")
	checkContainer(t, &d.Spec.Template)
	if d.Spec.Strategy.RollingUpdate.MaxUnavailable != 0 || d.Spec.Template.Spec.Containers[0].ReadinessProbe.HTTPGet.Path == "" {
		t.Errorf("an update leaves less than %d pods that are ready: %+v", d.Spec.Replicas, d.Spec)
	}
}

func TestTheDeploymentHasOneLeader(t *testing.T) {
	s := newSite(t)
	d := readDeployment(t, "kubernetes/leader.yaml")
	line := checkPod(t, &d.Spec.Template)
	s.write("job", "#!/bin/sh\necho \"$HOLDFAST_TOKEN\" >>\"$DIR/leaders\"; exec sleep 60\n")
	line = strings.Replace(line, "/app/scheduler", s.path("job"), 1)
	var pods []*process
	for range d.Spec.Replicas {
		p := s.command()
		p.cmd = exec.Command(command, strings.Fields(line)[1:]...)
		p.cmd.Env, p.cmd.Dir = s.env, s.dir
		p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.err
		pods = append(pods, p.start())
		s.exists("locks.db")
	}
	leaders := func() int { return strings.Count(s.read("leaders"), "\n") }
	until(t, "a leader", func() bool { return leaders() == 1 })
	s.waiting("leader:scheduler", d.Spec.Replicas-1)
	for _, p := range pods { // stop a pod as Kubernetes does
		if strings.Contains(s.look("leader:scheduler").Holders[0].Owner, "/"+strconv.Itoa(p.cmd.Process.Pid)+"/") {
			p.signal(15)
			p.wait()
			break
		}
	}
	until(t, "another leader", func() bool { return leaders() == 2 })
}

// Command release prepares, checks and packs a release of all modules of this repository.
//
//	release check               release the working tree into a temporary folder and use it as users will
//	release tag VERSION         the same for the last commit, then tag it; pushes nothing
//	release dist VERSION DIR    write archives of the command for all platforms into DIR
//
// In the repository the modules find each other by replace directives, and require each other at
// v0.0.0. The Go command ignores such directives in a dependency, and go install refuses them. A release
// is therefore one commit beside the main branch, in which every released module requires its siblings
// at the new version, with go.sum lines for them and without replace directives. One tag per module
// points at it. A module is released unless its go.mod has a comment that starts with "Not released".
//
// The Go command itself makes the zip files and hashes of the modules, from the tags in a temporary
// clone, as a public proxy will do later. So the hashes in go.sum are right before anything is public.
package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"

	"github.com/holdfast-lock/holdfast/internal/tools/must"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	must.Main("release", func() { run(ctx, os.Args[1:]) })
}

// checkVersion is the version of the working tree in a check; a fixed one, because of the build cache.
const checkVersion = "v0.0.1-check"

func run(ctx context.Context, args []string) {
	repo := must.Get(os.Getwd())
	switch {
	case len(args) == 1 && args[0] == "check":
		checkWorkingTree(ctx, repo)
	case len(args) == 2 && args[0] == "tag":
		tag(ctx, repo, args[1])
	case len(args) == 3 && args[0] == "dist":
		dist(ctx, repo, args[1], args[2])
	default:
		must.Fail("usage: release check | release tag VERSION | release dist VERSION DIR")
	}
}

var versionPattern = regexp.MustCompile(`^v(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z.-]+)?$`)

func checkVersionSyntax(version string) {
	if !versionPattern.MatchString(version) {
		must.Fail("version %q: must look like v0.1.0 or v0.1.0-rc.1", version)
	}
}

// checkWorkingTree releases the working tree, committed or not, and checks the result.
func checkWorkingTree(ctx context.Context, repo string) {
	withRelease(ctx, repo, checkVersion, func(r *release) {
		r.commitWorkingTree(ctx)
		r.build(ctx)
		r.check(ctx)
	})
}

func withRelease(ctx context.Context, repo, version string, f func(r *release)) {
	temp := must.Get(os.MkdirTemp("", "holdfast-release-"))
	defer os.RemoveAll(temp)
	f(newRelease(ctx, repo, temp, version))
}

func step(format string, args ...any) { fmt.Printf("== release: "+format+"\n", args...) }

// tag checks a release of the last commit of repo and then tags it in repo. It pushes nothing.
func tag(ctx context.Context, repo, version string) {
	git := command{dir: repo}
	if changes := git.run(ctx, "git", "status", "--porcelain"); changes != "" {
		must.Fail("commit your changes first:\n%s", changes)
	}
	heading := "## [" + strings.TrimPrefix(version, "v") + "]"
	if text := must.Get(os.ReadFile(filepath.Join(repo, "CHANGELOG.md"))); !bytes.Contains(text, []byte("\n"+heading)) {
		must.Fail("CHANGELOG.md has no section %q", heading)
	}
	withRelease(ctx, repo, version, func(r *release) {
		r.build(ctx)
		var tags []string
		for _, m := range r.modules {
			tags = append(tags, m.tag(version))
		}
		if existing := git.run(ctx, "git", append([]string{"tag", "--list"}, tags...)...); existing != "" {
			must.Fail("there are tags of this version already; a published version can never change:\n%s", existing)
		}
		r.check(ctx)
		commit := r.git(ctx, "rev-parse", "HEAD")
		fmt.Printf("commit %s\ntags   %s\n", commit, strings.Join(tags, "\n       "))
		git.run(ctx, "git", "fetch", "-q", "--no-tags", r.clone, "refs/tags/"+tags[0])
		for _, name := range tags {
			git.run(ctx, "git", "tag", "-m", "Release "+name, name, commit)
		}
		// GitHub starts no workflow for a push of more than three tags. So the root tag, which starts the
		// release workflow, is pushed alone, and last, when all modules can be fetched.
		fmt.Printf("tagged; to publish:\n  git push --atomic origin %s\n  git push origin %s\n", strings.Join(tags[1:], " "), tags[0])
	})
}

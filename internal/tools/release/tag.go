package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// tag releases the last commit of repo: it checks the release and then tags it in repo. It
// pushes nothing.
func tag(ctx context.Context, repo, version string) {
	git := command{dir: repo}
	if changes := git.run(ctx, "git", "status", "--porcelain"); changes != "" {
		fail("commit your changes first:\n%s", changes)
	}
	inChangelog(repo, version)
	inTempDir(func(temp string) {
		r := newRelease(ctx, repo, temp, version)
		r.build(ctx)
		var tags []string
		for _, m := range r.modules {
			tags = append(tags, m.tag(version))
		}
		if existing := git.run(ctx, "git", append([]string{"tag", "--list"}, tags...)...); existing != "" {
			fail("there are tags of this version already; a published version can never change:\n%s", existing)
		}
		r.check(ctx)
		commit := r.git(ctx, "rev-parse", "HEAD")
		fmt.Printf("commit %s\ntags   %s\n", commit, strings.Join(tags, "\n       "))
		git.run(ctx, "git", "fetch", "-q", "--no-tags", r.clone, "refs/tags/"+tags[0])
		for _, name := range tags {
			git.run(ctx, "git", "tag", "-m", "Release "+name, name, commit)
		}
		// GitHub starts no workflow for a push of more than three tags, so the root tag, which
		// starts the release workflow, is pushed alone. It is pushed last, when all modules can
		// be fetched.
		fmt.Printf("tagged; to publish:\n  git push --atomic origin %s\n  git push origin %s\n", strings.Join(tags[1:], " "), tags[0])
	})
}

// inChangelog fails if CHANGELOG.md has no section for version.
func inChangelog(repo, version string) {
	text := value(os.ReadFile(filepath.Join(repo, "CHANGELOG.md")))
	heading := "## [" + strings.TrimPrefix(version, "v") + "]"
	if !strings.Contains(string(text), "\n"+heading) {
		fail("CHANGELOG.md has no section %q", heading)
	}
}

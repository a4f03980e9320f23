package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/holdfast-lock/holdfast/internal/tools/must"
)

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

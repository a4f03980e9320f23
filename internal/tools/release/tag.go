package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// tag releases the last commit of repo: it checks the release and then tags it in repo. It
// pushes nothing. A dry run stops before the tags.
func tag(ctx context.Context, repo, version string, dryRun bool) error {
	git := command{dir: repo}
	changes, err := git.run(ctx, "git", "status", "--porcelain")
	if err != nil {
		return err
	}
	if changes != "" {
		return errors.New("commit your changes first:\n" + changes)
	}
	if err := inChangelog(repo, version); err != nil {
		return err
	}
	return inTempDir(func(temp string) error {
		r, err := newRelease(ctx, repo, temp, version)
		if err != nil {
			return err
		}
		if err := r.build(ctx); err != nil {
			return err
		}
		var tags []string
		for _, m := range r.modules {
			tags = append(tags, m.tag(version))
		}
		if existing, err := git.run(ctx, "git", append([]string{"tag", "--list"}, tags...)...); err != nil {
			return err
		} else if existing != "" {
			return errors.New("there are tags of this version already; a published version can never change:\n" + existing)
		}
		if err := r.check(ctx); err != nil {
			return err
		}
		commit, err := r.git(ctx, "rev-parse", "HEAD")
		if err != nil {
			return err
		}
		fmt.Printf("commit %s\ntags   %s\n", commit, strings.Join(tags, "\n       "))
		if dryRun {
			return nil
		}
		if _, err := git.run(ctx, "git", "fetch", "-q", "--no-tags", r.clone, "refs/tags/"+tags[0]); err != nil {
			return err
		}
		for _, name := range tags {
			if _, err := git.run(ctx, "git", "tag", "-m", "Release "+name, name, commit); err != nil {
				return err
			}
		}
		// GitHub starts no workflow for a push of more than three tags, so the root tag, which
		// starts the release workflow, is pushed alone. It is pushed last, when all modules can
		// be fetched.
		fmt.Printf("tagged; to publish:\n  git push --atomic origin %s\n  git push origin %s\n", strings.Join(tags[1:], " "), tags[0])
		return nil
	})
}

// inChangelog returns an error if CHANGELOG.md has no section for version.
func inChangelog(repo, version string) error {
	text, err := os.ReadFile(filepath.Join(repo, "CHANGELOG.md"))
	if err != nil {
		return err
	}
	heading := "## [" + strings.TrimPrefix(version, "v") + "]"
	if !strings.Contains(string(text), "\n"+heading) {
		return fmt.Errorf("CHANGELOG.md has no section %q", heading)
	}
	return nil
}

package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"

	"github.com/holdfast-lock/holdfast/internal/tools/must"
)

// A release is a clone of the repository in which a release is prepared.
type release struct {
	version string
	modules []*module // the root module first
	repo    string    // the repository of the user, which is only read
	clone   string
	temp    string
	proxies string // proxies for third-party modules, as in GOPROXY

	modCache   string // of the maintainer and of all users
	proxyCache string // a module cache that contains only the release
}

// newRelease clones repo into temp.
func newRelease(ctx context.Context, repo, temp, version string) *release {
	checkVersionSyntax(version)
	r := &release{
		version: version, repo: repo, clone: filepath.Join(temp, "clone"), temp: temp,
		modCache: filepath.Join(temp, "modules"), proxyCache: filepath.Join(temp, "proxy"),
	}
	command{}.run(ctx, "git", "clone", "-q", repo, r.clone)
	env := command{}.lines(ctx, "go", "env", "GOMODCACHE", "GOPROXY")
	// The user's module cache serves as a proxy too. "direct" is omitted: it would look for our modules
	// in the public repository, where they do not exist yet.
	r.proxies = proxyOf(env[0])
	for proxy := range strings.FieldsFuncSeq(env[1], func(c rune) bool { return c == ',' || c == '|' }) {
		if proxy != "direct" {
			r.proxies += "," + proxy
		}
	}
	return r
}

// proxyOf returns the URL of a module cache that serves as a proxy.
func proxyOf(modcache string) string {
	return "file://" + filepath.ToSlash(filepath.Join(modcache, "cache", "download"))
}

// git runs git in the clone. New commits repeat the author and the time of the last one, to be reproducible.
func (r *release) git(ctx context.Context, args ...string) string {
	c := command{dir: r.clone, env: []string{"TZ=UTC"}} // zip files have local times
	last := c.lines(ctx, "git", "log", "-1", "--format=%an%n%ae%n%cI")
	for _, who := range []string{"AUTHOR", "COMMITTER"} {
		c.env = append(c.env, "GIT_"+who+"_NAME="+last[0], "GIT_"+who+"_EMAIL="+last[1], "GIT_"+who+"_DATE="+last[2])
	}
	return c.run(ctx, "git", args...)
}

// commitWorkingTree commits the uncommitted changes of the user's working tree into the clone.
func (r *release) commitWorkingTree(ctx context.Context) {
	r.git(ctx, "--git-dir="+filepath.Join(r.clone, ".git"), "--work-tree="+r.repo, "add", "--all", r.repo)
	if r.git(ctx, "diff", "--cached", "--name-only") != "" {
		r.commit(ctx, "Working tree")
		r.git(ctx, "reset", "-q", "--hard")
	}
}

// build makes the release commit in the clone and tags it. Every module first gets a commit and a tag
// of its own, by which the Go command finds it and its hashes when it prepares the modules that require it.
func (r *release) build(ctx context.Context) {
	base := r.git(ctx, "rev-parse", "HEAD")
	r.modules = releasedModules(ctx, r.clone)
	for _, m := range r.modules {
		step("prepare %s", m.tag(r.version))
		r.prepare(ctx, m)
		r.commitAndTag(ctx, m)
	}
	r.git(ctx, "reset", "-q", "--soft", base)
	r.commitAndTag(ctx, r.modules...)
}

// prepare writes the go.mod and go.sum that users will see.
func (r *release) prepare(ctx context.Context, m *module) {
	edit := []string{"mod", "edit"}
	for _, replace := range m.Replace {
		if r.isOurs(replace.Old.Path) {
			edit = append(edit, "-dropreplace="+replace.Old.Path)
		}
	}
	for _, require := range m.Require {
		if r.isOurs(require.Path) {
			edit = append(edit, "-require="+require.Path+"@"+r.version)
		}
	}
	if len(edit) == 2 {
		return
	}
	c := command{dir: r.dir(m), env: r.maintainer()}
	c.run(ctx, "go", edit...)
	c.run(ctx, "go", "mod", "tidy")
}

// commit commits the index, without the hooks and signing keys of the user.
func (r *release) commit(ctx context.Context, message string) {
	r.git(ctx, "commit", "-q", "--allow-empty", "--no-verify", "--no-gpg-sign", "-m", message)
}

// commitAndTag commits the files of the clone and moves the tags of modules to the commit.
func (r *release) commitAndTag(ctx context.Context, modules ...*module) {
	r.git(ctx, "add", "--all")
	r.commit(ctx, "Release "+r.version)
	for _, m := range modules {
		name := m.tag(r.version)
		r.git(ctx, "tag", "--force", "--no-sign", "-m", "Release "+name, name)
	}
}

func (r *release) isOurs(path string) bool { return isWithin(path, r.modules[0].Path) }

// dir returns the folder of a module in the clone.
func (r *release) dir(m *module) string { return filepath.Join(r.clone, filepath.FromSlash(m.dir)) }

// maintainer returns the environment of a Go command that takes our modules from the tags of the clone.
func (r *release) maintainer() []string {
	root := r.modules[0].Path
	return []string{
		"GOWORK=off", "GOFLAGS=-modcacherw", "GOMODCACHE=" + r.modCache,
		"GOPROXY=" + r.proxies, "GONOPROXY=" + root, "GONOSUMDB=" + root,
		"GIT_CONFIG_COUNT=1",
		"GIT_CONFIG_KEY_0=url." + r.clone + ".insteadOf",
		"GIT_CONFIG_VALUE_0=https://" + root,
	}
}

// user returns the environment of a user's Go command, with a proxy for the release and those for others.
func (r *release) user() []string {
	return []string{
		"GOWORK=off",
		// With -trimpath the build cache does not depend on where the modules are.
		"GOFLAGS=-modcacherw -trimpath",
		"GOMODCACHE=" + r.modCache,
		"GOPROXY=" + proxyOf(r.proxyCache) + "," + r.proxies,
		"GOPRIVATE=", "GONOPROXY=", "GONOSUMDB=",
		// Our modules are not in the checksum database yet. Other modules were compared with
		// the go.sum files of the repository when they were added to the module cache.
		"GOSUMDB=off",
	}
}

// fillProxy fills the proxy with the release, from the tags of the clone. It removes our
// modules from the module cache, so that users get them from the proxy.
func (r *release) fillProxy(ctx context.Context) {
	root := filepath.FromSlash(r.modules[0].Path)
	for _, dir := range []string{
		r.proxyCache,
		filepath.Join(r.modCache, "cache", "vcs"),
		filepath.Join(r.modCache, "cache", "download", root),
		filepath.Join(r.modCache, filepath.Dir(root)),
	} {
		must.OK(os.RemoveAll(dir))
	}
	download := []string{"mod", "download"}
	for _, m := range r.modules {
		download = append(download, m.Path+"@"+r.version)
	}
	c := command{dir: r.temp, env: append(r.maintainer(), "GOMODCACHE="+r.proxyCache)}
	c.run(ctx, "go", download...)
}

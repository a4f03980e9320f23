package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

// platforms are the platforms for which commands are built.
var platforms = []string{
	"darwin/amd64", "darwin/arm64",
	"linux/amd64", "linux/arm64",
	"windows/amd64", "windows/arm64",
}

// shells are the shells with completions, each with the name of the file in which it looks for
// them.
var shells = map[string]string{
	"bash":       "%s.bash",
	"fish":       "%s.fish",
	"powershell": "%s.ps1",
	"zsh":        "_%s",
}

// dist writes an archive of every command for each platform, and SHA256SUMS, into dir. If twice
// is set, it builds everything again in another folder and without a build cache, and fails if any
// byte differs.
func dist(ctx context.Context, repo, version, dir string, twice bool) {
	files := distFiles(ctx, repo, version)
	if twice {
		step("build everything again, without a build cache")
		inTempDir(func(cache string) {
			ok(os.Setenv("GOCACHE", cache))
			for i, f := range distFiles(ctx, repo, version) {
				if !bytes.Equal(f.data, files[i].data) {
					fail("%s is not reproducible", f.name)
				}
			}
		})
		step("%d files are the same", len(files))
	}
	ok(os.MkdirAll(dir, 0o755))
	for _, f := range files {
		fmt.Printf("%6.1f MB  %s\n", float64(len(f.data))/1e6, f.name)
		ok(os.WriteFile(filepath.Join(dir, f.name), f.data, 0o644))
	}
}

// distFiles returns the archives and SHA256SUMS.
func distFiles(ctx context.Context, repo, version string) (files []file) {
	inTempDir(func(temp string) {
		r := newRelease(ctx, repo, temp, version)
		r.checkout(ctx)
		r.fillProxy(ctx)
		for _, m := range r.modules {
			libraries, commands := r.packages(ctx, m)
			if len(libraries) > 0 {
				continue
			}
			for _, pkg := range commands {
				files = append(files, r.pack(ctx, m, pkg)...)
			}
		}
	})
	var sums bytes.Buffer
	for _, f := range files {
		fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(f.data), f.name)
	}
	return append(files, file{name: "SHA256SUMS", data: sums.Bytes()})
}

// checkout checks out the release in the clone: the tagged one, or one made from the working
// tree if there is no tag yet.
func (r *release) checkout(ctx context.Context) {
	if r.git(ctx, "tag", "--list", r.version) == "" {
		step("there is no tag %s: a preview, from the working tree", r.version)
		r.commitWorkingTree(ctx)
		r.build(ctx)
		return
	}
	r.git(ctx, "checkout", "-q", r.version)
	r.modules = releasedModules(ctx, r.clone)
}

// pack builds the command pkg of module m for all platforms and returns the archives.
func (r *release) pack(ctx context.Context, m *module, pkg string) (archives []file) {
	name := path.Base(pkg)
	native := r.compile(ctx, m, pkg, runtime.GOOS+"/"+runtime.GOARCH)
	seconds := r.git(ctx, "log", "-1", "--format=%ct")
	common := r.commonFiles(ctx, native, name, seconds)
	modified := time.Unix(value(strconv.ParseInt(seconds, 10, 64)), 0).UTC()
	for _, platform := range platforms {
		step("build %s for %s", name, platform)
		binary := r.compile(ctx, m, pkg, platform)
		data := value(os.ReadFile(binary))
		fmt.Printf("%6.1f MB  %s\n", float64(len(data))/1e6, filepath.Base(binary))
		folder := fmt.Sprintf("%s_%s_%s", name, strings.TrimPrefix(r.version, "v"), strings.ReplaceAll(platform, "/", "_"))
		files := append(slices.Clone(common), file{name: filepath.Base(binary), data: data, program: true})
		write, suffix := tarGz, ".tar.gz"
		if strings.HasPrefix(platform, "windows/") {
			write, suffix = zipped, ".zip"
		}
		archives = append(archives, file{name: folder + suffix, data: write(folder, files, modified)})
	}
	return archives
}

// compile builds pkg and returns the path of the program. The Go command takes the version and
// the commit from the tag and records them in the program.
func (r *release) compile(ctx context.Context, m *module, pkg, platform string) string {
	goos, goarch, _ := strings.Cut(platform, "/")
	out := filepath.Join(r.temp, "bin", goos+"_"+goarch, path.Base(pkg))
	if goos == "windows" {
		out += ".exe"
	}
	c := command{
		dir: filepath.Join(r.clone, filepath.FromSlash(m.dir)),
		env: append(r.user(), "CGO_ENABLED=0", "GOOS="+goos, "GOARCH="+goarch),
	}
	c.run(ctx, "go", "build", "-trimpath", "-buildvcs=true", "-ldflags=-s -w", "-o", out, pkg)
	return out
}

// commonFiles returns the files that are in the archives of all platforms: the documents of the
// repository, and the manual pages and completions that the command writes. The pages show
// the date of the commit, which is given in seconds since 1970: with the current date they
// would not be reproducible.
func (r *release) commonFiles(ctx context.Context, program, name, seconds string) (files []file) {
	for _, document := range []string{"CHANGELOG.md", "LICENSE", "README.md"} {
		files = append(files, file{name: document, data: value(os.ReadFile(filepath.Join(r.clone, document)))})
	}
	man := filepath.Join(r.temp, "man")
	c := command{dir: r.temp, env: []string{"SOURCE_DATE_EPOCH=" + seconds}}
	c.run(ctx, program, "man", man)
	for _, page := range value(os.ReadDir(man)) {
		files = append(files, file{name: "man/" + page.Name(), data: value(os.ReadFile(filepath.Join(man, page.Name())))})
	}
	for shell, pattern := range shells {
		script := c.run(ctx, program, "completion", shell)
		files = append(files, file{name: "completions/" + fmt.Sprintf(pattern, name), data: []byte(script + "\n")})
	}
	return files
}

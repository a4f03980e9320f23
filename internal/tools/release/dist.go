package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
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
// is set, it builds everything again in another folder and without a build cache, and returns an
// error if any byte differs.
func dist(ctx context.Context, repo, version, dir string, twice bool) error {
	files, err := distFiles(ctx, repo, version)
	if err != nil {
		return err
	}
	if twice {
		step("build everything again, without a build cache")
		err := inTempDir(func(cache string) error {
			if err := os.Setenv("GOCACHE", cache); err != nil {
				return err
			}
			again, err := distFiles(ctx, repo, version)
			for i, f := range again {
				if !bytes.Equal(f.data, files[i].data) {
					err = errors.Join(err, fmt.Errorf("%s is not reproducible", f.name))
				}
			}
			return err
		})
		if err != nil {
			return err
		}
		step("%d files are the same", len(files))
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, f := range files {
		fmt.Printf("%6.1f MB  %s\n", float64(len(f.data))/1e6, f.name)
		if err := os.WriteFile(filepath.Join(dir, f.name), f.data, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// distFiles returns the archives and SHA256SUMS.
func distFiles(ctx context.Context, repo, version string) ([]file, error) {
	var files []file
	err := inTempDir(func(temp string) error {
		r, err := newRelease(ctx, repo, temp, version)
		if err != nil {
			return err
		}
		if err := r.checkout(ctx); err != nil {
			return err
		}
		if err := r.fillProxy(ctx); err != nil {
			return err
		}
		for _, m := range r.modules {
			libraries, commands, err := r.packages(ctx, m)
			if err != nil {
				return err
			}
			if len(libraries) > 0 {
				continue
			}
			for _, pkg := range commands {
				archives, err := r.pack(ctx, m, pkg)
				if err != nil {
					return fmt.Errorf("%s: %w", pkg, err)
				}
				files = append(files, archives...)
			}
		}
		return nil
	})
	var sums bytes.Buffer
	for _, f := range files {
		fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(f.data), f.name)
	}
	return append(files, file{name: "SHA256SUMS", data: sums.Bytes()}), err
}

// checkout checks out the release in the clone: the tagged one, or one made from the working
// tree if there is no tag yet.
func (r *release) checkout(ctx context.Context) error {
	tagged, err := r.git(ctx, "tag", "--list", r.version)
	if err != nil {
		return err
	}
	if tagged == "" {
		step("there is no tag %s: a preview, from the working tree", r.version)
		if err := r.commitWorkingTree(ctx); err != nil {
			return err
		}
		return r.build(ctx)
	}
	if _, err := r.git(ctx, "checkout", "-q", r.version); err != nil {
		return err
	}
	r.modules, err = releasedModules(ctx, r.clone)
	return err
}

// pack builds the command pkg of module m for all platforms and returns the archives.
func (r *release) pack(ctx context.Context, m *module, pkg string) ([]file, error) {
	name := path.Base(pkg)
	native, err := r.compile(ctx, m, pkg, runtime.GOOS+"/"+runtime.GOARCH)
	if err != nil {
		return nil, err
	}
	seconds, err := r.git(ctx, "log", "-1", "--format=%ct")
	if err != nil {
		return nil, err
	}
	common, err := r.commonFiles(ctx, native, name, seconds)
	if err != nil {
		return nil, err
	}
	unix, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return nil, err
	}
	var archives []file
	for _, platform := range platforms {
		step("build %s for %s", name, platform)
		binary, err := r.compile(ctx, m, pkg, platform)
		if err != nil {
			return nil, err
		}
		data, err := os.ReadFile(binary)
		if err != nil {
			return nil, err
		}
		fmt.Printf("%6.1f MB  %s\n", float64(len(data))/1e6, filepath.Base(binary))
		folder := fmt.Sprintf("%s_%s_%s", name, strings.TrimPrefix(r.version, "v"), strings.ReplaceAll(platform, "/", "_"))
		files := append(slices.Clone(common), file{name: filepath.Base(binary), data: data, program: true})
		write, suffix := tarGz, ".tar.gz"
		if strings.HasPrefix(platform, "windows/") {
			write, suffix = zipped, ".zip"
		}
		archive, err := write(folder, files, time.Unix(unix, 0).UTC())
		if err != nil {
			return nil, err
		}
		archives = append(archives, file{name: folder + suffix, data: archive})
	}
	return archives, nil
}

// compile builds pkg and returns the path of the program. The Go command takes the version and
// the commit from the tag and records them in the program.
func (r *release) compile(ctx context.Context, m *module, pkg, platform string) (string, error) {
	goos, goarch, _ := strings.Cut(platform, "/")
	out := filepath.Join(r.temp, "bin", goos+"_"+goarch, path.Base(pkg))
	if goos == "windows" {
		out += ".exe"
	}
	c := command{
		dir: filepath.Join(r.clone, filepath.FromSlash(m.dir)),
		env: append(r.user(), "CGO_ENABLED=0", "GOOS="+goos, "GOARCH="+goarch),
	}
	_, err := c.run(ctx, "go", "build", "-trimpath", "-buildvcs=true", "-ldflags=-s -w", "-o", out, pkg)
	return out, err
}

// commonFiles returns the files that are in the archives of all platforms: the documents of the
// repository, and the manual pages and completions that the command writes. The pages show
// the date of the commit, which is given in seconds since 1970: with the current date they
// would not be reproducible.
func (r *release) commonFiles(ctx context.Context, program, name, seconds string) ([]file, error) {
	var files []file
	for _, document := range []string{"CHANGELOG.md", "LICENSE", "README.md"} {
		data, err := os.ReadFile(filepath.Join(r.clone, document))
		if err != nil {
			return nil, err
		}
		files = append(files, file{name: document, data: data})
	}
	man := filepath.Join(r.temp, "man")
	c := command{dir: r.temp, env: []string{"SOURCE_DATE_EPOCH=" + seconds}}
	if _, err := c.runFor(ctx, program, "man", man); err != nil {
		return nil, err
	}
	pages, err := os.ReadDir(man)
	if err != nil {
		return nil, err
	}
	for _, page := range pages {
		data, err := os.ReadFile(filepath.Join(man, page.Name()))
		if err != nil {
			return nil, err
		}
		files = append(files, file{name: "man/" + page.Name(), data: data})
	}
	for shell, pattern := range shells {
		script, err := c.runFor(ctx, program, "completion", shell)
		if err != nil {
			return nil, err
		}
		files = append(files, file{name: "completions/" + fmt.Sprintf(pattern, name), data: []byte(script + "\n")})
	}
	return files, nil
}

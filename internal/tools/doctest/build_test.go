package doctest

import (
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// packages are imported into each block. Other packages need a comment: see the package comment.
var packages = []string{
	"context", "errors", "fmt", "log", "log/slog", "net/http", "os", "testing", "time",
	"github.com/bsm/redislock",
	"github.com/go-co-op/gocron/v2",
	"github.com/go-redsync/redsync/v4",
	"github.com/go-zookeeper/zk",
	"github.com/holdfast-lock/holdfast",
	"github.com/holdfast-lock/holdfast/cronholdfast",
	"github.com/holdfast-lock/holdfast/etcdstore",
	"github.com/holdfast-lock/holdfast/fence",
	"github.com/holdfast-lock/holdfast/fence/sqlfence",
	"github.com/holdfast-lock/holdfast/gocronholdfast",
	"github.com/holdfast-lock/holdfast/inspect",
	"github.com/holdfast-lock/holdfast/memstore",
	"github.com/holdfast-lock/holdfast/mysqlstore",
	"github.com/holdfast-lock/holdfast/otelholdfast",
	"github.com/holdfast-lock/holdfast/pgstore",
	"github.com/holdfast-lock/holdfast/redisstore",
	"github.com/holdfast-lock/holdfast/redisstore/goredis",
	"github.com/holdfast-lock/holdfast/store",
	"github.com/holdfast-lock/holdfast/storetest",
	"github.com/jackc/pgx/v5/pgxpool",
	"github.com/redis/go-redis/v9",
	"github.com/redis/rueidis",
	"github.com/redis/rueidis/rueidislock",
	"github.com/robfig/cron/v3",
	"go.etcd.io/etcd/client/v3/concurrency",
}

// given declares the names that every block may use, unless the block is a whole file.
const given = `
var (
	ctx context.Context  // of the request or of the program
	c   *holdfast.Client // made when the program starts
)

// work stands for the code of the user.
func work(context.Context) error { return nil }
`

// packageName returns the name of a package with the given path.
func packageName(path string) string {
	elements := strings.Split(path, "/")
	last := elements[len(elements)-1]
	if len(last) > 1 && last[0] == 'v' && strings.Trim(last[1:], "0123456789") == "" {
		last = elements[len(elements)-2]
	}
	return strings.TrimPrefix(last, "go-")
}

func isWholeFile(b *block) bool { return strings.HasPrefix(b.text, "package ") }

// goFile returns a block as a file. Errors have their positions in the page.
func goFile(b *block) string {
	body := fmt.Sprintf("//line %s:%d\n%s", b.page, b.line, b.text)
	if isWholeFile(b) {
		return body
	}
	if _, err := parser.ParseFile(token.NewFileSet(), "", "package block\n"+body, 0); err != nil { // not declarations
		body = "func _() error {\n" + body + "\nreturn nil\n}\n"
	}
	imports, names := "", []string(nil)
	declarations := given
	for line := range strings.Lines(b.given) {
		if path, ok := strings.CutPrefix(line, "import "); ok {
			imports += line
			names = append(names, packageName(strings.Trim(path, "\"\n")))
		} else {
			declarations += line
		}
	}
	for _, path := range packages {
		if !slices.Contains(names, packageName(path)) {
			imports += fmt.Sprintf("import %q\n", path)
		}
	}
	return "package block\n" + imports + declarations + body
}

func TestGoBlocksOfThePagesCompile(t *testing.T) {
	all := blocks(t, "go")
	if len(all) < 4 {
		t.Errorf("only %d blocks", len(all))
	}
	fset := token.NewFileSet()
	files, imported := make([]*ast.File, len(all)), make(map[string]bool)
	args := []string{"list", "-export", "-deps", "-f", "{{.ImportPath}} {{.Export}}"}
	for i, b := range all {
		var err error
		if files[i], err = parser.ParseFile(fset, "", goFile(b), 0); err != nil {
			t.Fatal(err)
		}
		for _, spec := range files[i].Imports {
			if path, _ := strconv.Unquote(spec.Path.Value); !imported[path] {
				imported[path] = true
				args = append(args, path)
			}
		}
	}
	// The workspace has the modules of Holdfast, and requires the other lock libraries for module bench.
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir, cmd.Stderr = root, t.Output()
	list, err := cmd.Output()
	must(t, err)
	exports := make(map[string]string)
	for line := range strings.Lines(string(list)) {
		path, file, _ := strings.Cut(strings.TrimSpace(line), " ")
		exports[path] = file
	}
	imports := importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
	for i, b := range all {
		check := types.Config{Importer: imports, Error: func(err error) {
			// An excerpt need not use what it declares.
			if isWholeFile(b) || !strings.Contains(err.Error(), " and not used") {
				t.Error(err)
			}
		}}
		check.Check("block", fset, files[i:i+1], nil)
	}
}

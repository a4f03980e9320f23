package doctest

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// packages are imported where a block uses them. Other packages need a comment: see the package
// comment.
var packages = []string{
	"context", "database/sql", "errors", "fmt", "log", "log/slog", "net", "net/http", "os", "testing", "time",
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
	"github.com/holdfast-lock/holdfast/sqlitestore",
	"github.com/holdfast-lock/holdfast/store",
	"github.com/holdfast-lock/holdfast/storetest",
	"github.com/holdfast-lock/holdfast/zkstore",
	"github.com/jackc/pgx/v5",
	"github.com/jackc/pgx/v5/pgxpool",
	"github.com/redis/go-redis/v9",
	"github.com/redis/rueidis",
	"github.com/redis/rueidis/rueidislock",
	"github.com/robfig/cron/v3",
	"go.etcd.io/etcd/client/v3/concurrency",
}

// given declares the names that every block may use, unless the block is a whole file.
const given = `
import (
	"context"

	"github.com/holdfast-lock/holdfast"
)

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

// goFile returns a block as a file of package block. Errors have their positions in the page.
func goFile(b *block) (string, error) {
	place := fmt.Sprintf("//line %s:%d\n", b.page, b.line)
	if rest, ok := strings.CutPrefix(b.text, "package main\n"); ok {
		return fmt.Sprintf("//line %s:%d\npackage block\n%s", b.page, b.line, rest), nil
	}
	fset := token.NewFileSet()
	header := "package block\n"
	body := place + b.text
	if _, err := parser.ParseFile(fset, "", header+body, 0); err != nil { // not declarations
		body = "func _() error {\n" + body + "%s\nreturn nil\n}\n"
		file, err := parser.ParseFile(fset, "", header+strings.Replace(body, "%s", "", 1), 0)
		if err != nil {
			return "", fmt.Errorf("%v: %w", b, err)
		}
		body = strings.Replace(body, "%s", used(file), 1)
	}
	imports, declarations := splitImports(b.given)
	file, err := parser.ParseFile(fset, "", header+imports+declarations+body, 0)
	if err != nil {
		return "", fmt.Errorf("%v: %w", b, err)
	}
	return header + imports + autoImports(file, imports) + declarations + body, nil
}

// splitImports separates lines with imports from other declarations.
func splitImports(given string) (imports, declarations string) {
	for line := range strings.Lines(given) {
		if strings.HasPrefix(line, "import ") {
			imports += line
		} else {
			declarations += line
		}
	}
	return imports, declarations
}

// used returns statements that use the variables of the outermost scope, because an excerpt need
// not use the variables that it declares.
func used(file *ast.File) string {
	text := ""
	note := func(name string) {
		if name != "_" {
			text += "\n_ = " + name
		}
	}
	for _, s := range file.Decls[0].(*ast.FuncDecl).Body.List {
		switch s := s.(type) {
		case *ast.AssignStmt:
			for _, left := range s.Lhs {
				if ident, ok := left.(*ast.Ident); ok && s.Tok == token.DEFINE {
					note(ident.Name)
				}
			}
		case *ast.DeclStmt:
			for _, spec := range s.Decl.(*ast.GenDecl).Specs {
				if values, ok := spec.(*ast.ValueSpec); ok {
					for _, ident := range values.Names {
						note(ident.Name)
					}
				}
			}
		}
	}
	return text
}

// autoImports imports the known packages that a file uses.
func autoImports(file *ast.File, imports string) string {
	var names []string
	ast.Inspect(file, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok {
			if ident, ok := s.X.(*ast.Ident); ok && ident.Obj == nil {
				names = append(names, ident.Name)
			}
		}
		return true
	})
	var imported []string
	for line := range strings.Lines(imports) { // import "path" or import name "path"
		words := strings.Fields(line)
		imported = append(imported, words[1], packageName(strings.Trim(words[len(words)-1], `"`)))
	}
	text := ""
	for _, path := range packages {
		if name := packageName(path); slices.Contains(names, name) && !slices.Contains(imported, name) {
			text += fmt.Sprintf("import %q\n", path)
		}
	}
	return text
}

func TestGoBlocksOfThePagesCompile(t *testing.T) {
	all := blocks(t, "go")
	if len(all) < 4 {
		t.Errorf("only %d blocks", len(all))
	}
	if out, err := build(t, all); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// build compiles blocks, each as a package. They are in module bench, which requires the other
// lock libraries; the workspace adds the modules of Holdfast.
func build(t *testing.T, all []*block) (output string, err error) {
	t.Helper()
	top, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	replace := make(map[string]string) // maps a path in the module to a file
	add := func(path, text string) {
		file := filepath.Join(dir, fmt.Sprint(len(replace), ".go"))
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		replace[filepath.Join(top, path)] = file
	}
	args := []string{"build", "-overlay", filepath.Join(dir, "overlay.json")}
	for i, b := range all {
		text, err := goFile(b)
		if err != nil {
			return "", err
		}
		folder := fmt.Sprint("bench/blocks/b", i)
		add(folder+"/block.go", text)
		if !strings.HasPrefix(b.text, "package ") {
			add(folder+"/given.go", "package block\n"+given)
		}
		args = append(args, "./"+folder)
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "overlay.json"), overlay, 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir = top
	out, err := cmd.CombinedOutput()
	return string(out), err
}

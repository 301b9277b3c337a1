package mutations

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Tree is the source text of a module on disk. Files that were read are cached.
type Tree struct {
	root  string
	files map[string][]string // the lines of those that were read, by path below root
	decls map[string][]place  // by directory
}

// NewTree returns the module whose go.mod is in root.
func NewTree(root string) *Tree {
	return &Tree{root: root, files: map[string][]string{}, decls: map[string][]place{}}
}

// place is a declaration, or a whole file: the lines from to below to, counted from 0.
type place struct {
	name     string
	file     string
	from, to int
}

// edit replaces lines of a file.
type edit struct {
	place
	new []string
}

// Plant returns the text of the files that m changes, with the bug in them, by path below the root.
// It fails if a snippet does not occur exactly once in its place.
func (t *Tree) Plant(m *Mutation) (map[string]string, error) {
	edits := map[string][]edit{}
	var errs []error
	for i := range m.hunks {
		h := &m.hunks[i]
		e, err := t.find(h)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s.txt:%d: %s: %w", m.Name, h.line, h, err))
			continue
		}
		edits[e.file] = append(edits[e.file], e)
	}
	if len(errs) != 0 {
		return nil, errors.Join(errs...)
	}
	texts := map[string]string{}
	for file, edits := range edits {
		slices.SortFunc(edits, func(a, b edit) int { return b.from - a.from })
		lines := slices.Clone(t.files[file])
		below := len(lines)
		for _, e := range edits { // the last first, so that line numbers stay valid
			if e.to > below {
				return nil, fmt.Errorf("%s: two of its snippets share line %d of %s", m.Name, e.to, file)
			}
			below = e.from
			lines = slices.Replace(lines, e.from, e.to, e.new...)
		}
		texts[file] = strings.Join(lines, "\n")
		if strings.HasSuffix(file, ".go") {
			if _, err := parser.ParseFile(token.NewFileSet(), file, texts[file], parser.SkipObjectResolution); err != nil {
				return nil, fmt.Errorf("%s: with the bug: %w", m.Name, err)
			}
		}
	}
	return texts, nil
}

// find returns the only occurrence of the snippet of h.
func (t *Tree) find(h *hunk) (found edit, err error) {
	places, err := t.places(h)
	if err != nil {
		return edit{}, err
	}
	times := 0
	for _, p := range places {
		lines := t.files[p.file]
		for i := p.from; i+len(h.old) <= p.to; i++ {
			indent, ok := match(lines[i:i+len(h.old)], h.old)
			if !ok {
				continue
			}
			times++
			found = edit{place: place{file: p.file, from: i, to: i + len(h.old)}}
			for _, line := range h.new {
				if line != "" {
					line = indent + line
				}
				found.new = append(found.new, line)
			}
		}
	}
	if times != 1 {
		return edit{}, fmt.Errorf("its snippet stands there %d times, not once:\n\t%s", times, strings.Join(h.old, "\n\t"))
	}
	return found, nil
}

// match reports whether lines are those of the snippet, all of them with the same additional
// indentation, and that indentation.
func match(lines, snippet []string) (indent string, ok bool) {
	first := slices.IndexFunc(snippet, func(s string) bool { return s != "" })
	indent, ok = strings.CutSuffix(lines[first], snippet[first])
	if !ok || strings.Trim(indent, "\t ") != "" {
		return "", false
	}
	for i, line := range lines {
		want := snippet[i]
		if want != "" {
			want = indent + want
		}
		if line != want {
			return "", false
		}
	}
	return indent, true
}

// places returns where the snippet of h may occur: several where the declaration exists for several
// systems.
func (t *Tree) places(h *hunk) ([]place, error) {
	if h.file != "" {
		lines, err := t.read(h.file)
		return []place{{file: h.file, to: len(lines)}}, err
	}
	decls, ok := t.decls[h.dir]
	if !ok {
		var err error
		if decls, err = t.declarations(h.dir); err != nil {
			return nil, err
		}
		t.decls[h.dir] = decls
	}
	var of []place
	for _, p := range decls {
		if p.name == h.decl {
			of = append(of, p)
		}
	}
	if len(of) == 0 {
		return nil, errors.New("nothing is declared by that name: was it renamed, or moved to another package?")
	}
	return of, nil
}

func (t *Tree) read(file string) ([]string, error) {
	if lines, ok := t.files[file]; ok {
		return lines, nil
	}
	text, err := os.ReadFile(filepath.Join(t.root, file))
	if err != nil {
		return nil, err
	}
	t.files[file] = strings.Split(string(text), "\n")
	return t.files[file], nil
}

// declarations lists the top-level declarations of the package in dir, without its tests, for all
// build constraints.
func (t *Tree) declarations(dir string) (decls []place, err error) {
	names, err := filepath.Glob(filepath.Join(t.root, dir, "*.go"))
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file := filepath.ToSlash(filepath.Join(dir, filepath.Base(name)))
		lines, err := t.read(file)
		if err != nil {
			return nil, err
		}
		set := token.NewFileSet()
		parsed, err := parser.ParseFile(set, file, strings.Join(lines, "\n"), parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		for _, d := range parsed.Decls {
			for name, node := range named(d) {
				from, to := set.Position(node.Pos()).Line-1, set.Position(node.End()).Line
				decls = append(decls, place{name, file, from, to})
			}
		}
	}
	return decls, nil
}

// named returns what d declares, by its name as mutations have it: "func F", "func (*T).M", "type
// T", "const C", "var V".
func named(d ast.Decl) map[string]ast.Node {
	all := map[string]ast.Node{}
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Recv == nil {
			all["func "+d.Name.Name] = d
		} else {
			all["func ("+receiver(d.Recv.List[0].Type)+")."+d.Name.Name] = d
		}
	case *ast.GenDecl:
		for _, s := range d.Specs {
			switch s := s.(type) {
			case *ast.TypeSpec:
				all["type "+s.Name.Name] = s
			case *ast.ValueSpec:
				for _, n := range s.Names {
					all[d.Tok.String()+" "+n.Name] = s
				}
			}
		}
	}
	return all
}

// receiver names the type of a receiver, without its type parameters.
func receiver(x ast.Expr) string {
	switch x := x.(type) {
	case *ast.StarExpr:
		return "*" + receiver(x.X)
	case *ast.IndexExpr:
		return receiver(x.X)
	case *ast.IndexListExpr:
		return receiver(x.X)
	case *ast.Ident:
		return x.Name
	}
	return ""
}

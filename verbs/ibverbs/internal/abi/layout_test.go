package abi

import (
	"fmt"
	"go/ast"
	"go/build"
	"go/constant"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// grows are the structs that new versions of the library append to: it allocates them, or is told
// their size, or which fields are set.
var grows = map[string]bool{"ibv_cq_ex": true, "ibv_cq_init_attr_ex": true, "ibv_device_attr_ex": true,
	"ibv_gid_entry": true, "ibv_port_attr": true, "ibv_srq_init_attr_ex": true}

// TestLayout compares every size, offset and constant of the package, and the constants of package
// verbs, with the header's.
func TestLayout(t *testing.T) {
	for arch, names := range compilers {
		t.Run(arch, func(t *testing.T) {
			if arch == runtime.GOARCH {
				names = append(names, "cc")
			}
			checks := append(read(t, arch).checks, verbsConstants()...)
			require.Greater(t, len(checks), 400)
			var expressions []string
			for _, c := range checks {
				expressions = append(expressions, c.c)
			}
			for i, v := range header(t, found(t, names), expressions) {
				if v != checks[i].want {
					t.Errorf("%s is %d here, %d in the header (%s)", checks[i].name, checks[i].want, v, checks[i].c)
				}
			}
		})
	}
}

// found returns the first of some programs that is there.
func found(t *testing.T, names []string) string {
	for _, n := range names {
		if _, err := exec.LookPath(n); err == nil {
			return n
		}
	}
	t.Skip("needs a C compiler: ", names)
	return ""
}

// check is a value of this package, and the C expression that it must equal.
type check struct {
	name string
	want uint64
	c    string
}

// source is the package as an architecture has it.
type source struct {
	t      *testing.T
	sizes  types.Sizes
	info   types.Info
	specs  map[string]*ast.TypeSpec
	checks []check
}

// read reads the package's files, and makes the checks of all its types and constants.
func read(t *testing.T, arch string) *source {
	s := &source{t: t, sizes: types.SizesFor("gc", arch), specs: map[string]*ast.TypeSpec{},
		info: types.Info{Defs: map[*ast.Ident]types.Object{}}}
	context := build.Default
	context.GOOS, context.GOARCH = "linux", arch
	entries, err := os.ReadDir(".")
	require.NoError(t, err)
	fset := token.NewFileSet()
	var files []*ast.File
	for _, e := range entries {
		match, err := context.MatchFile(".", e.Name())
		require.NoError(t, err)
		if match && !strings.HasSuffix(e.Name(), "_test.go") {
			f, err := parser.ParseFile(fset, e.Name(), nil, parser.ParseComments)
			require.NoError(t, err)
			files = append(files, f)
		}
	}
	config := types.Config{Sizes: s.sizes, Importer: importer.Default()} // of unsafe
	_, err = config.Check("abi", fset, files, &s.info)
	require.NoError(t, err)
	var structs []*ast.GenDecl
	for _, f := range files {
		for _, d := range f.Decls {
			d, ok := d.(*ast.GenDecl)
			switch {
			case ok && d.Tok == token.CONST:
				for _, spec := range d.Specs {
					s.constant(spec.(*ast.ValueSpec))
				}
			case ok && d.Tok == token.TYPE:
				for _, spec := range d.Specs {
					s.specs[spec.(*ast.TypeSpec).Name.Name] = spec.(*ast.TypeSpec)
				}
				structs = append(structs, d)
			}
		}
	}
	for _, d := range structs {
		if spec := d.Specs[0].(*ast.TypeSpec); spec.Name.IsExported() {
			s.structure(spec, d.Doc.Text())
		}
	}
	return s
}

func (s *source) check(name string, want uint64, c string, args ...any) {
	s.checks = append(s.checks, check{name, want, fmt.Sprintf(c, args...)})
}

func (s *source) constant(spec *ast.ValueSpec) {
	name := spec.Names[0]
	if name.IsExported() {
		value, ok := constant.Uint64Val(constant.ToInt(s.info.Defs[name].(*types.Const).Val()))
		require.True(s.t, ok, name.Name)
		s.check(name.Name, value, "%s", s.cName(name.Name, spec.Comment))
	}
}

var cStruct = regexp.MustCompile(`\bis struct (\w+)`)

func (s *source) structure(spec *ast.TypeSpec, doc string) {
	name := spec.Name.Name
	m := cStruct.FindStringSubmatch(doc)
	require.NotNil(s.t, m, "the comment of %s names no C struct", name)
	c, size := m[1], uint64(s.sizes.Sizeof(s.info.Defs[spec.Name].Type()))
	switch {
	case name == "VerbsContext": // without the last field; and its first ones are new
		s.fields(spec, name, func(field string, offset, bytes uint64) {
			s.check(field+", offset from the end", size-offset, "offsetof(struct %[1]s, context) - offsetof(struct %[1]s, %[2]s)", c, field)
			s.check(field+", bytes", bytes, "sizeof(((struct %s *)0)->%s)", c, field)
		})
		return
	case grows[c]:
		s.check(name+", bytes, at most", 1, "sizeof(struct %s) >= %d", c, size)
	default:
		s.check(name+", bytes", size, "sizeof(struct %s)", c)
	}
	s.fields(spec, name, func(field string, offset, bytes uint64) {
		s.check(name+": "+field+", offset", offset, "offsetof(struct %s, %s)", c, field)
		s.check(name+": "+field+", bytes", bytes, "sizeof(((struct %s *)0)->%s)", c, field)
	})
}

// fields calls f with each named field's C name, and with those of an embedded struct.
func (s *source) fields(spec *ast.TypeSpec, name string, f func(field string, offset, bytes uint64)) {
	var vars []*types.Var
	t := s.info.Defs[spec.Name].Type().Underlying().(*types.Struct)
	for v := range t.Fields() {
		vars = append(vars, v)
	}
	offsets := s.sizes.Offsetsof(vars)
	for i, field := range spec.Type.(*ast.StructType).Fields.List {
		require.LessOrEqual(s.t, len(field.Names), 1, "%s: one field a line", name)
		switch v := vars[i]; {
		case v.Embedded():
			require.Zero(s.t, offsets[i], "%s: an embedded struct comes first", name)
			s.fields(s.specs[v.Name()], name, f)
		case v.Name() != "_":
			f(s.cName(name+"."+v.Name(), field.Comment), uint64(offsets[i]), uint64(s.sizes.Sizeof(v.Type())))
		}
	}
}

var firstWord = regexp.MustCompile(`^[\w.]+\w`)

// cName is the first word of the comment behind a field or constant.
func (s *source) cName(of string, comment *ast.CommentGroup) string {
	c := firstWord.FindString(comment.Text())
	require.NotEmpty(s.t, c, "the comment behind %s does not name it in C", of)
	return c
}

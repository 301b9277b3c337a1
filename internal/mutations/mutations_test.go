package mutations

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestBugsFit fails if code was moved or renamed so that a bug does not fit any more, or if the
// tests that a bug names are gone.
func TestBugsFit(t *testing.T) {
	all, err := Load("bugs")
	require.NoError(t, err)
	require.NotEmpty(t, all)
	tree := NewTree("../..")
	numbers := map[string]string{}
	for _, m := range all {
		if _, err := tree.Plant(m); err != nil {
			t.Error(err)
		}
		number, _, _ := strings.Cut(m.Name, "-")
		if numbers[number] != "" {
			t.Errorf("%s and %s have one number", numbers[number], m.Name)
		}
		numbers[number] = m.Name
		for _, c := range m.Catch {
			if !namesTest(t, c) {
				t.Errorf("%s: no test of that name: %s", m.Name, c.Text)
			}
		}
	}
}

// namesTest reports whether there is a test that c runs, subtests aside.
func namesTest(t *testing.T, c Command) bool {
	var pattern string
	for i, arg := range c.Args {
		if arg == "-test.run" && i+1 < len(c.Args) {
			pattern, _, _ = strings.Cut(c.Args[i+1], "/")
		}
	}
	named, err := regexp.Compile(pattern)
	require.NoError(t, err)
	files, err := filepath.Glob(filepath.Join("../..", c.Dir, "*_test.go"))
	require.NoError(t, err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, match := range regexp.MustCompile(`(?m)^func (Test\w+)`).FindAllSubmatch(text, -1) {
			if named.Match(match[1]) {
				return true
			}
		}
	}
	return false
}

func TestParse(t *testing.T) {
	const head = "# BUG: wrong\n# CATCH: go test ./a -run '^TestA$'\n"
	const body = "package a\nfunc A\n-x\n"
	for _, row := range []struct{ name, text, want string }{
		{"no bug", "# CATCH: go test ./a\n" + body, "no BUG"},
		{"no command", "# BUG: wrong\n" + body, "no CATCH"},
		{"no change", head, "it changes nothing"},
		{"unknown field", "# CATHC: go test ./a\n", "x:1: CATHC is not known"},
		{"no duration", "# HANG: 10 seconds\n", "x:1: time: "},
		{"no go test", "# CATCH: make\n", "x:1: it is not go test: make"},
		{"no package in the command", "# CATCH: go test -run '^TestA$'\n", "it names no package by ./"},
		{"no package", head + "func A\n-x\n", "x:3: a declaration, but no package yet"},
		{"no place", head + "-x\n", "x:3: a line of code, but no place yet"},
		{"no sign", head + body + "y\n", "x:6: it begins with nothing that is known"},
		{"only new lines", head + "package a\nfunc A\n+x\n", "x:4: no line that says where"},
	} {
		t.Run(row.name, func(t *testing.T) {
			_, err := parse("x", row.text)
			require.ErrorContains(t, err, row.want)
		})
	}
	m, err := parse("x", "# BUG: wrong\n# HANG: 10s\n"+
		"# CATCH: go test -tags invariants ./a/b -cpu 1 -run '^TestA$/^(x|y)' -seed 3 -rapid.seed=1\n"+body+"\nfunc B\n-y\nfile c/d.s\n-z\n")
	require.NoError(t, err)
	require.Equal(t, 10*time.Second, m.Hang)
	require.Equal(t, []string{"a", "a", "c"}, m.Dirs())
	c := m.Catch[0]
	require.Equal(t, []string{"-tags", "invariants"}, c.Build)
	require.Equal(t, "a/b", c.Dir)
	require.Equal(t, []string{"-test.cpu", "1", "-test.run", "^TestA$/^(x|y)", "-seed", "3", "-rapid.seed=1"}, c.Args)
}

// source is what TestPlant changes.
const source = `package a

type ring[T any] struct {
	len int
}

func (r *ring[T]) grow(n int) {
	if n > r.len {
		r.len = n

		println("grown")
	}
	if n < 0 {
		return
	}
	println("done")
}

const (
	few  = 1
	many = 2
)

func done() { println("done") }
`

func TestPlant(t *testing.T) {
	root := t.TempDir()
	write := func(file, text string) {
		file = filepath.Join(root, file)
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	}
	write("a/a.go", source)
	write("a/twice_linux.go", "package a\n\nfunc twice() {\n\tprintln(1)\n\tprintln(3)\n}\n")
	write("a/twice_other.go", "//go:build !linux\n\npackage a\n\nfunc twice() {\n\tprintln(2)\n\tprintln(3)\n}\n")
	write("a/a_test.go", "package a\n\nfunc done() { println(\"tested\") }\n")
	write("a/a.s", "\tNOP\n\tRET\n")
	for _, row := range []struct {
		name, hunks string
		old, new    string // what changes in the file
		fails       string
	}{
		{"a line", "func (*ring).grow\n-println(\"done\")\n+println(\"over\")\n", `	println("done")`, `	println("over")`, ""},
		{"indented otherwise", "func (*ring).grow\n-\t\t\t\tr.len = n\n+\t\t\t\tif true {\n+\t\t\t\t\tr.len = n\n+\t\t\t\t}\n",
			"\t\tr.len = n\n", "\t\tif true {\n\t\t\tr.len = n\n\t\t}\n", ""},
		{"lines that stay", "func (*ring).grow\n }\n+n++\n if n < 0 {\n", "\tif n < 0", "\tn++\n\tif n < 0", ""},
		{"a blank line", "func (*ring).grow\n-r.len = n\n-\n println(\"grown\")\n", "\t\tr.len = n\n\n", "", ""},
		{"a type", "type ring\n-len int\n+len int64\n", "len int", "len int64", ""},
		{"one of several constants", "const many\n-many = 2\n+many = 3\n", "many = 2", "many = 3", ""},
		{"two places", "func (*ring).grow\n-if n < 0 {\n+if n < 1 {\nfunc (*ring).grow\n-\tr.len = n\n",
			"\t\tr.len = n\n\n\t\tprintln(\"grown\")\n\t}\n\tif n < 0", "\n\t\tprintln(\"grown\")\n\t}\n\tif n < 1", ""},
		{"a file", "file a/a.s\n-RET\n+NOP\n", "\tRET", "\tNOP", ""},
		{"one system's", "func twice\n-println(2)\n+println(4)\n", "println(2)", "println(4)", ""},
		{"each system's", "func twice\n-println(3)\n+println(4)\n", "", "", "2 times, not once"},
		{"several times", "func (*ring).grow\n-}\n", "", "", "3 times, not once"},
		{"only elsewhere", "func done\n-r.len = n\n", "", "", "0 times, not once"},
		{"part of a line", "func (*ring).grow\n-len = n\n", "", "", "0 times, not once"},
		{"other indentation inside", "func (*ring).grow\n-if n < 0 {\n-return\n-}\n", "", "", "0 times, not once"},
		{"no such function", "func (ring).grow\n-}\n", "", "", "nothing is declared by that name"},
		{"no such file", "file a/b.go\n-}\n", "", "", "no such file"},
		{"shared lines", "func (*ring).grow\n-if n < 0 {\n-\treturn\nfunc (*ring).grow\n-return\n", "", "", "share line 14 of a/a.go"},
		{"not Go", "func (*ring).grow\n-if n < 0 {\n", "", "", "with the bug: a/a.go:"},
	} {
		t.Run(row.name, func(t *testing.T) {
			m, err := parse("x", "# BUG: wrong\n# CATCH: go test ./a\npackage a\n"+row.hunks)
			require.NoError(t, err)
			texts, err := NewTree(root).Plant(m)
			if row.fails != "" {
				require.ErrorContains(t, err, row.fails)
				return
			}
			require.NoError(t, err)
			require.Len(t, texts, 1)
			for file, text := range texts {
				was, err := os.ReadFile(filepath.Join(root, file))
				require.NoError(t, err)
				require.Equal(t, 1, strings.Count(string(was), row.old))
				require.Equal(t, strings.Replace(string(was), row.old, row.new, 1), text)
			}
		})
	}
}

// Package mutations reads the deliberate bugs in the directory bugs and plants them into the source
// text of this module. README.md describes the files; cmd/mutate runs the tests that must fail with
// each.
//
// Concurrency: none here; one goroutine uses a Tree.
package mutations

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Dir is the directory of the bugs, below the module's root.
const Dir = "internal/mutations/bugs"

// Mutation is one deliberate bug.
type Mutation struct {
	Name  string // of its file, without extension
	Bug   string // what is wrong
	Catch []Command
	Hang  time.Duration // not 0: tests that run longer have failed too
	hunks []hunk
}

// hunk replaces lines in one place.
type hunk struct {
	line int    // of the mutation's file, for errors
	dir  string // the package's directory below the module's root; empty where file is set
	decl string // as in declarations
	file string // slash-separated, below the module's root
	old  []string
	new  []string
}

func (h *hunk) String() string {
	if h.file != "" {
		return h.file
	}
	return h.dir + ", " + h.decl
}

// Dirs returns the directories of the packages with the bug, slash-separated, below the module's
// root.
func (m *Mutation) Dirs() []string {
	var dirs []string
	for _, h := range m.hunks {
		if h.file != "" {
			h.dir = filepath.ToSlash(filepath.Dir(h.file))
		}
		dirs = append(dirs, h.dir)
	}
	return dirs
}

// Load reads all mutations of a directory, sorted by name.
func Load(dir string) ([]*Mutation, error) {
	names, err := filepath.Glob(filepath.Join(dir, "*.txt"))
	if err != nil {
		return nil, err
	}
	var all []*Mutation
	var errs []error
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		m, err := parse(strings.TrimSuffix(filepath.Base(name), ".txt"), string(text))
		all, errs = append(all, m), append(errs, err)
	}
	return all, errors.Join(errs...)
}

// parse parses the text of a mutation's file.
func parse(name, text string) (*Mutation, error) {
	m := &Mutation{Name: name}
	dir := ""
	for i, line := range strings.Split(text, "\n") {
		if err := m.parseLine(line, i+1, &dir); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", name, i+1, err)
		}
	}
	switch {
	case m.Bug == "":
		return nil, fmt.Errorf("%s: no BUG: what is wrong with it?", name)
	case len(m.Catch) == 0:
		return nil, fmt.Errorf("%s: no CATCH: which tests must fail with it?", name)
	case len(m.hunks) == 0:
		return nil, fmt.Errorf("%s: it changes nothing", name)
	}
	for i := range m.hunks {
		h := &m.hunks[i]
		if strings.Join(h.old, "") == "" {
			return nil, fmt.Errorf("%s:%d: no line that says where", name, h.line)
		}
		h.dedent()
	}
	return m, nil
}

func (m *Mutation) parseLine(line string, number int, dir *string) (err error) {
	word, rest, _ := strings.Cut(line, " ")
	switch word {
	case "":
		if line == "" {
			return nil
		}
	case "#":
		return m.parseHeader(rest)
	case "package":
		*dir = rest
		return nil
	case "func", "type", "const", "var":
		if *dir == "" {
			return errors.New("a declaration, but no package yet")
		}
		m.hunks = append(m.hunks, hunk{line: number, dir: *dir, decl: line})
		return nil
	case "file":
		m.hunks = append(m.hunks, hunk{line: number, file: rest})
		return nil
	}
	if len(m.hunks) == 0 {
		return errors.New("a line of code, but no place yet")
	}
	h := &m.hunks[len(m.hunks)-1]
	sign, code := line[0], line[1:]
	if sign != ' ' && sign != '-' && sign != '+' {
		return errors.New("it begins with nothing that is known; code has a blank, - or + in front")
	}
	if sign != '+' {
		h.old = append(h.old, code)
	}
	if sign != '-' {
		h.new = append(h.new, code)
	}
	return nil
}

func (m *Mutation) parseHeader(line string) (err error) {
	field, value, _ := strings.Cut(line, ": ")
	switch field {
	case "BUG":
		m.Bug = value
	case "CATCH":
		var c Command
		c, err = ParseCommand(value)
		m.Catch = append(m.Catch, c)
	case "HANG":
		m.Hang, err = time.ParseDuration(value)
	default:
		err = fmt.Errorf("%s is not known", field)
	}
	return err
}

// dedent removes the common indentation of all lines.
func (h *hunk) dedent() {
	shared, first := "", true
	for _, lines := range [][]string{h.old, h.new} {
		for _, line := range lines {
			if line == "" {
				continue
			}
			indent := line[:len(line)-len(strings.TrimLeft(line, "\t "))]
			if first {
				shared, first = indent, false
			}
			for !strings.HasPrefix(indent, shared) {
				shared = shared[:len(shared)-1]
			}
		}
	}
	for _, lines := range [][]string{h.old, h.new} {
		for i := range lines {
			lines[i] = strings.TrimPrefix(lines[i], shared)
		}
	}
}

package mutations

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Command is a use of go test on one package.
type Command struct {
	Text  string   // as in the mutation
	Build []string // flags of the build: those before the package
	Dir   string   // the package, below the module's root
	Args  []string // flags of the test: those behind the package
}

// words are separated by blanks, except within quotes.
var words = regexp.MustCompile(`'[^']*'|[^' ]+`)

// goTestFlags are those that the go command passes to the test as -test.NAME.
var goTestFlags = []string{"-run", "-skip", "-cpu", "-parallel"}

// ParseCommand reads go test [build flags] ./package [flags of the test].
func ParseCommand(text string) (Command, error) {
	c := Command{Text: text}
	arguments, ok := strings.CutPrefix(text, "go test ")
	if !ok {
		return c, fmt.Errorf("it is not go test: %s", text)
	}
	for _, w := range words.FindAllString(arguments, -1) {
		w = strings.Trim(w, "'")
		dir, isDir := strings.CutPrefix(w, "./")
		flag, _, _ := strings.Cut(w, "=")
		switch {
		case c.Dir == "" && isDir:
			c.Dir = dir
		case c.Dir == "":
			c.Build = append(c.Build, w)
		case slices.Contains(goTestFlags, flag):
			c.Args = append(c.Args, "-test."+w[1:])
		default:
			c.Args = append(c.Args, w)
		}
	}
	if c.Dir == "" {
		return c, fmt.Errorf("it names no package by ./: %s", text)
	}
	return c, nil
}

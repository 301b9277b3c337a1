package p2p_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	namedTest = regexp.MustCompile("`((?:Test|Fuzz)\\w+)`")
	testFunc  = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(\w+ \*testing\.[TF]\)`)
)

// TestSecurityPage: each row of promises in SECURITY.md names its tests, and these exist.
func TestSecurityPage(t *testing.T) {
	page, err := os.ReadFile("../SECURITY.md")
	require.NoError(t, err)
	there := map[string]bool{}
	err = filepath.WalkDir("..", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		code, err := os.ReadFile(path)
		for _, f := range testFunc.FindAllStringSubmatch(string(code), -1) {
			there[f[1]] = true
		}
		return err
	})
	require.NoError(t, err)
	named := namedTest.FindAllStringSubmatch(string(page), -1)
	require.NotEmpty(t, named)
	for _, n := range named {
		assert.True(t, there[n[1]], "there is no %s", n[1])
	}
	promises := false
	for line := range strings.Lines(string(page)) {
		switch {
		case strings.HasPrefix(line, "| promise | test |"):
			promises = true
		case !strings.HasPrefix(line, "|"):
			promises = false
		case promises && !strings.HasPrefix(line, "|---"):
			assert.Regexp(t, namedTest, line, "a promise without a test")
		}
	}
}

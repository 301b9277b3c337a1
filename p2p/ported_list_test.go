package p2p_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	portedEntry = regexp.MustCompile("(?m)^\\| `([^`]+)` \\| [^|]+ \\| (?:`(Test\\w+)`|missing: [^|]+) \\|$")
	portedTest  = regexp.MustCompile(`(?s)\nfunc (Test\w+)\(t \*testing\.T\) \{(.*?)\n\}`)
	portedName  = regexp.MustCompile(`\{"([\w.,]+)", `)
)

// TestPortedList: docs/ported-tests.md and the tests name the same rows, in the same tests.
func TestPortedList(t *testing.T) {
	list, err := os.ReadFile("../docs/ported-tests.md")
	require.NoError(t, err)
	documented := map[string]string{}
	for _, entry := range portedEntry.FindAllStringSubmatch(string(list), -1) {
		assert.NotContains(t, documented, entry[1], "listed twice")
		documented[entry[1]] = entry[2] // none where it is missing
	}
	assert.Equal(t, strings.Count(string(list), "\n| `"), len(documented), "lines of another form")

	files, err := filepath.Glob("ported_*_test.go")
	require.NoError(t, err)
	collective, err := filepath.Glob("../coll/ported_*_test.go")
	require.NoError(t, err)
	found := map[string]string{}
	for _, file := range append(files, collective...) {
		code, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, test := range portedTest.FindAllStringSubmatch(string(code), -1) {
			for _, row := range portedName.FindAllStringSubmatch(test[2], -1) {
				found[row[1]] = test[1]
			}
		}
	}
	for name, test := range documented {
		assert.Equal(t, test, found[name], "row %s: listed in the first test, found in the second", name)
	}
	for name, test := range found {
		assert.Contains(t, documented, name, "row of %s", test)
	}
}

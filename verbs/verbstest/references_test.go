package verbstest

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	repository = "../.."
	specFile   = "docs/tag-matching-offload.md"
)

// numbers are the numbers behind a reference: "5.1", "2.3, 4.4", "1.1 to 1.3", "20, 21 and 24". A
// gap may be a line break.
const (
	gap     = `(?: |[ \t]*\n[ \t]*(?://|\*|#)?[ \t]*)`
	numbers = gap + `(\d+(?:\.\d+)?(?:(?:,|` + gap + `and|` + gap + `to)` + gap + `\d+(?:\.\d+)?)*)`
)

var (
	oneNumber  = regexp.MustCompile(`\d+(?:\.\d+)?`)
	raceTest   = regexp.MustCompile(`func TestRace(\d\d)`)
	ruleName   = regexp.MustCompile(`\{?"(\d\.\d+(?:, \d\.\d+)*)[/:,]`)
	rowName    = regexp.MustCompile(`"7\.2/(\d+)-`)
	usesNumber = regexp.MustCompile(`TMO \d|\bV\d`)
	document   = regexp.MustCompile(`[A-Za-z0-9_-]+\.md\b`)
	references = []struct {
		hint string // substring of every such reference, to skip texts quickly
		to   string
		re   *regexp.Regexp
	}{
		{"TMO", "section", regexp.MustCompile(`TMO` + numbers)},
		{"ection", "section", regexp.MustCompile(`[Ss]ections?` + numbers)},
		{"tag-matching-", "section", regexp.MustCompile(`tag-matching-offload\.md,?` + numbers)},
		{"V", "invariant", regexp.MustCompile(`\bV(\d+)\b`)},
		{"cenario", "scenario", regexp.MustCompile(`[Ss]cenarios?` + numbers)},
		{"TestRace", "scenario", regexp.MustCompile(`TestRace(\d\d)`)},
	}
)

// spec is the numbers in the specification, by kind.
type spec map[string]map[string]bool

func readSpec(t *testing.T) spec {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(repository, specFile))
	require.NoError(t, err)
	s := spec{}
	for kind, re := range map[string]string{
		"section":   `(?m)^#{2,3} (\d+(?:\.\d+)?)\.? `,
		"invariant": `(?m)^\| V(\d+) \|`,
		"scenario":  `(?m)^#### Scenario (\d+): `,
	} {
		s[kind] = map[string]bool{}
		for _, m := range regexp.MustCompile(re).FindAllStringSubmatch(string(text), -1) {
			require.False(t, s[kind][m[1]], "%s %s is there twice", kind, m[1])
			s[kind][m[1]] = true
		}
	}
	require.Len(t, s["invariant"], 19)
	require.Len(t, s["scenario"], 58)
	return s
}

// unresolved lists the references of a text that the specification does not have.
func (s spec) unresolved(text string) (bad []string) {
	for _, r := range references {
		if strings.Contains(text, r.hint) {
			bad = append(bad, s.missing(r.to, r.re, text)...)
		}
	}
	return bad
}

func (s spec) missing(kind string, re *regexp.Regexp, text string) (bad []string) {
	for _, m := range re.FindAllStringSubmatch(text, -1) {
		for _, n := range oneNumber.FindAllString(m[1], -1) {
			if n = strings.TrimPrefix(n, "0"); !s[kind][n] {
				bad = append(bad, fmt.Sprintf("%q: there is no %s %s", m[0], kind, n))
			}
		}
	}
	return bad
}

// TestReferences: the sections, invariants and scenarios that code, models, tests and documents
// refer to are in the specification; each package with references names the document in doc.go;
// each scenario has a test; and documents that are named exist.
func TestReferences(t *testing.T) {
	s := readSpec(t)
	files := readRepository(t)
	documents, races := map[string]bool{}, map[string]bool{}
	for path := range files {
		documents[filepath.Base(path)] = true
	}
	for path, text := range files {
		for _, bad := range s.unresolved(text) {
			t.Errorf("%s: %s", path, bad)
		}
		if strings.HasPrefix(path, "verbs/verbstest/rules") {
			wrong := s.missing("section", ruleName, text)
			for _, bad := range append(wrong, s.missing("scenario", rowName, text)...) {
				t.Errorf("%s: %s", path, bad)
			}
		}
		if strings.Contains(text, ".md") && path != specFile { // which names its sources
			for _, name := range document.FindAllString(text, -1) {
				if !documents[name] {
					t.Errorf("%s: there is no %s", path, name)
				}
			}
		}
		for _, m := range raceTest.FindAllStringSubmatch(text, -1) {
			races[strings.TrimPrefix(m[1], "0")] = true
		}
		doc := filepath.ToSlash(filepath.Join(filepath.Dir(path), "doc.go"))
		says := strings.Contains(files[doc], specFile)
		if !says && filepath.Ext(path) == ".go" && usesNumber.MatchString(text) {
			t.Errorf("%s uses numbers of the specification, and %s does not name %s", path, doc, specFile)
		}
	}
	require.Equal(t, s["scenario"], races, "the tests TestRace01 to TestRace58")
}

// TestReferencesFound: TestReferences detects references to missing items. The words are cut, as it
// would report these too.
func TestReferencesFound(t *testing.T) {
	s := readSpec(t)
	require.Empty(t, s.unresolved("T"+"MO 5.1, 5.6 and 9, T"+"MO 1 to 5.\nV"+"1, V"+"19; "+
		"scenarios"+" 1 to 58, TestRace"+"07, section"+" 6.10"))
	for _, text := range []string{
		"(T" + "MO 5.7)", "T" + "MO 11", "T" + "MO 5.1, 5.9", "T" + "MO 1.1 to 1.6", "T" + "MO\n\t// 3.6",
		"section" + " 6.11", "section\n   " + "7.3", "sections" + " 1 and 12",
		specFile + " 8.5", specFile + ", section" + " 0",
		"V" + "0", "V" + "20", "scenario" + " 59", "scenarios" + " 20, 21 and 60",
		"TestRace" + "00", "TestRace" + "59",
	} {
		require.Len(t, s.unresolved(text), 1, text)
	}
}

// readRepository returns the texts that may refer to the specification, by path.
func readRepository(t *testing.T) map[string]string {
	t.Helper()
	kinds, files := []string{".go", ".md", ".pml", ".sh", ".patch"}, map[string]string{}
	require.NoError(t, filepath.WalkDir(repository, func(path string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.IsDir() && e.Name() == ".git":
			return filepath.SkipDir
		case e.IsDir() || !slices.Contains(kinds, filepath.Ext(path)):
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(repository, path)
		files[filepath.ToSlash(rel)] = string(text)
		return err
	}))
	require.NotEmpty(t, files[specFile])
	return files
}

package jobtest

import (
	"flag"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/inspect/diagnose"
)

const (
	debuggingPage = "../../docs/debugging.md"
	brokenSource  = "broken_roles_test.go"
)

var updatePage = flag.Bool("update", false, "write the answers that TestDiagnosed gets into docs/debugging.md")

// shown is a fault as docs/debugging.md shows it: in a block of Go, lines of its function, and in
// the next, named by the fault, what is answered, behind the command.
type shown struct{ program, command, answer string }

var blocks = regexp.MustCompile("(?sm)^```go\n(.*?)^```\n.*?^```(\\w+)\n(.*?)\n(.*?)^```\n")

// readPage reads what the page shows of each fault.
func readPage(t *testing.T) map[string]shown {
	t.Helper()
	text, err := os.ReadFile(debuggingPage)
	require.NoError(t, err)
	page := map[string]shown{}
	for _, m := range blocks.FindAllStringSubmatch(string(text), -1) {
		page[m[2]] = shown{program: m[1], command: m[3], answer: m[4]}
	}
	return page
}

// writeAnswer puts an answer into the page.
func writeAnswer(t *testing.T, fault, answer string) {
	t.Helper()
	text, err := os.ReadFile(debuggingPage)
	require.NoError(t, err)
	block := regexp.MustCompile("(?sm)^(```" + fault + "\n[^\n]*\n).*?^```\n")
	require.Regexp(t, block, string(text))
	text = block.ReplaceAllFunc(text, func(old []byte) []byte {
		return []byte(block.FindStringSubmatch(string(old))[1] + answer + "```\n")
	})
	require.NoError(t, os.WriteFile(debuggingPage, text, 0o644))
}

// changing is what differs from run to run, and what stands for it in the page. Places are those of
// a program of its own there.
var changing = []struct {
	re   *regexp.Regexp
	page string
}{
	{regexp.MustCompile(`\b\w+_test\.go:`), "main.go:"},
	{regexp.MustCompile(`\bjobtest\.brokenProgram\b`), "main.main"},
	{regexp.MustCompile(`\bjobtest\.`), "main."},
	{regexp.MustCompile(`\(pid \d+ on \S+\)`), "(pid 4711 on node7)"},
	{regexp.MustCompile(`-CONT \d+`), "-CONT 4711"},
	{regexp.MustCompile(`rank \d exited`), "rank 0 exited"}, // the first that has noticed
	{regexp.MustCompile(`keeps \d+ [KM]iB`), "keeps 26 MiB"},
	{regexp.MustCompile(`has \d+ requests`), "has 40000 requests"},
	{regexp.MustCompile(`\d+ more than`), "12000 more than"},
}

func asOnPage(s string) string {
	for _, c := range changing {
		s = c.re.ReplaceAllString(s, c.page)
	}
	return s
}

// answerOf is the text of verdicts as the page shows it.
func answerOf(t *testing.T, verdicts []diagnose.Verdict) string {
	t.Helper()
	var b strings.Builder
	for i := range verdicts {
		v := &verdicts[i]
		v.Age = min(v.Age, 1) * 12_000
		v.What, v.Do, v.Doubt = asOnPage(v.What), asOnPage(v.Do), asOnPage(v.Doubt)
	}
	require.NoError(t, diagnose.Write(&b, verdicts, 80))
	return b.String()
}

// TestDebuggingPage: the page shows each broken program by lines that it has, in their order, and
// each answer that names a line of it names one that is shown.
func TestDebuggingPage(t *testing.T) {
	page := readPage(t)
	text, err := os.ReadFile(brokenSource)
	require.NoError(t, err)
	source := strings.Split(string(text), "\n")
	for i := range source {
		source[i] = strings.TrimSpace(source[i])
	}
	require.Len(t, page, len(brokenPrograms))
	for fault := range brokenPrograms {
		s, known := page[fault]
		require.True(t, known, fault)
		require.NotEmpty(t, s.answer, fault)
		require.True(t, strings.HasPrefix(s.command, "$ tagmatch "), "%s: %s", fault, s.command)
		at := slices.IndexFunc(source, func(line string) bool { return strings.HasPrefix(line, "func "+fault+"(") })
		require.GreaterOrEqual(t, at, 0, fault)
		lines := strings.Split(strings.TrimSpace(s.program), "\n")
		for i := range lines {
			if lines[i] = strings.TrimSpace(lines[i]); lines[i] == "..." {
				continue
			}
			n := slices.Index(source[at:], lines[i])
			require.Positive(t, n, "%s: the program has no line %q here", fault, lines[i])
			at += n
		}
		joined := strings.Join(strings.Fields(s.answer), " ")
		for _, m := range regexp.MustCompile(`main\.go:(\d+) main\.`+fault).FindAllStringSubmatch(joined, -1) {
			n, err := strconv.Atoi(m[1])
			require.NoError(t, err)
			require.Contains(t, lines, source[n-1], "%s: line %d", fault, n)
		}
	}
}

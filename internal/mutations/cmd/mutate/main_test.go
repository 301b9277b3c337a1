package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/mutations"
	"github.com/tagmatch/tagmatch/internal/testlevel"
)

// module is what the tests put bugs into.
var module = map[string]string{
	"go.mod":        "module example.com/m\n\ngo 1.21\n",
	"sum/sum.go":    "package sum\n\nfunc Sum(x, y int) int {\n\treturn x + y\n}\n",
	"neg/neg.go":    "package neg\n\nfunc Neg(x int) int {\n\treturn -x\n}\n",
	"neg/tagged.go": "//go:build tagged\n\npackage neg\n\nconst Tagged = true\n",
	"neg/plain.go":  "//go:build !tagged\n\npackage neg\n\nconst Tagged = false\n",
	"sum/sum_test.go": "package sum\n\nimport \"testing\"\n\nfunc TestSum(t *testing.T) {\n\t" +
		"if Sum(2, 3) != 5 {\n\t\tt.Fatal(Sum(2, 3))\n\t}\n}\n",
	"neg/neg_test.go": "package neg\n\nimport (\n\t\"example.com/m/sum\"\n\t\"testing\"\n)\n\n" +
		"func TestNeg(t *testing.T) {\n\tif sum.Sum(2, Neg(2)) != 0 {\n\t\tt.Fatal(Neg(2))\n\t}\n}\n\n" +
		"func TestTagged(t *testing.T) {\n\tif Tagged && Neg(3) != -3 {\n\t\tt.Fatal(Neg(3))\n\t}\n}\n",
}

const (
	bySum    = "# BUG: wrong\n# CATCH: go test ./sum -run '^TestSum$'\n"
	byNeg    = "# BUG: wrong\n# CATCH: go test ./neg -run '^TestNeg$'\n"
	byTagged = "# BUG: wrong\n# CATCH: go test -tags tagged ./neg -run '^TestTagged$'\n"
	inSum    = "package sum\nfunc Sum\n-return x + y\n"
	inNeg    = "package neg\nfunc Neg\n-return -x\n"
)

// write makes a module with these bugs.
func write(t *testing.T, bugs map[string]string) (root string) {
	root = t.TempDir()
	put := func(file, text string) {
		file = filepath.Join(root, file)
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	}
	for file, text := range module {
		put(file, text)
	}
	for name, text := range bugs {
		put(filepath.Join(mutations.Dir, name+".txt"), text)
	}
	return root
}

// verdicts runs the command and returns the first word of each line that names a bug or, without
// one, a command.
func verdicts(t *testing.T, root string, args ...string) (code int, verdicts map[string]string, errs string) {
	var out, err bytes.Buffer
	code = run(context.Background(), root, args, &out, &err)
	verdicts = map[string]string{}
	for _, line := range strings.Split(out.String(), "\n") {
		if head, rest, ok := strings.Cut(line, "s to run  "); ok {
			name, _, _ := strings.Cut(rest, " by ")
			verdicts[name] = strings.Fields(head)[0]
		}
	}
	t.Logf("%v: %d\n%s%s", args, code, &out, &err)
	return code, verdicts, err.String()
}

func TestVerdicts(t *testing.T) {
	testlevel.SkipIfQuick(t)
	root := write(t, map[string]string{
		"001-sum":     bySum + inSum + "+return x - y\n",
		"002-same":    bySum + inSum + "+return y + x\n",
		"003-endless": strings.Replace(bySum, "\n", "\n# HANG: 1s\n", 1) + inSum + "+for {\n+}\n",
		"004-no-go":   bySum + inSum + "+return none\n",
		"005-both":    bySum + byNeg[strings.Index(byNeg, "# CATCH"):] + inSum + "+return x\n",
		"006-tagged":  byTagged + inNeg + "+return x\n",
	})
	code, got, errs := verdicts(t, root, "-p", "2", "001", "003", "005", "006")
	require.Equal(t, 0, code)
	require.Equal(t, map[string]string{
		"go test ./sum -run '^TestSum$'": "passes", "go test ./neg -run '^TestNeg$'": "passes",
		"go test -tags tagged ./neg -run '^TestTagged$'": "passes",
		"001-sum": "caught", "003-endless": "caught", "005-both": "caught", "006-tagged": "caught",
	}, got)
	require.Empty(t, errs)

	code, got, errs = verdicts(t, root, "002", "004", "001")
	require.Equal(t, 1, code)
	require.Equal(t, "caught", got["001-sum"])
	require.Equal(t, "MISSED", got["002-same"])
	require.Equal(t, "MISSED", got["004-no-go"])
	require.Contains(t, errs, "002-same")
	require.NotContains(t, errs, "001-sum")
	text, err := os.ReadFile(filepath.Join(root, "sum/sum.go"))
	require.NoError(t, err)
	require.Equal(t, module["sum/sum.go"], string(text))
}

func TestControl(t *testing.T) {
	testlevel.SkipIfQuick(t)
	root := write(t, map[string]string{
		"001-gone":   strings.Replace(bySum, "TestSum", "TestGone", 1) + inSum + "+return x\n",
		"002-broken": bySum + inNeg + "+return x\n",
	})
	code, got, errs := verdicts(t, root, "001")
	require.Equal(t, 1, code)
	require.Equal(t, map[string]string{"go test ./sum -run '^TestGone$': no test of that name": "WRONG"}, got)
	require.Contains(t, errs, "TestGone")

	wrong := strings.Replace(module["sum/sum_test.go"], "!=", "==", 1)
	require.NoError(t, os.WriteFile(filepath.Join(root, "sum/sum_test.go"), []byte(wrong), 0o600))
	code, got, _ = verdicts(t, root, "002")
	require.Equal(t, 1, code)
	require.Equal(t, map[string]string{"go test ./sum -run '^TestSum$': fails": "WRONG"}, got)
}

func TestReport(t *testing.T) {
	for _, row := range []struct {
		outcome            string
		sound, caught, may bool // as it must be: without a bug, with one, with one that may hang
	}{
		{"passes", true, false, false},
		{"fails", false, true, true},
		{"hangs", false, false, true},
		{"does not run", false, false, false},
		{"does not build", false, false, false},
		{"no test of that name", false, false, false},
	} {
		for m, good := range map[*mutations.Mutation]bool{nil: row.sound, {Name: "x"}: row.caught, {Name: "x", Hang: time.Second}: row.may} {
			r := &runner{out: &bytes.Buffer{}}
			r.report(&job{m: m}, mutations.Command{Text: "go test ./x"}, row.outcome, "", 0, 0)
			require.Equal(t, good, len(r.missed) == 0, "%s %v", row.outcome, m)
		}
	}
}

func TestOutcomes(t *testing.T) {
	for script, want := range map[string]string{
		"echo PASS": "passes",
		"echo 'testing: warning: no tests to run'":   "no test of that name",
		"echo '    --- FAIL: TestX/y'; exit 1":       "fails",
		"echo 'panic: index out of range'; exit 2":   "fails",
		"echo 'FAIL: of the device'; exit 1":         "fails",
		"echo 'panic: test timed out after'; exit 2": "hangs",
		"sleep 100":                     "hangs",
		"echo FAIL; exit 3":             "does not run",
		"cd ../a":                       "passes",
		"[ $TAGMATCH_TEST_LEVEL = ci ]": "passes",
		"[ $2 = -test.failfast -a $3 = -test.timeout=-9s -a $4 = -test.run ]": "passes",
	} {
		root := t.TempDir()
		require.NoError(t, os.Mkdir(filepath.Join(root, "a"), 0o755))
		binary := filepath.Join(root, "test")
		require.NoError(t, os.WriteFile(binary, []byte("#!/bin/sh\n"+script+"\n"), 0o755))
		r := &runner{ctx: t.Context(), root: root}
		log, outcome := r.test(mutations.Command{Dir: "a", Args: []string{"-test.run"}}, binary, time.Second-grace)
		require.Equal(t, want, outcome, "%s: %s", script, log)
	}
}

func TestUsage(t *testing.T) {
	root := write(t, map[string]string{"001-sum": bySum + inSum + "+return x\n"})
	for _, args := range [][]string{{}, {"-all", "001"}, {"-all", "-since", "HEAD"}, {"-p", "0", "-all"}, {"001", "7"}, {"-since", "HEAD"}} {
		code, got, errs := verdicts(t, root, args...) // the module is no repository
		require.Equal(t, 2, code, "%v", args)
		require.Empty(t, got)
		require.NotEmpty(t, errs)
	}
	require.NoError(t, os.WriteFile(filepath.Join(root, mutations.Dir, "002-moved.txt"), []byte(bySum+"package sum\nfunc Sum\n-return y\n"), 0o600))
	code, got, errs := verdicts(t, root, "001")
	require.Equal(t, 2, code)
	require.Empty(t, got)
	require.Contains(t, errs, "002-moved.txt:4: sum, func Sum: its snippet stands there 0 times")
}

func TestTouched(t *testing.T) {
	root := write(t, map[string]string{
		"001-sum":  bySum + inSum + "+return x\n",
		"002-both": bySum + byNeg[strings.Index(byNeg, "# CATCH"):] + inSum + "+return x\n",
		"003-neg":  byNeg + inNeg + "+return x\n",
	})
	git := func(args ...string) {
		cmd := exec.Command("git", append([]string{"-c", "user.name=x", "-c", "user.email=x@example.com"}, args...)...)
		cmd.Dir = root
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	git("init", "-q")
	git("add", "-A")
	git("commit", "-qm", "all")
	git("checkout", "-qB", "main")
	git("checkout", "-qB", "topic")
	for _, row := range []struct {
		name, file string
		want       []string // what is run
	}{
		{"nothing", "README.md", nil},
		{"code", "sum/sum.go", []string{"001-sum ./sum", "002-both ./sum", "002-both ./neg"}},
		{"tests elsewhere", "neg/neg_test.go", []string{"002-both ./neg", "003-neg ./neg"}},
		{"data of tests", "neg/testdata/deep/new", []string{"002-both ./neg", "003-neg ./neg"}},
		{"a bug", mutations.Dir + "/001-sum.txt", []string{"001-sum ./sum"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			file := filepath.Join(root, row.file)
			require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
			text, _ := os.ReadFile(file)
			require.NoError(t, os.WriteFile(file, append(text, '\n'), 0o600))
			for _, step := range []string{"untracked or changed", "committed"} {
				jobs, err := load(root)
				require.NoError(t, err)
				jobs, err = touched(t.Context(), root, "main", jobs)
				require.NoError(t, err)
				var got []string
				for _, j := range jobs {
					for _, c := range j.commands {
						got = append(got, j.m.Name+" ./"+c.Dir)
					}
				}
				require.Equal(t, row.want, got, step)
				git("add", "-A")
				git("commit", "-q", "--allow-empty", "-m", "more")
			}
			git("checkout", "-qB", "main")
			git("checkout", "-qB", "topic")
		})
	}
}

package prometheus

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/inspect/meters"
	"github.com/tagmatch/tagmatch/p2p"
)

// gathered is what a registry has of a rank that has sent itself a message, and what the exporter
// would write of it.
func gathered(t *testing.T) (r *prometheus.Registry, text string) {
	ctx := context.Background()
	w, err := p2p.Init(ctx, p2p.Config{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, w.Close()) })
	require.NoError(t, w.Comm().Send(ctx, 0, 1, make([]byte, 1000)))
	_, err = w.Comm().Recv(ctx, 0, 1, make([]byte, 1000))
	require.NoError(t, err)
	r = prometheus.NewPedanticRegistry()
	r.MustRegister(NewCollector(w))
	values, err := read(w)
	require.NoError(t, err)
	var b bytes.Buffer
	values[meters.Up], values[meters.Started] = 1, 1.5e9
	require.NoError(t, meters.Write(&b, []meters.Rank{{Job: w.Metrics().Job, Program: program(), Values: values}}))
	return r, b.String()
}

// TestCollector: the collector has the same numbers as the exporter, but for those of its own.
func TestCollector(t *testing.T) {
	r, text := gathered(t)
	require.Contains(t, text, `protocol="eager"} 1000`)
	var names []string
	for _, f := range meters.Families {
		if field := f.Samples[0].Field; field == meters.Up || field == meters.Started {
			continue
		}
		names = append(names, f.Name)
	}
	own := regexp.MustCompile(`(?m)^.*\btagmatch_(up|start_time_seconds)\b.*\n`)
	text = regexp.MustCompile(`{.*}`).ReplaceAllStringFunc(own.ReplaceAllString(text, ""), sorted)
	require.NoError(t, testutil.GatherAndCompare(r, strings.NewReader(text), names...))
	problems, err := testutil.GatherAndLint(r)
	require.NoError(t, err)
	require.Empty(t, problems)
}

// sorted has labels in the order in which the client library writes them.
func sorted(labels string) string {
	list := strings.Split(strings.Trim(labels, "{}"), ",")
	slices.Sort(list)
	return "{" + strings.Join(list, ",") + "}"
}

// promtool is of Debian's package prometheus.
func promtool(t *testing.T, in string, args ...string) {
	cmd := exec.Command("promtool", args...)
	cmd.Stdin = strings.NewReader(in)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s\npromtool is needed: apt-get install --no-install-recommends prometheus", out)
}

// TestPromtool: what the exporter writes and the alert rules are as Prometheus wants them, and each
// alert fires where it is to, and nowhere else.
func TestPromtool(t *testing.T) {
	_, text := gathered(t)
	promtool(t, text, "check", "metrics")
	promtool(t, "", "check", "rules", "../rules.yml")
	promtool(t, "", "test", "rules", "testdata/rules_test.yml")
}

// TestNamesInUse: rules and dashboard name no number that there is not, and the expressions of the
// dashboard, as rules, are well-formed.
func TestNamesInUse(t *testing.T) {
	var names []string
	for _, f := range meters.Families {
		names = append(names, f.Name)
	}
	for _, file := range []string{"../rules.yml", "../dashboard.json"} {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		used := regexp.MustCompile(`\btagmatch_\w+`).FindAllString(string(text), -1)
		require.NotEmpty(t, used)
		for _, name := range used {
			require.True(t, slices.Contains(names, name), "%s: %s", file, name)
		}
	}
	var dashboard struct {
		Panels []struct{ Targets []struct{ Expr string } }
	}
	text, err := os.ReadFile("../dashboard.json")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &dashboard))
	var rules strings.Builder
	rules.WriteString("groups: [{name: dashboard, rules: [\n")
	for i, p := range dashboard.Panels {
		require.NotEmpty(t, p.Targets)
		for j, target := range p.Targets {
			expr := strings.ReplaceAll(target.Expr, "$__rate_interval", "1m")
			fmt.Fprintf(&rules, "{record: panel%d_%d, expr: %q},\n", i, j, expr)
		}
	}
	rules.WriteString("]}]\n")
	path := t.TempDir() + "/dashboard.yml"
	require.NoError(t, os.WriteFile(path, []byte(rules.String()), 0o600))
	promtool(t, "", "check", "rules", path)
}

package jobtest

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// trialLog is the file of the outcomes of trials, also of earlier runs.
type trialLog struct {
	mu   sync.Mutex
	file *os.File // nil: none
}

func openTrialLog(t *testing.T, path string) *trialLog {
	l := &trialLog{}
	if path != "" {
		var err error
		l.file, err = os.OpenFile(path, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o644)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, l.file.Close()) })
	}
	return l
}

// add adds an outcome.
func (l *trialLog) add(t *testing.T, out trialOutcome) {
	if l.file == nil {
		return
	}
	b, err := json.Marshal(out)
	require.NoError(t, err)
	l.mu.Lock()
	defer l.mu.Unlock()
	_, err = l.file.Write(append(b, '\n'))
	require.NoError(t, err)
}

// read reads all outcomes, by cell.
func (l *trialLog) read(t *testing.T) map[string][]trialOutcome {
	byCell := map[string][]trialOutcome{}
	b, err := os.ReadFile(l.file.Name())
	require.NoError(t, err)
	for line := range strings.Lines(string(b)) {
		var out trialOutcome
		require.NoError(t, json.Unmarshal([]byte(line), &out))
		byCell[out.Cell] = append(byCell[out.Cell], out)
	}
	return byCell
}

// pageText is the page but for its figures.
//
//go:embed testdata/reliability.md
var pageText string

// writePage writes the page with the figures of all trials.
func (l *trialLog) writePage(t *testing.T, path string) {
	trials := l.read(t)
	var table strings.Builder
	fmt.Fprintf(&table, "| fault | over | named | trials | bound |")
	for _, p := range phases {
		fmt.Fprintf(&table, " %s |", p)
	}
	table.WriteString("\n|" + strings.Repeat("---|", 5+len(phases)) + "\n")
	for _, f := range faults {
		for _, device := range matrixDevices {
			for _, transport := range matrixTransports {
				table.WriteString(rowOf(f, device, transport, trials))
			}
		}
	}
	cpu, err := os.ReadFile("/proc/cpuinfo")
	require.NoError(t, err)
	_, model, _ := strings.Cut(string(cpu), "model name\t: ")
	model, _, _ = strings.Cut(model, "\n")
	text := strings.NewReplacer("PROCESSOR", model, "TABLE\n", table.String()).Replace(pageText)
	require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
}

// rowOf is the row of a fault over a device and a transport; "" where there can be none.
func rowOf(f *fault, device, transport string, trials map[string][]trialOutcome) string {
	var cells strings.Builder
	var named [matrixRanks][]int
	least, most := 0, 0
	for _, p := range phases {
		c := cell{f, p, device, transport}
		if c.impossible() != "" {
			cells.WriteString(" - |")
			continue
		}
		list := trials[c.String()]
		if most == 0 || len(list) < least {
			least = len(list)
		}
		most = max(most, len(list))
		cells.WriteString(" " + figures(list) + " |")
		for _, out := range list {
			for rank, lost := range out.Lost {
				if p != leaving {
					named[rank] = append(named[rank], lost...)
				}
			}
		}
	}
	if most == 0 {
		return ""
	}
	count := fmt.Sprint(most)
	if least != most {
		count = fmt.Sprintf("%d to %d", least, most)
	}
	bound := "none"
	if b := (cell{f, idle, device, transport}).bound(); b != 0 {
		bound = b.String()
	}
	return fmt.Sprintf("| %s | %s, %s | %s | %s | %s |%s\n", f.name, device, transport, namedBy(named), count, bound, cells.String())
}

// namedBy says which ranks each rank has named.
func namedBy(named [matrixRanks][]int) string {
	var list []string
	for rank, lost := range named {
		slices.Sort(lost)
		if lost = slices.Compact(lost); len(lost) != 0 {
			list = append(list, fmt.Sprintf("%d: %s", rank, strings.Trim(strings.ReplaceAll(fmt.Sprint(lost), " ", ", "), "[]")))
		}
	}
	if list == nil {
		return "nobody"
	}
	return strings.Join(list, "; ")
}

// figures is what came of the trials of a cell: the median and the longest of the times in seconds
// after which the last rank knew what it had lost, and how many failed.
func figures(trials []trialOutcome) string {
	var times []time.Duration
	failed := 0
	for _, out := range trials {
		if after := slices.Max(out.After[:]); out.Failed {
			failed++
		} else if after != 0 {
			times = append(times, after)
		}
	}
	text := "well"
	switch {
	case len(trials) == 0:
		return "not played"
	case len(times) != 0:
		slices.Sort(times)
		text = fmt.Sprintf("%.2f, %.2f", times[(len(times)-1)/2].Seconds(), times[len(times)-1].Seconds())
	}
	if failed != 0 {
		text += fmt.Sprintf("; %d failed", failed)
	}
	if rest := len(trials) - failed - len(times); rest != 0 && len(times) != 0 {
		text += fmt.Sprintf("; %d well", rest)
	}
	return text
}

// TestReliabilityPage: the page has the text and the cells of this matrix.
func TestReliabilityPage(t *testing.T) {
	b, err := os.ReadFile("../../docs/reliability.md")
	require.NoError(t, err)
	page := string(b)
	for i, part := range strings.Split(strings.ReplaceAll(pageText, "PROCESSOR", "TABLE"), "TABLE") {
		require.Contains(t, page, part, "part %d: run the command that the page names", i)
	}
	for _, p := range phases {
		require.Contains(t, page, fmt.Sprintf("| %s |", p))
	}
	for _, c := range possible("all") {
		require.Contains(t, page, fmt.Sprintf("| %s | %s, %s |", c.fault.name, c.device, c.transport))
	}
}

// TestPairs: the cells that CI plays have each pair of fault, phase, device and transport that is
// possible.
func TestPairs(t *testing.T) {
	pairs := func(cells []cell) map[string]bool {
		got := map[string]bool{}
		for _, c := range cells {
			names := []string{c.fault.name, string(c.phase), c.device, c.transport}
			for i, one := range names {
				for _, other := range names[:i] {
					got[one+", "+other] = true
				}
			}
		}
		return got
	}
	require.Equal(t, pairs(possible("all")), pairs(possible("pairwise")))
	few := pairs(possible("few"))
	for _, f := range faults {
		if f.lasts < time.Minute {
			require.True(t, slices.ContainsFunc(phases, func(p phase) bool { return few[string(p)+", "+f.name] }), f.name)
		}
	}
}

// cellNamed is the cell whose String is name.
func cellNamed(name string) cell {
	for _, c := range possible("all") {
		if c.String() == name {
			return c
		}
	}
	panic("no cell " + name)
}

// chosen reports whether the name of the cell has one of the parts that the comma list only names.
func (c cell) chosen(only string) bool {
	for part := range strings.SplitSeq(only, ",") {
		if strings.Contains(c.String(), part) {
			return true
		}
	}
	return false
}

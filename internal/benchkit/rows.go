package benchkit

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"

	"github.com/tagmatch/tagmatch/internal/launch"
)

// rows runs one job after the other, each this program with the row's flags, and prints their
// results as one table.
func (c Command) rows(f Flags, rows []Flags, stdout io.Writer) (int, error) {
	exe, err := os.Executable()
	if err != nil {
		return 1, err
	}
	report := &reporter{out: stdout, json: f.JSON}
	worst := 0
	for _, row := range rows {
		if err := c.fits(row); err != nil {
			return 1, err
		}
		var out bytes.Buffer
		code, err := launch.Run(context.Background(), launch.Options{N: max(c.ranks(), row.Ranks), NoPrefix: true, Pin: !f.NoPin, OneCPU: f.OneCore, Stdout: &out,
			Command: slices.Concat([]string{exe}, os.Args[1:], row.chosen())})
		if err != nil || code != 0 && out.Len() == 0 {
			return code, err
		}
		worst = max(worst, code) // with a result: the rank has printed what failed
		for line := range bytes.Lines(out.Bytes()) {
			var r Result
			if err := json.Unmarshal(line, &r); err != nil {
				return 1, fmt.Errorf("a rank printed %q: %w", line, err)
			}
			if err := report.print(&r); err != nil {
				return 1, err
			}
		}
	}
	return worst, nil
}

// chosen are the arguments of a row; they override earlier ones.
func (f *Flags) chosen() []string {
	args := []string{"-device", f.Device, "-transport", f.Transport, "-sizes", f.Sizes.String(), fmt.Sprintf("-manual=%v", f.Manual),
		fmt.Sprintf("-async=%v", f.Async), "-async-cpus", f.AsyncCPUs, "-json"}
	if f.Ranks > 0 {
		args = append(args, "-n", strconv.Itoa(f.Ranks))
	}
	if f.While != "" {
		args = append(args, "-while", f.While)
	}
	return args
}

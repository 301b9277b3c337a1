package benchkit

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/tagmatch/tagmatch/internal/launch"
)

// rows runs one job after the other, each this very program with the row's flags, and prints their results as one table.
func (c Command) rows(f Flags, stdout io.Writer) (int, error) {
	exe, err := os.Executable()
	if err != nil {
		return 1, err
	}
	report := &reporter{out: stdout, json: f.JSON}
	for _, row := range c.Rows(f) {
		var out bytes.Buffer
		code, err := launch.Run(context.Background(), launch.Options{N: 2, NoPrefix: true, Pin: !f.NoPin, Stdout: &out,
			Command: slices.Concat([]string{exe}, os.Args[1:], row.chosen())})
		if err != nil || code != 0 {
			return code, err
		}
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
	return 0, nil
}

// chosen are the arguments that a row adds; they override earlier ones.
func (f *Flags) chosen() []string {
	return []string{"-device", f.Device, "-transport", f.Transport, fmt.Sprintf("-manual=%v", f.Manual),
		fmt.Sprintf("-async=%v", f.Async), "-async-cpus", f.AsyncCPUs, "-json"}
}

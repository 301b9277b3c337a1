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
	"github.com/tagmatch/tagmatch/p2p"
)

// rows runs one job after the other, each this program with the row's flags, and prints their
// results as one table. A job that failed is the last one, unless what failed is its verdict: who
// interrupts it wants no other, and what killed a rank would come again.
func (c Command) rows(f Flags, rows []Flags, stdout io.Writer) (int, error) {
	report := &reporter{out: stdout, json: f.JSON}
	worst := 0
	for _, row := range rows {
		code, out, err := c.job(&f, &row)
		if err != nil {
			return code, err
		}
		judged, err := report.lines(out)
		if err != nil {
			return max(code, 1), err
		}
		if code != 0 && (code != 1 || !judged) {
			return code, nil
		}
		worst = max(worst, code)
	}
	return worst, nil
}

// job runs the job of a row, and returns its exit code and what its ranks have printed.
func (c Command) job(f, row *Flags) (code int, out []byte, err error) {
	if err := c.fits(*row); err != nil {
		return 1, nil, err
	}
	exe, err := os.Executable()
	if err != nil {
		return 1, nil, err
	}
	var printed bytes.Buffer
	code, err = launch.Run(context.Background(), launch.Options{N: max(c.ranks(), row.Ranks), NoPrefix: true, Pin: !f.NoPin, OneCPU: f.OneCore,
		Stdout: &printed, Command: slices.Concat([]string{exe}, os.Args[1:], row.chosen())})
	return code, printed.Bytes(), err
}

// lines prints the results of a job. judged: the verdict on one of them is an error, for which the
// rank that printed it exits with code 1.
func (p *reporter) lines(out []byte) (judged bool, err error) {
	for line := range bytes.Lines(out) {
		var r Result
		if err := json.Unmarshal(line, &r); err != nil {
			return judged, fmt.Errorf("a rank printed %q: %w", line, err)
		}
		judged = judged || r.Flood.verdict() != nil
		if err := p.print(&r); err != nil {
			return judged, err
		}
	}
	return judged, nil
}

// chosen are the arguments of a row; they override earlier ones.
func (f *Flags) chosen() []string {
	args := []string{"-device", f.Device, "-transport", f.Transport, "-sizes", f.Sizes.String(), fmt.Sprintf("-manual=%v", f.Manual), "-json"}
	if f.Async != p2p.AsyncDefault {
		args = append(args, fmt.Sprintf("-async=%v", f.Async == p2p.AsyncOn))
	}
	if f.Ranks > 0 {
		args = append(args, "-n", strconv.Itoa(f.Ranks))
	}
	if f.While != "" {
		args = append(args, "-while", f.While)
	}
	return args
}

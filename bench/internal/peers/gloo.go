package peers

import (
	"bytes"
	"context"
	_ "embed" // the program's source
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

//go:embed src/gloo.py
var glooSource []byte

// python is Debian's, whatever comes first in PATH: it has Debian's torch.
const python = "/usr/bin/python3"

// gloo is the library of torch.distributed for processors. Its only wire is TCP.
type gloo struct{ program, release string }

func findGloo(ctx context.Context, dir string) (Peer, error) {
	g := gloo{filepath.Join(dir, "gloo.py"), printed(ctx, "torch ", python, "-c", "import torch; print('torch', torch.__version__)")}
	if g.release == "unknown" {
		return nil, errors.New("torch is not installed: apt-get install python3-torch")
	}
	return g, os.WriteFile(g.program, glooSource, 0o600)
}

func (gloo) Name() string      { return "gloo" }
func (g gloo) Version() string { return g.release }

// Can: torch 1.13 has no reduce-scatter by gloo.
func (gloo) Can(j Job) bool { return j.Test == "coll" && j.Op != "reducescatter" }

func (g gloo) args(j Job, iters int, cpus [2]int) []string {
	return []string{python, g.program, j.Op, "-r", strconv.Itoa(j.Ranks), "-s", strconv.Itoa(j.Size), "-n", strconv.Itoa(iters),
		"-p", fmt.Sprintf("%d,%d", cpus[0], cpus[1])}
}

func (g gloo) Command(j Job, iters int, cpus [2]int) string {
	return strings.Join(g.args(j, iters, cpus), " ")
}

func (g gloo) Run(ctx context.Context, j Job, iters int, cpus [2]int) (Sample, error) {
	out, err := resultOf(ctx, os.Environ(), g.args(j, iters, cpus))
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %s", g.Command(j, iters, cpus), err, out)
	}
	return Parse(bytes.TrimSpace(out))
}

package peers

import (
	"bytes"
	"cmp"
	"context"
	_ "embed" // the program's source
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

//go:embed src/peer.c
var source []byte

// library is an MPI library, as Debian has it beside others.
type library struct {
	name, packages  string
	compiler        string
	launch          []string            // the launcher and its arguments
	count           string              // its flag for the number of ranks
	crowd           []string            // more arguments for more ranks than processors
	devices         map[string][]string // more arguments of it, by device
	env             map[string][]string
	version, prefix string // what prints the version, and what is before it
}

var libraries = []library{
	{
		name: "openmpi", packages: "openmpi-bin libopenmpi-dev", compiler: "mpicc.openmpi",
		launch: []string{"mpirun.openmpi", "--allow-run-as-root", "--bind-to", "none", "--mca", "pml", "ob1"},
		count:  "-np", crowd: []string{"--oversubscribe"},
		devices: map[string][]string{
			"shm": {"--mca", "btl", "vader,self"},
			"tcp": {"--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", "lo"},
		},
		version: "mpirun.openmpi", prefix: "(OpenRTE) ",
	},
	{
		name: "mpich", packages: "mpich libmpich-dev", compiler: "mpicc.mpich",
		launch: []string{"mpiexec.hydra", "-launcher", "fork", "-bind-to", "none"}, count: "-n",
		// Debian's mpich is ch4:ucx. Its own shared memory is slower than UCX's, and would also
		// take what is to go over TCP.
		env: map[string][]string{
			"shm": {"MPIR_CVAR_NOLOCAL=1", "UCX_TLS=posix,cma,self"},
			"tcp": {"MPIR_CVAR_NOLOCAL=1", "UCX_TLS=tcp,self", "UCX_NET_DEVICES=lo"},
		},
		version: "mpiexec.hydra", prefix: "Version:",
	},
}

// mpi is the program, compiled for a library.
type mpi struct {
	library
	program string
	release string
}

// compile makes the program in dir.
func (l library) compile(ctx context.Context, dir string) (Peer, error) {
	for _, name := range []string{l.compiler, l.launch[0]} {
		if _, err := exec.LookPath(name); err != nil {
			return nil, fmt.Errorf("%s is not installed: apt-get install %s", name, l.packages)
		}
	}
	file := filepath.Join(dir, "peer.c")
	if err := os.WriteFile(file, source, 0o600); err != nil {
		return nil, err
	}
	m := &mpi{library: l, program: filepath.Join(dir, "peer."+l.name)}
	out, err := exec.CommandContext(ctx, l.compiler, "-O2", "-pthread", "-o", m.program, file).CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("%s: %w (it needs the packages %s)\n%s", l.compiler, err, l.packages, out)
	}
	m.release = printed(ctx, l.prefix, l.version, "--version")
	return m, nil
}

// printed runs a command and returns the rest of the first line with the prefix.
func printed(ctx context.Context, prefix, name string, args ...string) string {
	out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	if err != nil {
		return "unknown"
	}
	for line := range strings.Lines(string(out)) {
		if _, rest, ok := strings.Cut(line, prefix); ok {
			return strings.TrimSpace(rest)
		}
	}
	return "unknown"
}

func (m *mpi) Name() string    { return m.name }
func (m *mpi) Version() string { return m.release }

// Can: MPI has no masks, and the program no sliding window.
func (m *mpi) Can(j Job) bool {
	switch j.Test {
	case "lat", "threads", "coll":
		return true
	case "rate", "bw":
		return !j.Sliding
	case "depth":
		return j.Kind != "masks"
	}
	return false
}

func (m *mpi) Run(ctx context.Context, j Job, iters int, cpus [2]int) (Sample, error) {
	out, err := resultOf(ctx, append(os.Environ(), m.env[j.Device]...), m.args(j, iters, cpus))
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %s", m.Command(j, iters, cpus), err, out)
	}
	return Parse(bytes.TrimSpace(out))
}

func (m *mpi) args(j Job, iters int, cpus [2]int) []string {
	ranks := cmp.Or(j.Ranks, 2)
	args := slices.Concat(m.launch, []string{m.count, strconv.Itoa(ranks)}, m.devices[j.Device])
	if ranks > len(cpus) {
		args = append(args, m.crowd...)
	}
	args = append(args, m.program, j.Test, "-s", strconv.Itoa(j.Size), "-n", strconv.Itoa(iters), "-p", fmt.Sprintf("%d,%d", cpus[0], cpus[1]))
	switch j.Test {
	case "rate", "bw":
		args = append(args, "-w", strconv.Itoa(j.Window))
		if j.Cold {
			args = append(args, "-c")
		}
	case "depth":
		args = append(args, "-d", strconv.Itoa(j.Depth), "-k", j.Kind)
	case "coll":
		args = append(args, "-o", j.Op)
	case "threads":
		args = append(args, "-t", strconv.Itoa(j.Threads))
	}
	return args
}

func (m *mpi) Command(j Job, iters int, cpus [2]int) string {
	return strings.Join(append(append([]string{}, m.env[j.Device]...), m.args(j, iters, cpus)...), " ")
}

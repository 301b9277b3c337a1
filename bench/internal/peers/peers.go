package peers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Job is one thing to measure.
type Job struct {
	Test    string // lat, rate, bw, depth, threads or coll
	Device  string // shm or tcp
	Size    int
	Window  int    // rate, bw: messages under way at once
	Sliding bool   // rate, bw: the oldest is waited for; else windows end, and each is answered
	Cold    bool   // rate, bw: another buffer for each message, none of them in a cache
	Depth   int    // depth: queued entries that do not match
	Kind    string // depth: posted, unexpected or anysource
	Threads int    // threads: pairs of threads at once
	Op      string // coll: allreduce, bcast, allgather, reducescatter, alltoall or barrier
	Ranks   int    // coll
}

// Sample holds the figures of one measurement by the names of the JSON lines of bench.
type Sample map[string]float64

// Parse reads a JSON object and keeps its numbers.
func Parse(line []byte) (Sample, error) {
	var all map[string]any
	if err := json.Unmarshal(line, &all); err != nil {
		return nil, fmt.Errorf("%q is no result: %w", line, err)
	}
	s := Sample{}
	for name, v := range all {
		if n, ok := v.(float64); ok {
			s[name] = n
		}
	}
	return s, nil
}

// Peer is a program to compare with.
type Peer interface {
	Name() string
	Version() string
	// Can reports whether the program has such a test.
	Can(j Job) bool
	// Run measures with iters messages. The ranks run on the two processors.
	Run(ctx context.Context, j Job, iters int, cpus [2]int) (Sample, error)
	// Command is the command line of Run, for the report.
	Command(j Job, iters int, cpus [2]int) string
}

// Names are the peers that Find knows.
var Names = []string{"ucx", "openmpi", "mpich", "gloo"}

// Find returns the named peers, or an error that tells which packages are missing. What it compiles
// is in dir and is needed as long as the peers are.
func Find(ctx context.Context, names []string, dir string) ([]Peer, error) {
	var list []Peer
	var errs []error
	for _, name := range names {
		p, err := find(ctx, name, dir)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		list = append(list, p)
	}
	if len(errs) > 0 {
		errs = append(errs, fmt.Errorf("-peers chooses among %s", strings.Join(Names, ",")))
	}
	return list, errors.Join(errs...)
}

func find(ctx context.Context, name, dir string) (Peer, error) {
	switch name {
	case "ucx":
		return findUCX(ctx)
	case "gloo":
		return findGloo(ctx, dir)
	}
	i := slices.IndexFunc(libraries, func(l library) bool { return l.name == name })
	if i < 0 {
		return nil, fmt.Errorf("there is no peer %q", name)
	}
	return libraries[i].compile(ctx, dir)
}

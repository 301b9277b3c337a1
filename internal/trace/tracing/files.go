package tracing

import (
	"fmt"
	"slices"

	"github.com/tagmatch/tagmatch/internal/inspect"
	"github.com/tagmatch/tagmatch/internal/trace"
	"github.com/tagmatch/tagmatch/internal/trace/timeline"
	"github.com/tagmatch/tagmatch/internal/trace/tracefile"
)

// ReadFiles reads files that ranks of a job have recorded into by themselves, one of each rank: see
// package tracefile.
func ReadFiles(paths []string) (list []timeline.Rank, err error) {
	of := map[int]string{}
	for _, path := range paths {
		a, events, err := tracefile.Read(path)
		if err != nil {
			return nil, err
		}
		if len(list) != 0 && a.Job != list[0].Job {
			return nil, fmt.Errorf("%s is of job %s, and %s of job %s: give the files of one job", path, a.Job, paths[0], list[0].Job)
		}
		if other, twice := of[a.Rank]; twice {
			return nil, fmt.Errorf("%s and %s are both of rank %d: give the files of one run", other, path, a.Rank)
		}
		of[a.Rank] = path
		a.Comms = trace.Name(events, inspect.CommOf)
		list = append(list, timeline.Rank{Answer: a, Events: events})
	}
	slices.SortFunc(list, func(a, b timeline.Rank) int { return a.Rank - b.Rank })
	return list, nil
}

package doors

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/tagmatch/tagmatch/internal/inspect"
)

const (
	// jobLimit is how long a rank has to ask all others, which have a second for that.
	jobLimit = 2 * limit

	mostVia = 3 // ranks that are tried, one after the other
)

// Jobs asks all ranks of the jobs that have doors here for their states: those of this host at
// these doors, as States does, and those of other hosts through one of them. The states are sorted
// by job and rank; a rank that does not answer has one that says why.
func Jobs(ctx context.Context, names []Name) []inspect.State { return states.everywhere(ctx, names) }

// JobsMetrics is Jobs of counters.
func JobsMetrics(ctx context.Context, names []Name) []inspect.Metrics {
	return metrics.everywhere(ctx, names)
}

func (k *kind[T]) everywhere(ctx context.Context, names []Name) []T {
	here := k.here(ctx, names)
	var others sync.WaitGroup
	var mu sync.Mutex // guards all
	all := slices.Clone(here)
	for len(names) > 0 {
		n := slices.IndexFunc(names, func(n Name) bool { return n.Job != names[0].Job || n.UID != names[0].UID })
		if n < 0 {
			n = len(names)
		}
		local, doors := here[:n], names[:n]
		here, names = here[n:], names[n:]
		others.Go(func() {
			more := k.elsewhere(ctx, doors, local)
			mu.Lock()
			defer mu.Unlock()
			all = append(all, more...)
		})
	}
	others.Wait()
	slices.SortStableFunc(all, func(a, b T) int {
		o, p := k.origin(&a), k.origin(&b)
		return cmp.Or(cmp.Compare(o.job, p.job), cmp.Compare(o.rank, p.rank))
	})
	return all
}

// elsewhere is the answers of a job's ranks that have no doors here.
func (k *kind[T]) elsewhere(ctx context.Context, names []Name, local []T) (list []T) {
	known := map[int]bool{}
	for i := range local {
		known[k.origin(&local[i]).rank] = true
	}
	tried := 0
	for i := range local {
		o := k.origin(&local[i])
		if o.silent != "" || o.size <= len(known) || tried == mostVia {
			continue
		}
		tried++
		parts, err := askJob(ctx, names[i], k.request)
		if err != nil {
			continue // it ends, or others ask there
		}
		for _, p := range parts {
			if !known[p.Rank] && p.Rank >= 0 && p.Rank < o.size {
				known[p.Rank] = true
				list = append(list, k.of(p, names[i]))
			}
		}
		return list
	}
	return nil
}

// AskJob has a rank of these, which are of one job, ask all ranks of it the same. Each has an entry
// in the answer. The error is why none of the ranks asks others.
func AskJob(ctx context.Context, names []Name, request string) (parts []inspect.Part, err error) {
	for _, via := range names[:min(len(names), mostVia)] {
		if parts, err = askJob(ctx, via, request); err == nil {
			return parts, nil
		}
	}
	return nil, err
}

// AskEach asks ranks at their own doors, as AskJob asks all ranks of a job.
func AskEach(ctx context.Context, names []Name, request string) []inspect.Part {
	return each(names, func(n Name) inspect.Part {
		p := inspect.Part{Rank: n.Rank, PID: n.PID}
		lines, pid, err := askInTime(ctx, n, request)
		if no, ok := errors.AsType[*refused](err); ok {
			lines, err = [][]byte{no.line}, nil
		}
		if err != nil {
			p.Why = why(err, pid)
		}
		for _, line := range lines {
			p.Lines = append(p.Lines, line)
		}
		return p
	})
}

// askJob has a rank ask all ranks of its job.
func askJob(ctx context.Context, via Name, request string) (parts []inspect.Part, err error) {
	ctx, cancel := context.WithTimeout(ctx, jobLimit)
	defer cancel()
	lines, _, err := Ask(ctx, via, inspect.RequestJob+" "+request)
	if err != nil {
		return nil, err
	}
	parts = make([]inspect.Part, len(lines))
	for i := range lines {
		if err := json.Unmarshal(lines[i], &parts[i]); err != nil {
			return nil, fmt.Errorf("what rank %d has heard of others is of no known form: %w", via.Rank, err)
		}
	}
	return parts, nil
}

// of is the answer that came by way of another rank.
func (k *kind[T]) of(p inspect.Part, via Name) T {
	n := Name{Job: via.Job, Rank: p.Rank, PID: p.PID}
	err := errors.New(p.Why)
	if p.Why == "" {
		err = errors.New("its answer is empty")
	}
	if len(p.Lines) > 0 {
		var answer T
		if answer, err = k.decode(p.Lines[0], n); err == nil {
			return answer
		}
	}
	return k.silent(n, p.Host, err.Error())
}

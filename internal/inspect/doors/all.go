package doors

import (
	"context"
	"errors"
	"sync"
	"time"
)

// Reply is what one rank says.
type Reply struct {
	Name
	Lines [][]byte
	Err   error // why it has not answered, with the kernel's word for its process
}

// All asks ranks the same, all at once. Each has so long to answer.
func All(ctx context.Context, names []Name, request string, limit time.Duration) []Reply {
	return each(names, func(n Name) Reply {
		r := Reply{Name: n}
		silent := ask(ctx, n, request, limit, func(lines [][]byte) error {
			r.Lines = lines
			return nil
		})
		if silent != "" {
			r.Err = errors.New(silent)
		}
		return r
	})
}

// each asks ranks, mostAtOnce at a time.
func each[T any](names []Name, ask func(Name) T) []T {
	list := make([]T, len(names))
	free := make(chan struct{}, mostAtOnce)
	var asked sync.WaitGroup
	for i, n := range names {
		free <- struct{}{}
		asked.Go(func() {
			list[i] = ask(n)
			<-free
		})
	}
	asked.Wait()
	return list
}

// ask asks one rank, and has take read its answer; silent says why it has not answered, or what
// take says.
func ask(ctx context.Context, n Name, request string, limit time.Duration, take func(lines [][]byte) error) (silent string) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	lines, pid, err := Ask(ctx, n, request)
	if err == nil {
		if err = take(lines); err == nil {
			return ""
		}
	}
	if pid == 0 {
		pid = n.PID
	}
	return why(err, pid)
}

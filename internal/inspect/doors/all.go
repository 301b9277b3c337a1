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
func All(ctx context.Context, names []Name, request string, each time.Duration) []Reply {
	list := make([]Reply, len(names))
	free := make(chan struct{}, mostAtOnce)
	var asked sync.WaitGroup
	for i, n := range names {
		free <- struct{}{}
		asked.Go(func() {
			list[i] = one(ctx, n, request, each)
			<-free
		})
	}
	asked.Wait()
	return list
}

func one(ctx context.Context, n Name, request string, each time.Duration) Reply {
	ctx, cancel := context.WithTimeout(ctx, each)
	defer cancel()
	lines, pid, err := Ask(ctx, n, request)
	if err != nil {
		if pid == 0 {
			pid = n.PID
		}
		err = errors.New(why(err, pid))
	}
	return Reply{n, lines, err}
}

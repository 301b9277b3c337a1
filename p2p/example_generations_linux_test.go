package p2p_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"slices"
	"strconv"
	"sync"

	"github.com/tagmatch/tagmatch/bootstrap"
	"github.com/tagmatch/tagmatch/p2p"
)

// A job whose members come and go has a World for each generation. Here the members of each are
// known, and all workers are in one process; in earnest a service tells the members, and each
// worker is a process of its own.
func Example_generations() {
	dir, err := os.MkdirTemp("", "generations") // all hosts share it
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	generations := [][]int{{0, 1, 2}, {0, 1}, {3, 0, 1}} // worker 2 fails in the first, 3 is new in the last
	var workers sync.WaitGroup
	for id := range 4 {
		workers.Go(func() {
			for g, members := range generations {
				if rank := slices.Index(members, id); rank >= 0 {
					generation(dir, g, rank, len(members), id == 2)
				}
			}
		})
	}
	workers.Wait()
	// Output:
	// generation 0 of 3 ranks: lost a rank: true
	// generation 1 of 2 ranks: lost a rank: false
	// generation 2 of 3 ranks: lost a rank: false
}

// generation is one worker in one generation.
func generation(dir string, g, rank, size int, fails bool) {
	ctx := context.Background()
	env := map[string]string{
		"TAGMATCH_BOOTSTRAP": "file", "TAGMATCH_STORE": dir, "TAGMATCH_JOB_ID": "generation-" + strconv.Itoa(g),
		"RANK": strconv.Itoa(rank), "WORLD_SIZE": strconv.Itoa(size),
	}
	b, err := bootstrap.Detect(ctx, bootstrap.Options{Getenv: func(name string) string { return env[name] }})
	if err != nil {
		log.Fatal(err)
	}
	w, err := p2p.Init(ctx, p2p.Config{Bootstrap: b})
	if err != nil {
		log.Fatal(err)
	}
	defer w.Close()
	if fails {
		return
	}
	token, got := []byte{byte(rank)}, make([]byte, 1)
	_, err = w.Comm().Sendrecv(ctx, (rank+1)%size, 1, token, (rank+size-1)%size, 1, got)
	if err == nil {
		err = w.Shutdown(ctx)
	}
	lost := errors.Is(err, p2p.ErrPeerLost)
	if err != nil && !lost {
		log.Fatal(err)
	}
	if rank == 0 {
		fmt.Printf("generation %d of %d ranks: lost a rank: %v\n", g, size, lost)
	}
}

package pmi

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/tagmatch/tagmatch/internal/testlevel"
)

func itoa(n int) string { return strconv.Itoa(n) }

// runRank has this process be a rank that a real launcher has started, if TAGMATCH_TEST_PMI says
// what that is to do.
func runRank() bool {
	do := os.Getenv("TAGMATCH_TEST_PMI")
	if do == "" {
		return false
	}
	ctx, cancel := context.WithTimeout(context.Background(), testlevel.Patience(20*time.Second))
	defer cancel()
	if err := rank(ctx, do); err != nil {
		fmt.Println("failed:", err)
		os.Exit(3)
	}
	return true
}

func rank(ctx context.Context, do string) error {
	p, err := Find(os.Getenv)
	if err != nil || p == nil {
		return fmt.Errorf("no place: %w", err)
	}
	c, err := p.Open(ctx)
	if err != nil {
		return err
	}
	id := c.Identity()
	if do == "abort" && id.Rank == id.Size-1 {
		c.Abort(42, "as the test wants")
		time.Sleep(10 * time.Second)
	}
	value := make([]byte, 1000)
	for i := range value {
		value[i] = byte(i * 7)
	}
	got, err := c.Broadcast(ctx, value)
	if err != nil {
		return err
	}
	if string(got) != string(value) {
		return fmt.Errorf("got %d other bytes", len(got))
	}
	fmt.Printf("rank %d of %d, local %d of %d, job %q\n", id.Rank, id.Size, id.LocalRank, id.LocalSize, id.JobID)
	return c.Close()
}

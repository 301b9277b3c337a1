package ranktest

import (
	"context"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/tagmatch/tagmatch/bootstrap/internal/space"
	"github.com/tagmatch/tagmatch/internal/testlevel"
)

// EnvProcess has a test binary that a real launcher starts be a rank, and says what that does:
// join, abort or die.
const EnvProcess = "TAGMATCH_TEST_PROCESS"

// Process has this process be such a rank, where EnvProcess asks for that, which it reports. open
// opens the space of the launcher, and names that.
func Process(open func(ctx context.Context) (launcher string, s space.Space, err error)) bool {
	do := os.Getenv(EnvProcess)
	if do == "" {
		return false
	}
	ctx, cancel := context.WithTimeout(context.Background(), testlevel.Patience(20*time.Second))
	defer cancel()
	launcher, s, err := open(ctx)
	if err == nil {
		err = play(ctx, launcher, s, do)
	}
	if err != nil {
		fmt.Println("failed:", err)
		os.Exit(3)
	}
	return true
}

// play joins the job, and hands a value to all ranks.
func play(ctx context.Context, launcher string, s space.Space, do string) error {
	id := s.Identity()
	switch last := id.Rank == id.Size-1; {
	case last && do == "abort":
		s.Abort(42, "as the test wants")
		time.Sleep(10 * time.Second)
	case last && do == "die":
		os.Exit(7)
	}
	value := make([]byte, 1000)
	for i := range value {
		value[i] = byte(i * 7)
	}
	got, err := s.Broadcast(ctx, value)
	if err != nil {
		return err
	}
	if !slices.Equal(got, value) {
		return fmt.Errorf("got %d other bytes", len(got))
	}
	fmt.Printf("rank %d of %d, local %d of %d, %s, job %q\n", id.Rank, id.Size, id.LocalRank, id.LocalSize, launcher, id.JobID)
	return s.Close()
}

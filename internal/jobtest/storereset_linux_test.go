package jobtest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tagmatch/tagmatch/internal/testlevel"
	"github.com/tagmatch/tagmatch/p2p"
)

func init() { roles["storereset"] = storeResetRole }

// What rank 1 of TestStoreReset has had to do with rank 2.
const (
	resetConnected = iota // it has sent a message
	resetStranger         // nothing
	resetWays
)

// TestStoreReset resets rank 1's connection to the launcher's store, and no other, as rank 2 is
// killed: rank 1 hears of that without the store, from rank 2's host, and soon.
func TestStoreReset(t *testing.T) {
	needs(t, "it resets a connection", unix.CAP_NET_ADMIN)
	if _, err := exec.LookPath("ss"); err != nil {
		t.Skip("needs ss, of Debian's iproute2")
	}
	t.Parallel()
	eachTransport(t, []string{"shm", "tcp"}, func(t *testing.T, device string, env []string) {
		for way := range resetWays {
			t.Run(strconv.Itoa(way), func(t *testing.T) {
				job{n: 3, role: "storereset", device: device, arg: way, env: env}.survives(t, 2)
			})
		}
	})
}

func storeResetRole(ctx context.Context, w *p2p.World) error {
	c, connected := w.Comm(), number(argVar) == resetConnected
	var err error
	switch w.Rank() {
	case 0:
		err = passOnGo(ctx, w)
	case 1:
		err = loseStore(ctx, w, connected)
	default:
		if connected {
			if _, err := c.Recv(ctx, 1, 3, nil); err != nil {
				return err
			}
		}
		if _, err := c.Recv(ctx, 0, 1, nil); err != nil {
			return err
		}
		return syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
	if err != nil {
		return err
	}
	fmt.Println("survived")
	return w.Close()
}

// passOnGo passes on to rank 2 that rank 1 is ready. Rank 1, whose connection to the store is
// reset, counts as lost for the others.
func passOnGo(ctx context.Context, w *p2p.World) error {
	c := w.Comm()
	if _, err := c.Recv(ctx, 1, 1, nil); err != nil {
		return err
	}
	if err := c.Send(ctx, 2, 1, nil); err != nil {
		return err
	}
	_, err := c.Recv(ctx, 1, 2, nil)
	return lostTo(1, err, "connection") // to the store, as the store or rank 1 tells
}

// loseStore waits for rank 2, and resets the connection to the store.
func loseStore(ctx context.Context, w *p2p.World, connected bool) error {
	store, err := connections(os.Getpid()) // to ranks there is none before this one sends
	if err != nil {
		return err
	}
	if len(store) != 1 {
		return fmt.Errorf("want one connection, to the store, got %v", store)
	}
	c := w.Comm()
	if connected {
		if err := c.Send(ctx, 2, 3, nil); err != nil {
			return err
		}
	}
	r := c.Irecv(2, 1, nil)
	if err := c.Send(ctx, 0, 1, nil); err != nil {
		return err
	}
	if err := resetSocket(dotted(store[0][0]), dotted(store[0][1])); err != nil {
		return err
	}
	soon, cancel := context.WithTimeout(ctx, testlevel.Patience(2*time.Second))
	defer cancel()
	_, err = r.Wait(soon)
	if err := lostTo(2, err, ""); err != nil {
		return err
	}
	if f := w.Failed(); !slices.Contains(f, 2) {
		return fmt.Errorf("failed: %v", f)
	}
	_, err = c.Recv(ctx, 0, 2, nil) // which gives this rank up
	return lostTo(0, err, "")
}

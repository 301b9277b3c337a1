package p2p_test

import (
	"bytes"
	"context"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/bootstrap"
	"github.com/tagmatch/tagmatch/internal/invariant"
	"github.com/tagmatch/tagmatch/internal/testlevel"
	"github.com/tagmatch/tagmatch/p2p"
	"github.com/tagmatch/tagmatch/p2p/p2ptest"
)

func skipUnlessLinux(t testing.TB, device string) {
	if device != "" && runtime.GOOS != "linux" {
		t.Skipf("device %s needs Linux", device)
	}
}

// initAll starts ranks with a Config each and returns their errors.
func initAll(t *testing.T, configs ...p2p.Config) []error {
	errs := make([]error, len(configs))
	var ranks sync.WaitGroup
	for r, b := range bootstrap.NewLocal(len(configs)) {
		configs[r].Bootstrap = b
		ranks.Go(func() {
			ctx, cancel := context.WithTimeout(background, testlevel.Patience(20*time.Second))
			defer cancel()
			w, err := p2p.Init(ctx, configs[r])
			if errs[r] = err; err == nil {
				assert.NoError(t, w.Close())
			}
		})
	}
	ranks.Wait()
	return errs
}

func TestMismatchIsRefusedEverywhere(t *testing.T) {
	skipUnlessLinux(t, "shm")
	secret := bytes.Repeat([]byte{1}, 32)
	for part, other := range map[string]p2p.Config{
		"rank 1": {Device: "tcp", Secret: secret},
		"has EagerLimit (TAGMATCH_EAGER_LIMIT) 100 where rank 0 has 32768": {Device: "shm", Secret: secret, EagerLimit: 100},
		"has another job secret than rank 0":                               {Device: "shm", Secret: bytes.Repeat([]byte{2}, 32)},
	} {
		good := p2p.Config{Device: "shm", Secret: secret}
		for r, err := range initAll(t, good, other, good) {
			require.ErrorContains(t, err, "p2p: init: ", "rank %d", r)
			require.ErrorContains(t, err, part, "rank %d", r)
			require.ErrorContains(t, err, "rank 1 on ", "rank %d", r)
			require.NotContains(t, err.Error(), "rank 2 on", "rank %d", r)
		}
	}
}

func TestFaultyRankDoesNotHoldUpTheOthers(t *testing.T) {
	errs := initAll(t, p2p.Config{Device: "shm"}, p2p.Config{Device: "mlx5_0"})
	require.ErrorIs(t, errs[1], p2p.ErrInvalid)
	require.ErrorContains(t, errs[1], `Config.Device is "mlx5_0": this build has auto, shm, tcp`)
	require.Error(t, errs[0])
}

func TestSecondInit(t *testing.T) {
	for range 2 {
		w, err := p2p.Init(background, p2p.Config{}) // a World of one
		require.NoError(t, err)
		_, err = p2p.Init(background, p2p.Config{})
		require.ErrorIs(t, err, p2p.ErrInvalid)
		require.NoError(t, w.Shutdown(background))
		require.NoError(t, w.Close())
	}
}

func TestShutdownNamesWhatIsMissing(t *testing.T) {
	gaveUp := make(chan struct{})
	p2ptest.Run(t, 2, func(w *p2p.World) {
		if w.Rank() == 1 {
			<-gaveUp
			require.NoError(t, w.Close())
			return
		}
		defer close(gaveUp)
		w.Irecv(5, p2p.MaskExact, make([]byte, 3))
		// Long enough to reach the fence, which cannot be observed, even if the machine stalls for
		// a moment.
		ctx, cancel := context.WithTimeout(background, testlevel.Patience(time.Second))
		defer cancel()
		err := w.Shutdown(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "context deadline exceeded: rank 0 gave up waiting for all ranks (context deadline exceeded); still missing: rank 1")
		require.NotContains(t, err.Error(), "fence")
		require.ErrorContains(t, err, "; unfinished here: recv from any, raw tag 0x5, 3 bytes, no message")
		require.NoError(t, w.Close())
		require.ErrorIs(t, w.Shutdown(background), p2p.ErrClosed)
	})
}

// TestShutdownUnderEndedContext: it closes all the same, and names what is unfinished.
func TestShutdownUnderEndedContext(t *testing.T) {
	worldsOnWirings(t, 2, p2p.Config{}, func(t *testing.T, ws []*p2p.World) {
		r := ws[0].Comm().Irecv(1, 5, make([]byte, 3))
		ctx, cancel := context.WithCancel(background)
		cancel()
		err := ws[0].Shutdown(ctx)
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorContains(t, err, "recv from 1, tag 0x5, 3 bytes, no message")
		require.NotContains(t, err.Error(), "\n")
		_, err = r.Wait(background)
		require.ErrorIs(t, err, p2p.ErrClosed)
		require.ErrorIs(t, ws[0].Shutdown(background), p2p.ErrClosed)
		require.NoError(t, ws[1].Close())
	})
}

func TestShutdownDelivers(t *testing.T) {
	onWirings(t, 2, p2p.Config{}, func(t *testing.T, w *p2p.World) {
		for _, size := range []int{10, 2 << 20} {
			if w.Rank() == 0 {
				w.Isend(1, 1, make([]byte, size)) // completed by Shutdown, without a Wait
				continue
			}
			awaitUnexpected(w, 1) // the sender has nothing left to do but Shutdown
			_, err := w.Recv(background, 1, p2p.MaskExact, make([]byte, size))
			require.NoError(t, err)
		}
	})
}

// awaitUnexpected returns when n unexpected messages are here, in every progress mode.
func awaitUnexpected(w *p2p.World, n int) {
	idle := w.Irecv(1<<60, p2p.MaskExact, nil)
	for w.Metrics().UnexpectedNow < n {
		_, _, _ = idle.Test() // makes progress
		time.Sleep(time.Millisecond)
	}
	idle.Cancel()
	_, _ = idle.Wait(background)
}

func TestCloseEndsShutdown(t *testing.T) {
	ended := make(chan struct{})
	p2ptest.Run(t, 2, func(w *p2p.World) {
		if w.Rank() == 1 {
			<-ended
			require.NoError(t, w.Close())
			return
		}
		defer close(ended)
		// During Shutdown, most likely; else with the same outcome.
		time.AfterFunc(20*time.Millisecond, func() { _ = w.Close() })
		require.Error(t, w.Shutdown(background))
	})
}

func TestSmallMessagesDoNotAllocate(t *testing.T) {
	p2ptest.Run(t, 1, func(w *p2p.World) {
		buf := make([]byte, 8)
		step := func() {
			if err := w.Send(background, 0, 1, buf); err != nil {
				t.Error(err)
			}
			if _, err := w.Recv(background, 1, p2p.MaskExact, buf); err != nil {
				t.Error(err)
			}
		}
		for range 1000 {
			step()
		}
		if invariant.Enabled {
			return // the invariants build allocates a record of each operation
		}
		require.Zero(t, testing.AllocsPerRun(1000, step))
	})
}

// otherBuild is the Bootstrap of a rank whose card has another version behind magic, or, where that
// is empty, another version of the engine.
type otherBuild struct {
	bootstrap.Bootstrap
	magic string
}

func (b otherBuild) Put(ctx context.Context, key string, value []byte) error {
	value = bytes.Clone(value)
	if b.magic == "" {
		p2p.CardAddress(value)[0] += 70
	} else {
		for at := value; len(at) > len(b.magic); at = at[1:] {
			if bytes.HasPrefix(at, []byte(b.magic)) {
				at[len(b.magic)] += 70 // of the version, which follows
			}
		}
	}
	return b.Bootstrap.Put(ctx, key, value)
}

// TestMixedBuilds: ranks that speak other versions than this one are named, with what to do about
// it, and with nothing else.
func TestMixedBuilds(t *testing.T) {
	skipUnlessLinux(t, "shm")
	for _, device := range []string{"shm", "tcp", "shm,tcp"} {
		for of, magic := range map[string]string{"engine": "", "transport": "TMX", "device": "TMA", "devices": "TMM"} {
			if of == "devices" && device != "shm,tcp" {
				continue
			}
			list := bootstrap.NewLocal(2)
			errs := make([]error, 2)
			var ranks sync.WaitGroup
			for r, b := range list {
				if r == 1 {
					b = otherBuild{b, magic}
				}
				ranks.Go(func() { _, errs[r] = p2p.Init(background, p2p.Config{Bootstrap: b, Device: device}) })
			}
			ranks.Wait()
			require.ErrorContains(t, errs[0], "p2p: init: connecting to rank 1 on ", of)
			require.ErrorContains(t, errs[0], " version ", of)
			require.ErrorContains(t, errs[0], "run the same build of the program on all ranks", of)
			require.NotContains(t, errs[0].Error(), "TAGMATCH_", of)
		}
	}
}

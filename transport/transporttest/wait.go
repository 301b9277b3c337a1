package transporttest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// inBackground runs f in a goroutine; done closes at its end.
func inBackground(f func()) (done chan struct{}) {
	done = make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	return done
}

// await waits for the end of a goroutine.
func await(t *testing.T, what string, done chan struct{}) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(patience):
		require.Fail(t, "waited too long for: "+what)
	}
}

func ended(c chan struct{}) func() bool {
	return func() bool {
		select {
		case <-c:
			return true
		default:
			return false
		}
	}
}

func testWake(t *testing.T, h Harness, opts Options) {
	c := h.start(t, 1, opts)
	r := c.ranks[0]
	require.NoError(t, r.Arm())
	_, err := r.Poll()
	require.NoError(t, err)
	for range 100 { // before or during the Wait
		var err error
		done := inBackground(func() { err = r.Wait() })
		r.Wake()
		await(t, "Wake to end Wait", done)
		require.NoError(t, err)
	}
	r.Disarm()
	done := inBackground(func() {
		for r.Wait() == nil { // spurious ends are legal, errors are not
		}
	})
	c.close(r)
	await(t, "Close to end Wait", done)
}

// park polls and sleeps by the protocol of Arm until cond holds.
func park(r *rank, cond func() bool) error {
	for !cond() {
		if err := r.Arm(); err != nil {
			return err
		}
		n, err := r.Poll()
		if err != nil {
			return err
		}
		if n == 0 && !cond() {
			if err := r.Wait(); err != nil {
				return err
			}
		}
		r.Disarm()
		if _, err := r.Poll(); err != nil {
			return err
		}
	}
	return nil
}

// testPark: both ranks sleep between the messages of a ping-pong.
func testPark(t *testing.T, h Harness, opts Options) {
	c := h.start(t, 2, opts)
	const rounds = 300
	errs := make([]error, 2)
	play := func(me int) func() {
		r := c.ranks[me]
		return func() {
			for i := range rounds {
				if me == 0 {
					errs[me] = r.SendEager(1, 0, uint64(i), fill(i, 1))
				}
				if errs[me] == nil {
					errs[me] = park(r, func() bool { return len(r.messages(1-me)) > i })
				}
				if me == 1 && errs[me] == nil {
					errs[me] = r.SendEager(0, 0, uint64(i), fill(i, 1))
				}
				if errs[me] != nil {
					return
				}
			}
			errs[me] = park(r, r.Drained)
		}
	}
	a, b := inBackground(play(0)), inBackground(play(1))
	select {
	case <-a:
	case <-b:
	case <-time.After(patience):
		require.Fail(t, "waited too long for a ping-pong of sleepers")
	}
	// The first to finish must go on polling, as its peer waits for an acknowledgement.
	for me, done := range []chan struct{}{b, a} {
		if !ended(done)() {
			r := c.ranks[me]
			untilWith(t, "the other rank to be drained", ended(done), func() { _, _ = r.Poll() })
		}
	}
	require.NoError(t, errs[0])
	require.NoError(t, errs[1])
	require.Len(t, c.ranks[0].Events, rounds)
	require.Len(t, c.ranks[1].Events, rounds)
}

// testWakeByLoss: a rank sleeps while its idle peer dies.
func testWakeByLoss(t *testing.T, h Harness, opts Options) {
	c := h.start(t, 2, opts)
	c.ping(c.ranks[0], c.ranks[1])
	c.until("quiet", func() bool { return c.ranks[0].Drained() && c.ranks[1].Drained() })
	r := c.ranks[0]
	var err error
	done := inBackground(func() { err = park(r, func() bool { return len(r.of("lost")) > 0 }) })
	c.leave(c.ranks[1])
	await(t, "the sleeper to learn of the loss", done)
	require.NoError(t, err)
	c.requireLost(r, 1)
}

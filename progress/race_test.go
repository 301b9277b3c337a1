package progress

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The scenarios of TMO 7.2 that the engine has a part in, by their numbers. Rank 0 sends, rank 1 receives with a device.

type race struct {
	*cluster
	dev *fakeDevice
	e   *Engine
}

func newRace(t *testing.T, cfg Config, opts fakeOpts) *race {
	cfg.Manual = true
	if cfg.OffloadMin == 0 {
		cfg.OffloadMin = -1
	}
	c := newCluster(t, 2, cfg, opts)
	r := &race{c, c.net.nodes[1].dev, c.e[1]}
	t.Cleanup(func() {
		if !t.Failed() {
			require.Empty(t, r.dev.list)
			require.Zero(t, r.e.off.entries)
		}
	})
	return r
}

func (r *race) m() OffloadMetrics { return r.e.Metrics().Offload }

func (r *race) recv(tag, mask uint64, size int) (Request, []byte) {
	buf := make([]byte, size)
	return r.e.Irecv(AnySource, tag, mask, buf), buf
}

func (r *race) send(tag uint64, size int, seed byte) Request {
	return r.cluster.e[0].Isend(1, tag, fill(size, seed))
}

// got checks that a receive has ended with the message of that size and seed.
func (r *race) got(req Request, buf []byte, size int, seed byte) {
	r.t.Helper()
	st, err := ended(r.t, req)
	require.NoError(r.t, err)
	require.Equal(r.t, int64(size), st.Len)
	require.Equal(r.t, fill(size, seed), buf[:size])
}

func (r *race) canceled(req Request) {
	r.t.Helper()
	_, err := ended(r.t, req)
	require.Equal(r.t, ErrCanceled, err)
}

// dormant posts a receive behind an unexpected message of tag other, which is not polled before release.
func (r *race) dormant(tag, other uint64) (Request, []byte) {
	r.dev.holdCQ = true
	r.send(other, 8, 99)
	r.e.Poll() // the device classifies it
	req, buf := r.recv(tag, exact, 64)
	r.e.Poll() // the device executes the ADD
	require.Len(r.t, r.dev.list, 1)
	require.False(r.t, r.dev.list[0].live)
	return req, buf
}

func (r *race) release() {
	r.dev.holdCQ, r.dev.holdOps, r.dev.holdData = false, false, false
	r.step()
}

func TestRace04MessageFirst(t *testing.T) {
	r := newRace(t, Config{}, fakeOpts{tags: 4})
	r.send(5, 8, 1)
	r.step()
	require.EqualValues(t, 1, r.e.handled)
	req, buf := r.recv(5, exact, 8)
	r.got(req, buf, 8, 1)
	require.Zero(t, r.m().Offloaded)
}

func TestRace05MessageUnpolled(t *testing.T) {
	r := newRace(t, Config{}, fakeOpts{tags: 4})
	req, buf := r.dormant(5, 5)
	r.release()
	r.got(req, buf, 8, 99)
	require.EqualValues(t, 1, r.m().Drops)
	require.Empty(t, r.dev.byID)
}

func TestRace06SecondBeforePoll(t *testing.T) {
	r := newRace(t, Config{}, fakeOpts{tags: 4})
	req, buf := r.dormant(5, 5)
	r.send(5, 8, 2)
	r.release()
	r.got(req, buf, 8, 99)
	require.Equal(t, 1, r.e.Metrics().UnexpectedNow)
	require.Zero(t, r.m().Matched)
}

func TestRace07TwoByTwo(t *testing.T) {
	r := newRace(t, Config{}, fakeOpts{tags: 4})
	one, buf1 := r.dormant(5, 5)
	two, buf2 := r.recv(5, exact, 64)
	r.send(5, 8, 2)
	r.release()
	r.got(one, buf1, 8, 99)
	r.got(two, buf2, 8, 2)
	three, buf3 := r.recv(5, exact, 64)
	r.step()
	r.send(5, 8, 3)
	r.step()
	r.got(three, buf3, 8, 3)
	require.EqualValues(t, 1, r.m().Matched) // live again
	require.EqualValues(t, 2, r.m().Drops)
}

func TestRace08LiveStaysLive(t *testing.T) {
	r := newRace(t, Config{}, fakeOpts{tags: 4})
	req, buf := r.recv(5, exact, 64)
	r.e.Poll()
	r.dev.holdCQ = true
	r.send(9, 8, 1)
	r.send(5, 8, 2)
	r.release()
	r.got(req, buf, 8, 2)
	require.EqualValues(t, 1, r.m().Matched)
}

func TestRace09DormantWithoutSync(t *testing.T) {
	r := newRace(t, Config{}, fakeOpts{tags: 4})
	r.dev.noSync = true // 11: also if it never comes
	req, buf := r.dormant(5, 9)
	r.release()
	require.Equal(t, 1, r.m().Dormant)
	r.send(5, 8, 2)
	r.step()
	r.got(req, buf, 8, 2)
	require.EqualValues(t, 1, r.m().Drops)
	require.Zero(t, r.m().Matched)
}

func TestRace10SyncWakes(t *testing.T) {
	r := newRace(t, Config{}, fakeOpts{tags: 4})
	req, buf := r.dormant(5, 9)
	r.release()
	require.EqualValues(t, 1, r.m().Syncs)
	require.Zero(t, r.m().Dormant)
	r.send(5, 8, 2)
	r.step()
	r.got(req, buf, 8, 2)
	require.EqualValues(t, 1, r.m().Matched)
}

// The device is told of 2^14 messages even where nothing else would be posted.
func TestRace14SyncBound(t *testing.T) {
	r := newRace(t, Config{}, fakeOpts{tags: 4, count: 65530})
	buf := make([]byte, 8)
	for i := range 1<<14 + 10 {
		r.send(5, 8, byte(i))
		r.e.Poll()
		_, err := r.e.Recv(bg, AnySource, 5, exact, buf)
		require.NoError(t, err)
	}
	r.e.Poll()
	require.EqualValues(t, 1, r.m().Syncs)
	req, big := r.recv(5, exact, 64)
	r.step()
	r.send(5, 8, 2)
	r.step()
	r.got(req, big, 8, 2)
	require.EqualValues(t, 1, r.m().Matched)
}

func TestRace15DelFirst(t *testing.T) {
	r := newRace(t, Config{}, fakeOpts{tags: 4})
	req, _ := r.recv(5, exact, 64)
	r.step()
	r.dev.holdOps = true
	req.Cancel()
	r.e.Poll()
	open(t, req) // the buffer is the device's
	r.release()
	r.canceled(req)
	r.send(5, 8, 1)
	r.step()
	require.Equal(t, 1, r.e.Metrics().UnexpectedNow)
	require.EqualValues(t, 1, r.m().Dels)
}

func TestRace16DelAfterMatch(t *testing.T) {
	r := newRace(t, Config{}, fakeOpts{tags: 4})
	req, buf := r.recv(5, exact, 64)
	r.step()
	r.dev.holdCQ = true
	r.send(5, 8, 1)
	r.e.Poll()
	req.Cancel()
	req.Cancel()
	r.release()
	r.got(req, buf, 8, 1)
	require.EqualValues(t, 1, r.m().DelsLost)
	r.quiet()
}

func TestRace17DelDuringRendezvous(t *testing.T) {
	for _, dataFirst := range []bool{false, true} {
		r := newRace(t, Config{}, fakeOpts{tags: 4})
		req, buf := r.recv(5, exact, 1000)
		r.step()
		r.dev.holdCQ, r.dev.holdData = true, !dataFirst
		s := r.send(5, 1000, 1)
		r.e.Poll()
		req.Cancel()
		r.e.Poll() // the DEL fails
		r.dev.holdCQ = false
		r.step()
		if !dataFirst {
			open(t, req)
			req.Cancel() // matched: too late at once
			open(t, s)
		}
		r.release()
		r.got(req, buf, 1000, 1)
		_, err := ended(t, s)
		require.NoError(t, err)
		require.EqualValues(t, 1, r.m().DelsLost)
		require.EqualValues(t, 1, r.m().Dels)
		r.quiet()
	}
}

func TestRace18DelDormant(t *testing.T) {
	r := newRace(t, Config{}, fakeOpts{tags: 4})
	req, _ := r.dormant(5, 9)
	req.Cancel()
	r.release()
	r.canceled(req)
}

func TestRace20CancelWithoutRoom(t *testing.T) {
	for _, faster := range []bool{false, true} {
		r := newRace(t, Config{}, fakeOpts{tags: 4, maxOps: 1})
		r.dev.holdOps = true
		req, buf := r.recv(5, exact, 64) // its ADD fills the queue
		req.Cancel()
		require.Len(t, r.e.off.recalls, 1)
		if faster {
			r.send(5, 8, 1)
			r.e.Poll()
			r.got(req, buf, 8, 1)
		}
		open(t, r.e.Irecv(0, 77, exact, nil))
		r.release()
		if !faster {
			r.canceled(req)
		}
		require.NoError(t, r.cluster.e[0].Send(bg, 1, 77, nil))
		r.step()
		require.Empty(t, r.e.off.recalls)
		require.Empty(t, r.e.off.drops)
	}
}

func TestRace21CancelAgainstUnexpected(t *testing.T) {
	for _, second := range []bool{false, true} {
		r := newRace(t, Config{}, fakeOpts{tags: 4})
		req, _ := r.dormant(5, 5)
		r.dev.holdOps = true
		req.Cancel()
		var other Request
		buf := make([]byte, 64)
		if second {
			other = r.e.Irecv(0, 5, exact, buf)
		}
		r.dev.holdCQ = false
		r.step() // the message skips the first
		open(t, req)
		r.release()
		r.canceled(req)
		if !second {
			other = r.e.Irecv(0, 5, exact, buf)
		}
		r.got(other, buf, 8, 99)
		r.quiet()
	}
}

func TestRace23ListFull(t *testing.T) {
	r := newRace(t, Config{}, fakeOpts{tags: 1})
	one, buf1 := r.recv(5, exact, 64)
	two, buf2 := r.recv(5, exact, 64)
	three, buf3 := r.recv(5, 4, 64)
	require.EqualValues(t, 1, r.m().KeptFull)
	require.EqualValues(t, 1, r.m().KeptOverlap)
	for i := range 3 {
		r.send(5, 8, byte(i))
	}
	r.step()
	r.got(one, buf1, 8, 0)
	r.got(two, buf2, 8, 1)
	r.got(three, buf3, 8, 2)
}

func TestRace24Promotion(t *testing.T) {
	r := newRace(t, Config{}, fakeOpts{tags: 1})
	one, buf1 := r.recv(1, exact, 64)
	two, buf2 := r.recv(2, exact, 64)
	wild, bufW := r.recv(2, 2, 64)
	last, bufL := r.recv(4, exact, 64)
	r.step()
	for i, tag := range []uint64{1, 2, 2, 4} {
		r.send(tag, 8, byte(i))
		r.step()
		require.EqualValues(t, min(i+1, 3), r.m().Promoted, "message %d", i)
	}
	r.got(one, buf1, 8, 0)
	r.got(two, buf2, 8, 1)
	r.got(wild, bufW, 8, 2)
	r.got(last, bufL, 8, 3)
	require.EqualValues(t, 4, r.m().Matched)
}

func TestRace25OpsExhausted(t *testing.T) {
	r := newRace(t, Config{}, fakeOpts{tags: 4, maxOps: 1})
	r.dev.holdOps = true
	one, buf1 := r.recv(1, exact, 64)
	two, buf2 := r.recv(1, exact, 64)
	require.EqualValues(t, 1, r.m().KeptFull)
	r.release()
	r.step()
	require.EqualValues(t, 1, r.m().Promoted)
	r.send(1, 8, 1)
	r.send(1, 8, 2)
	r.step()
	r.got(one, buf1, 8, 1)
	r.got(two, buf2, 8, 2)
}

func TestRace26ManyOps(t *testing.T) {
	r := newRace(t, Config{}, fakeOpts{tags: 2, maxOps: 2})
	for i := range 500 {
		var reqs [3]Request
		for k := range reqs {
			reqs[k], _ = r.recv(uint64(k), exact, 64)
		}
		reqs[i%3].Cancel()
		r.step()
		for k := range reqs {
			if k != i%3 {
				r.send(uint64(k), 8, 0)
			}
		}
		r.step()
		for k := range reqs {
			if _, err := ended(t, reqs[k]); k != i%3 {
				require.NoError(t, err)
			}
		}
	}
	r.quiet()
}

func TestRace33RendezvousTooLong(t *testing.T) {
	for rts := range 3 {
		for _, room := range []int{0, 64, 1000} {
			r := newRace(t, Config{}, fakeOpts{tags: 4, rts: rts})
			req, buf := r.recv(5, exact, room)
			r.step()
			s := r.send(5, 1000, 1)
			r.step()
			st, err := ended(t, req)
			require.Equal(t, room < 1000, err == ErrTruncated, "%v", err)
			require.Equal(t, Status{0, 5, 1000}, st)
			require.Equal(t, fill(1000, 1)[:room], buf)
			_, err = ended(t, s)
			require.NoError(t, err)
			require.EqualValues(t, 1, r.m().Matched)
			r.quiet()
		}
	}
}

// An eager message that is too long ends as it does without a device; and what the device matched gives its credit back.
func TestRace39WildcardAndExact(t *testing.T) {
	for _, masks := range [][2]uint64{{6, exact}, {exact, 6}} {
		for _, sizes := range [][2]int{{64, 64}, {10, 64}, {64, 10}, {10, 10}} {
			r := newRace(t, Config{OffloadMin: 32}, fakeOpts{tags: 4})
			one, buf1 := r.recv(4, masks[0], sizes[0])
			two, buf2 := r.recv(4, masks[1], sizes[1])
			r.step()
			r.send(4, 8, 1)
			r.send(4, 8, 2)
			r.step()
			r.got(one, buf1, 8, 1)
			r.got(two, buf2, 8, 2)
		}
	}
}

func TestRace40AnySourceInSoftware(t *testing.T) {
	r := newRace(t, Config{OffloadMin: 32}, fakeOpts{tags: 4})
	wild, bufW := r.recv(0, 0, 10)
	exactly, buf := r.recv(4, exact, 64)
	r.step()
	require.Zero(t, r.m().Offloaded)
	require.EqualValues(t, 1, r.m().KeptSmall)
	require.EqualValues(t, 1, r.m().KeptOverlap)
	r.send(4, 8, 1)
	r.step()
	r.got(wild, bufW, 8, 1)
	require.EqualValues(t, 1, r.m().Promoted)
	r.send(4, 8, 2)
	r.step()
	r.got(exactly, buf, 8, 2)
	require.EqualValues(t, 1, r.m().Matched)
}

func TestRace41Unrelated(t *testing.T) {
	r := newRace(t, Config{OffloadMin: 32}, fakeOpts{tags: 4})
	var reqs []Request
	for tag, size := range []int{64, 10, 64} {
		req, _ := r.recv(uint64(tag), exact, size)
		reqs = append(reqs, req)
	}
	require.EqualValues(t, 2, r.m().Offloaded)
	r.step()
	for tag := range reqs {
		r.send(uint64(tag), 8, 0)
	}
	r.step()
	require.NoError(t, WaitAll(bg, reqs, nil))
	require.EqualValues(t, 2, r.m().Matched)
}

// Messages that always come before the device is ready: it is given up, order is kept, and it is taken up again.
func TestRace57SwitchUnderLoad(t *testing.T) {
	r := newRace(t, Config{}, fakeOpts{tags: 8})
	r.dev.noSync = true
	o := &r.e.off
	o.window, o.rest, o.backoff = 8, 16, 16
	for round := range 12 {
		r.dev.holdCQ = true
		r.send(9, 0, 0)
		r.e.Poll()
		var reqs []Request
		var bufs [][]byte
		for range 6 {
			req, buf := r.recv(5, exact, 64)
			reqs, bufs = append(reqs, req), append(bufs, buf)
		}
		for i := range reqs {
			r.send(5, 8, byte(i))
		}
		r.release()
		for i := range reqs {
			r.got(reqs[i], bufs[i], 8, byte(i))
		}
		_, err := r.e.Recv(bg, AnySource, 9, exact, nil)
		require.NoError(t, err, "round %d", round)
	}
	require.Positive(t, r.m().Rests)
	require.Positive(t, r.m().KeptOff)
	require.Zero(t, r.m().Matched)
	r.dev.noSync = false
	for i := range 200 {
		req, buf := r.recv(5, exact, 64)
		r.step()
		r.send(5, 8, byte(i))
		r.step()
		r.got(req, buf, 8, byte(i))
	}
	require.Positive(t, r.m().Matched)
	require.Equal(t, o.rest, o.backoff)
}

// A peer goes while the device has receives for it, one of them matched.
// The buffers stay the device's until the transport is closed.
// A blocking receive returns when the device has given its buffer back.

package p2p_test

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/p2p"
)

// byPeek completes nothing before all have ended.
func byPeek(t *testing.T, _ *p2p.Comm, reqs []p2p.Request) []p2p.Completion {
	out := make([]p2p.Completion, len(reqs))
	for i, r := range reqs {
		for done := false; !done; runtime.Gosched() { // there may be one processor for all ranks
			var err error
			out[i].Status, done, err = r.Peek()
			require.NoError(t, err)
		}
	}
	for i, r := range reqs {
		require.Equal(t, out[i].Status, wait(t, r))
	}
	return out
}

func byWaitAny(t *testing.T, _ *p2p.Comm, reqs []p2p.Request) []p2p.Completion {
	out := make([]p2p.Completion, len(reqs))
	for range reqs {
		i, st, err := p2p.WaitAny(background, reqs)
		require.NoError(t, err)
		out[i].Status = st
	}
	i, _, err := p2p.WaitAny(background, reqs)
	require.NoError(t, err)
	require.Equal(t, -1, i)
	return out
}

func byTestAny(t *testing.T, _ *p2p.Comm, reqs []p2p.Request) []p2p.Completion {
	out := make([]p2p.Completion, len(reqs))
	for {
		i, st, done, err := p2p.TestAny(reqs)
		require.NoError(t, err)
		switch {
		case !done:
			runtime.Gosched()
		case i < 0:
			return out
		default:
			out[i].Status = st
		}
	}
}

func byTestAll(t *testing.T, _ *p2p.Comm, reqs []p2p.Request) []p2p.Completion {
	out := make([]p2p.Completion, len(reqs))
	for {
		done, err := p2p.TestAll(reqs, out)
		require.NoError(t, err)
		if done {
			return out
		}
		runtime.Gosched()
	}
}

// byParts takes completions as a call gives them, a few at a time.
func byParts(t *testing.T, requests int, some func(part []p2p.Completion) int) []p2p.Completion {
	out, part := make([]p2p.Completion, requests), make([]p2p.Completion, 3)
	for left := requests; left > 0; {
		n := some(part)
		for _, c := range part[:n] {
			require.NoError(t, c.Err)
			out[c.Data] = c
		}
		if left -= n; n == 0 {
			runtime.Gosched()
		}
	}
	return out
}

func byWaitSome(t *testing.T, _ *p2p.Comm, reqs []p2p.Request) []p2p.Completion {
	return byParts(t, len(reqs), func(part []p2p.Completion) int {
		n, err := p2p.WaitSome(background, reqs, part)
		require.NoError(t, err)
		return n
	})
}

func byTestSome(t *testing.T, _ *p2p.Comm, reqs []p2p.Request) []p2p.Completion {
	left := len(reqs)
	return byParts(t, left, func(part []p2p.Completion) int {
		n, active := p2p.TestSome(reqs, part)
		left -= n
		require.Equal(t, left != 0, active)
		return n
	})
}

// byQueue gives the requests to a Queue, of which it takes what there is, and waits for the rest.
func byQueue(t *testing.T, c *p2p.Comm, reqs []p2p.Request) []p2p.Completion {
	q := c.World().NewQueue(1)
	for i, r := range reqs {
		r.Notify(q, uint64(i))
	}
	out := byParts(t, len(reqs), func(part []p2p.Completion) int {
		if n := q.Poll(part); n > 0 {
			return n
		}
		n, err := q.Wait(background, part)
		require.NoError(t, err)
		return n
	})
	require.NoError(t, q.Close())
	return out
}

//go:build linux && (amd64 || arm64)

package pmix

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tagmatch/tagmatch/bootstrap/internal/space"
)

const key = "tagmatch.rendezvous"

// abortTime is how long an Abort waits for the server to end this process: until it has, the others
// must not hear of it, and end with codes of their own, of which the first would be the job's.
const abortTime = 3 * time.Second

// client implements space.Space. A call of the library holds a thread until it returns: where a
// context ends first, that thread waits on, and the client is of no more use.
type client struct {
	lib *library
	me  proc
	id  space.Identity

	mu      sync.Mutex // held during a call; guards closed
	closed  bool
	broken  atomic.Bool // a call did not return in time
	aborted atomic.Bool
}

func open(ctx context.Context, name string) (space.Space, error) {
	lib, err := load(name)
	if err != nil {
		return nil, err
	}
	c := &client{lib: lib}
	if err := c.do(ctx, func() error { return c.init() }); err != nil {
		return nil, err
	}
	return c, nil
}

// do calls f in a goroutine of its own, so that ctx can end the wait for it.
func (c *client) do(ctx context.Context, f func() error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if c.broken.Load() {
		return fmt.Errorf("an earlier call of PMIx has not returned")
	}
	done := make(chan error, 1)
	go func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		done <- f()
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		c.broken.Store(true)
		return fmt.Errorf("the PMIx server did not answer: %w", context.Cause(ctx))
	}
}

// init begins the conversation and asks who this process is.
func (c *client) init() error {
	if err := c.lib.failed("PMIx_Init", c.lib.init(&c.me, nil, 0)); err != nil {
		return err
	}
	c.id = space.Identity{Rank: int(c.me.rank), LocalRank: -1, LocalSize: -1, JobID: c.namespace()}
	job := c.me
	job.rank = rankWildcard
	var err error
	if c.id.Size, err = c.number(&job, "pmix.job.size"); err != nil {
		return err
	}
	size, err1 := c.number(&job, "pmix.local.size")
	rank, err2 := c.number(&c.me, "pmix.lrank")
	if err1 == nil && err2 == nil {
		c.id.LocalRank, c.id.LocalSize = rank, size
	}
	return nil
}

func (c *client) namespace() string {
	s, _, _ := strings.Cut(string(c.me.nspace[:]), "\x00")
	return s
}

func (c *client) number(p *proc, key string) (n int, err error) {
	err = c.with(p, key, func(v *value) (err error) {
		n, err = v.number()
		return err
	})
	return n, err
}

// with calls f with the value of a key.
func (c *client) with(p *proc, key string, f func(*value) error) error {
	var v *value
	if err := c.lib.failed("PMIx_Get of "+key, c.lib.get(p, key, nil, 0, &v)); err != nil {
		return err
	}
	defer c.lib.release(v)
	if err := f(v); err != nil {
		return fmt.Errorf("PMIx_Get of %s: %w", key, err)
	}
	return nil
}

// Identity implements space.Space.
func (c *client) Identity() space.Identity { return c.id }

// Broadcast implements space.Space by a fence of all ranks.
func (c *client) Broadcast(ctx context.Context, b []byte) ([]byte, error) {
	if c.id.Rank == 0 && (len(b) == 0 || len(b) > space.MaxValue) {
		return nil, fmt.Errorf("a value of %d bytes: 1 to %d can be handed to all ranks", len(b), space.MaxValue)
	}
	err := c.do(ctx, func() (err error) {
		if c.id.Rank == 0 {
			if err := c.put(b); err != nil {
				return err
			}
			return c.fence(ctx)
		}
		if err := c.fence(ctx); err != nil {
			return err
		}
		root := c.me
		root.rank = 0
		return c.with(&root, key, func(v *value) (err error) {
			b, err = v.bytes(space.MaxValue)
			return err
		})
	})
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("not all of the %d ranks have come to PMIx_Fence, which does not tell who is missing: %w", c.id.Size, err)
	}
	return b, err
}

// put publishes b, which the library copies.
func (c *client) put(b []byte) error {
	var pin runtime.Pinner
	pin.Pin(&b[0])
	defer pin.Unpin()
	v := bytesValue(b)
	if err := c.lib.failed("PMIx_Put", c.lib.put(scopeGlobal, key, &v)); err != nil {
		return err
	}
	return c.lib.failed("PMIx_Commit", c.lib.commit())
}

// fence waits for all ranks, and collects what they have put.
func (c *client) fence(ctx context.Context) error {
	infos := []info{attribute("pmix.collect", typeBool, 1)}
	if d, ok := ctx.Deadline(); ok {
		infos = append(infos, attribute("pmix.timeout", typeInt, uint64(max(int64(time.Until(d)/time.Second)+1, 1))))
	}
	all := c.me
	all.rank = rankWildcard
	return c.lib.failed("PMIx_Fence", c.lib.fence(&all, 1, &infos[0], uintptr(len(infos))))
}

// Joined implements space.Space. The server keeps its values.
func (c *client) Joined() {}

// Abort implements space.Space. Where the server takes the request it ends this process, too.
func (c *client) Abort(code int, reason string) {
	c.aborted.Store(true)
	refused := make(chan struct{})
	go func() { // not under the lock: a fence may wait for ever
		if c.lib.abort(int32(code), strings.ReplaceAll(reason, "\x00", " "), nil, 0) != 0 {
			close(refused)
		}
	}()
	select {
	case <-refused:
	case <-time.After(abortTime):
	}
}

// Close implements space.Space.
func (c *client) Close() error {
	if c.broken.Load() || c.aborted.Load() {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	return c.do(ctx, func() error {
		if c.closed {
			return nil
		}
		c.closed = true
		return c.lib.failed("PMIx_Finalize", c.lib.finalize(nil, 0))
	})
}

// Package pmi is a client of the process management interfaces PMI-1 and PMI-2, which mpiexec of
// MPICH (Hydra), Intel MPI and MVAPICH, Slurm (srun --mpi=pmi2) and Flux offer to the processes
// that they start: text over an inherited socket, or one to which the process connects. The
// protocols are those of "PMI: A Scalable Parallel Process-Management Interface" (Balaji and
// others, 2010), as Hydra 4.0 and Slurm 22.05 speak them.
//
// Both allow one request at a time: the methods of a Client may be called from any goroutine and
// take turns.
package pmi

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tagmatch/tagmatch/bootstrap/internal/space"
)

// Place is a process manager that has started this process, as the environment shows it.
type Place struct {
	Launcher   string   // its name for people
	Rank, Size int      // -1: the process manager tells in Open
	Variables  []string // that are of this process alone

	fd                   int    // inherited socket; -1: there is none
	addr, id             string // where to connect to, and as whom
	rank                 string
	v2                   bool // speaks PMI-2
	jobID                string
	localRank, localSize int
}

// variables are those of the connection, which belongs to one process: its children must not use
// it. PMI_RANK stays, to tell of a child that somebody has started it in a job.
var variables = []string{"PMI_FD", "PMI_PORT", "PMI_ID"}

// Find returns nil where no process manager with PMI has started this process. An inherited PMI_FD
// whose socket is not open any more, as in a child of a rank, is none.
func Find(getenv func(string) string) (*Place, error) {
	p := &Place{Launcher: "mpiexec (PMI-1)", Rank: -1, Size: -1, fd: -1, addr: getenv("PMI_PORT"), id: getenv("PMI_ID"),
		rank: getenv("PMI_RANK"), jobID: getenv("PMI_JOBID"), localRank: -1, localSize: -1}
	fd, err := strconv.Atoi(getenv("PMI_FD"))
	switch {
	case err == nil && isSocket(fd):
		p.fd = fd
	case p.addr == "" || p.id == "":
		return nil, nil
	}
	// Slurm, whose PMI-1 cannot take two requests at once, sets PMI_JOBID; Flux, which has no
	// PMI-2, does not. All ranks must choose the same.
	if p.jobID != "" {
		p.v2, p.Launcher = true, "srun (Slurm, PMI-2)"
	}
	for _, v := range variables {
		if getenv(v) != "" {
			p.Variables = append(p.Variables, v)
		}
	}
	if p.fd >= 0 {
		if p.Rank, p.Size, err = rankAndSize(getenv); err != nil {
			return nil, err
		}
	}
	p.localRank, p.localSize = local(getenv)
	return p, nil
}

func rankAndSize(getenv func(string) string) (rank, size int, err error) {
	size, err = strconv.Atoi(getenv("PMI_SIZE"))
	if err != nil || size < 1 {
		return 0, 0, fmt.Errorf("PMI_SIZE is %q beside PMI_FD: a process manager sets it to the number of ranks", getenv("PMI_SIZE"))
	}
	rank, err = strconv.Atoi(getenv("PMI_RANK"))
	if err != nil || rank < 0 || rank >= size {
		return 0, 0, fmt.Errorf("PMI_RANK is %q beside PMI_FD and PMI_SIZE %d: a process manager sets it to a rank below that", getenv("PMI_RANK"), size)
	}
	return rank, size, nil
}

// local is what Hydra tells of the ranks on this host, -1 elsewhere.
func local(getenv func(string) string) (rank, size int) {
	rank, err1 := strconv.Atoi(getenv("MPI_LOCALRANKID"))
	size, err2 := strconv.Atoi(getenv("MPI_LOCALNRANKS"))
	if err1 != nil || err2 != nil || rank < 0 || rank >= size {
		return -1, -1
	}
	return rank, size
}

// Open begins the conversation. The descriptor that this process inherited is the Client's from
// then on, also after an error.
func (p *Place) Open(ctx context.Context) (*Client, error) {
	ch, err := p.channel(ctx)
	if err != nil {
		return nil, err
	}
	c := &Client{id: space.Identity{Rank: p.Rank, Size: p.Size, LocalRank: p.localRank, LocalSize: p.localSize}, ch: ch}
	if p.v2 {
		c.pmi = &v2{ch: ch, place: p}
	} else {
		c.pmi = &v1{ch: ch, place: p}
	}
	if err := c.do(ctx, func() error { return c.pmi.open(&c.id) }); err != nil {
		_ = c.Close()
		return nil, err
	}
	return c, nil
}

func (p *Place) channel(ctx context.Context) (*channel, error) {
	if p.fd >= 0 {
		f, err := inherit(p.fd)
		if err != nil {
			return nil, fmt.Errorf("PMI_FD=%d: %w", p.fd, err)
		}
		return newChannel(f), nil
	}
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", p.addr)
	if err != nil {
		return nil, fmt.Errorf("PMI_PORT=%s: %w", p.addr, err)
	}
	return newChannel(conn), nil
}

// protocol is one version of PMI.
type protocol interface {
	// open greets the process manager and fills in what it tells of the job.
	open(id *space.Identity) error
	put(key, value string) error
	fence() error
	get(key string) (string, error)
	abort(code int, reason string) error
	finalize() error
}

// Client is a conversation with the process manager. It implements space.Space.
type Client struct {
	id      space.Identity // constant after Open
	ch      *channel
	pmi     protocol
	aborted atomic.Bool // nothing is answered any more

	mu     sync.Mutex // held during a request; guards broken and closed
	broken error      // a request was not answered: the next reply would be its
	closed bool
}

// Identity implements space.Space.
func (c *Client) Identity() space.Identity { return c.id }

// do makes requests under ctx.
func (c *Client) do(ctx context.Context, f func() error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.broken != nil {
		return c.broken
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	// There is one deadline for reads and writes, so that a server that takes nothing ends too.
	stop := context.AfterFunc(ctx, func() { _ = c.ch.conn.SetDeadline(time.Unix(1, 0)) })
	err := f()
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		if ctx.Err() != nil {
			err = fmt.Errorf("the process manager did not answer: %w", context.Cause(ctx))
		}
		c.broken = err
	}
	return err
}

// Broadcast implements space.Space by a barrier of all ranks.
func (c *Client) Broadcast(ctx context.Context, value []byte) ([]byte, error) {
	err := c.do(ctx, func() (err error) {
		if c.id.Rank == 0 {
			if err := c.put(value); err != nil {
				return err
			}
			return c.pmi.fence()
		}
		if err = c.pmi.fence(); err == nil {
			value, err = c.get()
		}
		return err
	})
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("not all of the %d ranks have come to the process manager's barrier, which does not tell who is missing: %w", c.id.Size, err)
	}
	return value, err
}

// Joined implements space.Space. The process manager keeps its values.
func (c *Client) Joined() {}

// Abort implements space.Space. It does not wait for a request under way, which may be a barrier
// that never ends.
func (c *Client) Abort(code int, reason string) {
	c.aborted.Store(true)
	_ = c.ch.conn.SetWriteDeadline(time.Now().Add(time.Second))
	_ = c.pmi.abort(code, reason) // a process manager that is gone needs no word
}

// Close implements space.Space. Hydra takes a process that closes its socket without finalize for
// dead, and kills the job, this process too: where finalize is not possible any more the socket is
// left to the end of the process, so that this can still say what went wrong.
func (c *Client) Close() error {
	broken, again := c.begin()
	switch {
	case again:
		return nil
	case broken:
		left.Store(c.ch, true) // or the collector would close it
		return nil
	case c.aborted.Load():
		return c.ch.close()
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	return errors.Join(c.do(ctx, c.pmi.finalize), c.ch.close())
}

// left are the channels of broken Clients.
var left sync.Map

// begin begins the first Close.
func (c *Client) begin() (broken, again bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	again, c.closed = c.closed, true
	return c.broken != nil, again
}

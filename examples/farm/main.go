// Farm shows a program that survives the loss of ranks: rank 0 hands out tasks, and gives those of
// a rank that is lost to another one.
//
//	go run ./cmd/tagmatch run -n 4 --keep-going -- go run ./examples/farm -die 2
//
// Rank 2 kills itself in its third task here; by default no rank does. The launcher must let the
// others go on, as --keep-going does.
//
// Concurrency: each rank has one goroutine.
package main

import (
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/tagmatch/tagmatch/p2p"
)

const (
	task   p2p.Tag = 1 + iota // to a worker: a number, or nothing at the end
	result                    // to rank 0: the task's number, and its result
)

func main() {
	tasks := flag.Int("tasks", 20, "`number` of tasks")
	die := flag.Int("die", -1, "`rank` that kills itself in its third task")
	flag.Parse()
	if err := run(context.Background(), *tasks, *die); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, tasks, die int) error {
	w, err := p2p.Init(ctx, p2p.Config{})
	if err != nil {
		return err
	}
	defer w.Close()
	if w.Size() < 2 {
		return errors.New("this example takes two ranks or more: tagmatch run -n 4 -- farm")
	}
	if w.Rank() == 0 {
		err = newMaster(w, tasks).run(ctx)
	} else {
		err = work(ctx, w.Comm(), w.Rank() == die)
	}
	if err != nil {
		return err
	}
	// Where a rank is lost Shutdown cannot meet it, and says so.
	if err := w.Shutdown(ctx); err != nil && !errors.Is(err, p2p.ErrPeerLost) {
		return err
	}
	return nil
}

// work does tasks until there are none. If rank 0 is lost there is nothing left to do: an error.
func work(ctx context.Context, c *p2p.Comm, die bool) error {
	for n := 1; ; n++ {
		var buf [16]byte
		st, err := c.Recv(ctx, 0, task, buf[:])
		if err != nil || st.Len == 0 {
			return err
		}
		if die && n == 3 {
			p, err := os.FindProcess(os.Getpid())
			if err != nil {
				return err
			}
			return p.Kill()
		}
		number := binary.LittleEndian.Uint64(buf[:])
		time.Sleep(time.Millisecond) // a task of yours takes some time
		binary.LittleEndian.PutUint64(buf[8:], number*number)
		if err := c.Send(ctx, 0, result, buf[:]); err != nil {
			return err
		}
	}
}

// master is rank 0.
type master struct {
	w     *p2p.World
	todo  []uint64
	doing map[int]uint64 // by worker
	idle  []int          // workers
	sum   uint64
}

func newMaster(w *p2p.World, tasks int) *master {
	m := &master{w: w, doing: map[int]uint64{}}
	for i := range tasks {
		m.todo = append(m.todo, uint64(i+1))
	}
	for rank := 1; rank < w.Size(); rank++ {
		m.idle = append(m.idle, rank)
	}
	return m
}

// run hands out all tasks, and prints the sum of the results.
func (m *master) run(ctx context.Context) error {
	for len(m.todo)+len(m.doing) > 0 {
		if err := m.handOut(ctx); err != nil {
			return err
		}
		if len(m.doing) == 0 {
			return errors.New("all workers are lost")
		}
		if err := m.collect(ctx); err != nil {
			return err
		}
	}
	fmt.Println("sum of the squares:", m.sum)
	for _, rank := range m.idle {
		if err := m.w.Comm().Send(ctx, rank, task, nil); err != nil && !errors.Is(err, p2p.ErrPeerLost) {
			return err
		}
	}
	return nil
}

// handOut gives each idle worker a task. A worker to which nothing can be sent is lost: collect
// hears of it too, if any other is at work.
func (m *master) handOut(ctx context.Context) error {
	for len(m.idle) > 0 && len(m.todo) > 0 {
		rank, number := m.idle[0], m.todo[0]
		err := m.w.Comm().Send(ctx, rank, task, binary.LittleEndian.AppendUint64(nil, number))
		if err != nil && !errors.Is(err, p2p.ErrPeerLost) {
			return err
		}
		m.idle = m.idle[1:]
		if err == nil {
			m.todo = m.todo[1:]
			m.doing[rank] = number
		}
	}
	return nil
}

// collect receives one result. From any source it fails once a rank is lost, until AckFailures says
// that the program knows; results that were sent before are received first.
func (m *master) collect(ctx context.Context) error {
	var buf [16]byte
	st, err := m.w.Comm().Recv(ctx, p2p.AnySource, result, buf[:])
	if loss, ok := errors.AsType[*p2p.PeerError](err); ok {
		m.takeBack(loss.Ranks)
		return nil
	}
	if err != nil {
		return err
	}
	m.sum += binary.LittleEndian.Uint64(buf[8:])
	delete(m.doing, st.Source)
	m.idle = append(m.idle, st.Source)
	return nil
}

// takeBack makes the tasks of lost ranks tasks of others. It is for those that the error names, of
// which nothing is left to receive, and not for World.Failed, which may have more by now.
func (m *master) takeBack(lost []int) {
	for _, rank := range lost {
		if number, ok := m.doing[rank]; ok {
			fmt.Printf("rank %d is lost, and with it task %d\n", rank, number)
			m.todo = append(m.todo, number)
			delete(m.doing, rank)
		}
	}
	m.w.AckFailures(lost...)
}

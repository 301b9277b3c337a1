package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"flag"
	"fmt"
	"io"
	"runtime"
	"time"

	"github.com/tagmatch/tagmatch/bootstrap/bootstraptest"
	"github.com/tagmatch/tagmatch/p2p"
)

// markRank is the rank whose state is made: its number is found in what it publishes.
const markRank = 0xa5c3

// ranks measures what a rank keeps of others that it never talks to, in a job of which it alone
// exists.
func ranks(args []string, stdout, stderr io.Writer) int {
	const least = 2 * (markRank + 1)
	fs := flag.NewFlagSet("bench ranks", flag.ContinueOnError)
	fs.SetOutput(stderr)
	n := fs.Int("n", 100_000, "ranks of the job")
	device := fs.String("device", "", "p2p.Config.Device")
	if fs.Parse(args) != nil {
		return 2
	}
	if *n < least || fs.NArg() > 0 {
		fmt.Fprintf(stderr, "bench ranks: give -n %d or more, and nothing else than flags\n", least)
		return 2
	}
	half, err := keep(*n/2, *device)
	var all kept
	if err == nil {
		all, err = keep(*n, *device)
	}
	if err != nil {
		fmt.Fprintln(stderr, "bench ranks:", err)
		return 1
	}
	fmt.Fprintf(stdout, "%d ranks: %d bytes for each that is never talked to, its card of %d bytes included; Init takes %v, %v for each\n",
		*n, (all.heap-half.heap)/int64(*n-*n/2), all.card, all.init.Round(time.Millisecond), all.init/time.Duration(*n))
	return 0
}

// kept is what a World takes.
type kept struct {
	heap int64 // bytes
	card int   // bytes
	init time.Duration
}

func keep(n int, device string) (k kept, err error) {
	made := func(other int, mine []byte) []byte {
		k.card = len(mine)
		return cardOf(other, mine)
	}
	before := heap()
	start := time.Now()
	w, err := p2p.Init(context.Background(), p2p.Config{Bootstrap: bootstraptest.NewSole(markRank, n, made), Device: device})
	if err != nil {
		return k, err
	}
	k.init = time.Since(start)
	k.heap = heap() - before
	return k, w.Close()
}

// cardOf changes a card to that of another rank: the numbers of the rank, and the identity with
// which the address of its software device begins.
func cardOf(other int, mine []byte) []byte {
	rank := binary.LittleEndian.AppendUint32(nil, uint32(other))
	card := bytes.ReplaceAll(mine, binary.LittleEndian.AppendUint32(nil, markRank), rank)
	if magic := []byte("TMA\x02"); bytes.Contains(card, magic) {
		copy(card[bytes.Index(card, magic)+len(magic):], rank)
	}
	return card
}

// heap is the number of bytes in use.
func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // what pools held is freed by the second
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

package rendezvous

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"
	"unicode"
)

// Vigil says in Notices, whatever the program logs, that rank still waits to join, until stop is
// called: first after FirstNotice; the intervals double. what is the rest of the text, "" where
// there is nothing to be said. It is called in the background, not after stop has returned. stop
// waits for no output that nobody takes.
func (c *Config) Vigil(rank int, what func() string) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var asking sync.Mutex // held while what is called
	begin := time.Now()
	ask := func() string {
		asking.Lock()
		defer asking.Unlock()
		if ctx.Err() != nil {
			return ""
		}
		return what()
	}
	go func() {
		for interval := c.FirstNotice; ctx.Err() == nil; interval *= 2 {
			select {
			case <-time.After(interval):
			case <-ctx.Done():
			}
			if text := ask(); text != "" {
				fmt.Fprintf(c.Notices, "tagmatch: rank %d on %s has waited %v %s\n", rank, hostName(), time.Since(begin).Round(time.Second), printable(text))
			}
		}
	}()
	return func() {
		asking.Lock()
		defer asking.Unlock()
		cancel()
	}
}

// printable replaces what could move a terminal's cursor or forge a line: reasons may be a
// stranger's.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return unicode.ReplacementChar
	}, text)
}

// mostSpeakers bounds the ranks that speak where nothing tells which are the first of a host.
const mostSpeakers = 16

// Speaks reports whether a rank other than 0 says that it cannot reach rank 0, or its launcher: of
// each host one does, as a thousand ranks would say the same.
func Speaks(rank, localRank int) bool {
	return localRank == 0 || localRank < 0 && rank < mostSpeakers
}

func hostName() string {
	name, err := os.Hostname()
	if err != nil {
		return "unknown host"
	}
	return name
}

package jobtest

import (
	"bufio"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/tagmatch/tagmatch/internal/testlevel"
)

// Environment of a process that floods listeners.
const (
	floodVar       = "JOBTEST_FLOOD"          // how, see attack
	floodersVar    = "JOBTEST_FLOODERS"       // how many connections at once
	floodUserVar   = "JOBTEST_FLOOD_USER"     // as which user; empty: as this one
	floodRecordVar = "JOBTEST_FLOOD_RECORDED" // what a rank has said, in hexadecimal digits
)

// hits is how many connections to a listener make a flood.
var hits int64 = 300

func init() {
	if testlevel.Quick() {
		hits = 10
	}
}

// target is a listener that is flooded.
type target struct {
	network, at string
	hits        atomic.Int64
}

// hitsTime is how long the hits of a listener may take, so that a flood which cannot reach one says
// so.
const hitsTime = time.Minute

// flood connects to the listeners that lines of the standard input name, and says so once each has
// had its hits, until the input ends.
func flood(how string) error {
	if user := os.Getenv(floodUserVar); user != "" {
		uid, err := strconv.Atoi(user)
		if err != nil {
			return err
		}
		if err := syscall.Setuid(uid); err != nil {
			return fmt.Errorf("the flood cannot become user %d: %w", uid, err)
		}
	}
	recorded, err := hex.DecodeString(os.Getenv(floodRecordVar))
	if err != nil {
		return err
	}
	var mu sync.Mutex
	var targets []*target
	pick := func() *target {
		mu.Lock()
		defer mu.Unlock()
		return targets[rand.IntN(len(targets))]
	}
	n := int(number(floodersVar))
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		var list []*target
		for _, word := range strings.Fields(in.Text()) {
			network, at, _ := strings.Cut(word, "/")
			list = append(list, &target{network: network, at: at})
		}
		mu.Lock()
		first := targets == nil
		targets = list
		mu.Unlock()
		for range n {
			if first {
				go func() {
					for {
						if err := pick().attack(how, n, recorded); err != nil {
							fmt.Fprintln(os.Stderr, "the flood is weaker than it should be:", err)
							os.Exit(1)
						}
					}
				}()
			}
		}
		began := time.Now()
		for _, t := range list {
			for ; t.hits.Load() < hits; time.Sleep(time.Millisecond) {
				if time.Since(began) > testlevel.Patience(hitsTime) {
					return fmt.Errorf("%s %s has had %d connections after %v, want %d", t.network, t.at, t.hits.Load(), time.Since(began), hits)
				}
			}
		}
		fmt.Println("flooding")
	}
	return nil
}

// fullOrGone are the errors of a dial to a listener that has as many connections as it can have, or
// is not there any more; so is one that has timed out.
var fullOrGone = []error{syscall.EADDRNOTAVAIL, syscall.ECONNREFUSED, syscall.ECONNRESET}

// attack connects once, as one of n, and does what strangers do. The error is that of a dial which
// has failed for other reasons than what is dialled, as for want of descriptors.
func (t *target) attack(how string, n int, recorded []byte) error {
	conn, err := net.DialTimeout(t.network, t.at, time.Second)
	late, _ := errors.AsType[net.Error](err)
	if late != nil && late.Timeout() || slices.ContainsFunc(fullOrGone, func(e error) bool { return errors.Is(err, e) }) {
		time.Sleep(10 * time.Millisecond)
		return nil
	}
	if err != nil {
		return err
	}
	defer conn.Close()
	t.hits.Add(1)
	// The greeting of both protocols begins so; what follows is the length of a data wire's hello.
	hello := append([]byte("tagmatch\x05\x00"), 200, 0)
	junk := make([]byte, 1+rand.IntN(60000))
	for k := range junk {
		junk[k] = byte(rand.Uint32())
	}
	switch how {
	case "idle":
	case "slow":
		for _, b := range append(hello, junk...) {
			if _, err := conn.Write([]byte{b}); err != nil {
				return nil
			}
			time.Sleep(200 * time.Millisecond)
		}
	case "garbage":
		for err == nil {
			_, err = conn.Write(junk)
		}
	case "half":
		_, _ = conn.Write(append(hello, junk[:min(200, len(junk))]...))
	case "huge":
		hello[10], hello[11] = 0xff, 0xff
		_, _ = conn.Write(append(hello, junk...))
	case "recorded":
		_, _ = conn.Write(recorded)
	case "connects":
		const rate = 5000 // a second, of all n
		time.Sleep(rand.N(2 * time.Duration(n) * time.Second / rate))
		return nil
	default:
		panic(how)
	}
	for err == nil { // the answer, and until the other end has enough
		_, err = conn.Read(junk)
	}
	return nil
}

// Bandwidth streams messages from one rank to another, many at once, and prints MB/s by size.
//
//	go run ./examples/bandwidth [-device auto|shm|tcp] [-transport auto|rc|tmsrq]
//		[-sizes 8,64k,1m] [-window 64] [-iters N] [-check] [-json]
//
// Started plainly it launches itself as two ranks here; under a launcher, ranks 0 and 1 measure.
package main

import (
	"bytes"
	"cmp"
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/tagmatch/tagmatch/launch"
	"github.com/tagmatch/tagmatch/p2p"
)

func main() {
	var cfg p2p.Config
	flag.StringVar(&cfg.Device, "device", "", "`name`: auto, shm or tcp; default TAGMATCH_DEVICE")
	flag.StringVar(&cfg.Transport, "transport", "", "`name`: auto, rc or tmsrq; default TAGMATCH_TRANSPORT")
	flag.IntVar(&cfg.MaxTags, "max-tags", 0, "`receives` that the device's list holds, 0: the default, -1: none")
	flag.IntVar(&cfg.OffloadMin, "offload-min", 0, "`bytes` of the smallest receive for the device, 0: the default, -1: any")
	sizes := flag.String("sizes", "8,64,512,1k,4k,16k,64k,256k,1m,4m", "message `sizes`; k and m are powers of 1024")
	iters := flag.Int("iters", 0, "messages of each size, 0: as many as it calls for")
	window := flag.Int("window", 64, "messages under way at once")
	check := flag.Bool("check", false, "compare every message, not only the first ones; slower")
	asJSON := flag.Bool("json", false, "print a JSON object a line instead of a table")
	flag.Parse()
	switch err := cfg.Validate(); {
	case err != nil:
		log.Fatal(err)
	case flag.NArg() > 0 || *iters < 0 || *window < 1:
		log.Fatalf("-iters must not be below 0, nor -window below 1, and arguments that are no flags are not known: %q", flag.Args())
	}
	code, rank, err := launch.Self(2, launch.Options{Pin: true})
	if rank && err == nil {
		err = run(context.Background(), cfg, *sizes, *iters, *window, *check, map[bool]string{false: table, true: lines}[*asJSON])
	}
	if err != nil {
		log.Fatal(err) // the launcher then ends the other rank
	}
	os.Exit(code)
}

const (
	tag   p2p.Tag = 7
	table         = "%s/%s %10d bytes %8d messages %10.1f MB/s %10.0f messages/s %8d offloaded\n"
	lines         = `{"device":%q,"transport":%q,"size":%d,"iters":%d,"mb_s":%.1f,"msg_s":%.0f,"offloaded":%d}` + "\n"
)

func run(ctx context.Context, cfg p2p.Config, sizes string, iters, window int, check bool, format string) error {
	w, err := p2p.Init(ctx, cfg)
	if err != nil {
		return err
	}
	defer w.Close()
	for text := range strings.SplitSeq(sizes, ",") {
		digits := strings.TrimRight(text, "km")
		size, err := strconv.Atoi(digits)
		size <<= map[string]int{"k": 10, "m": 20}[text[len(digits):]]
		if err != nil || size < 0 || size > 1<<30 || len(text) > len(digits)+1 {
			return fmt.Errorf("-sizes: %q is no size from 0 to 1024m", text)
		}
		n := cmp.Or(iters, min(max(1<<30/(size+1), 20), 200_000))
		if w.Rank() > 1 {
			break // to wait in Shutdown
		}
		took, err := stream(ctx, w, make([]p2p.Request, window), size, n, check)
		if err != nil {
			return err
		}
		if m, rate := w.Metrics(), float64(n)/took.Seconds(); w.Rank() == 1 { // MB are 10^6 bytes; offloaded are receives that the device has got so far
			fmt.Printf(format, m.Device, m.Transport, size, n, float64(size)*rate/1e6, rate, m.Offload.Offloaded)
		}
	}
	return w.Shutdown(ctx)
}

// stream returns the time of n messages, after some that are compared and some to warm up.
func stream(ctx context.Context, w *p2p.World, requests []p2p.Request, size, n int, check bool) (time.Duration, error) {
	shared, start := make([]byte, size), time.Time{}
	for phase, count := range []int{len(requests), min(n/10+1, 1000), n} {
		verify, bufs := check || phase == 0, make([][]byte, len(requests))
		for k := range bufs {
			if bufs[k] = shared; verify {
				bufs[k] = bytes.Repeat([]byte{byte(k + 1)}, size)
			}
		}
		start = time.Now()
		for i := range count + len(requests) { // used in turn; to wait for a zero Request is nothing
			k := i % len(requests)
			if _, err := requests[k].Wait(ctx); err != nil {
				return 0, err
			}
			if verify && w.Rank() == 1 && i >= len(requests) && !bytes.Equal(bufs[k], bytes.Repeat([]byte{byte(k + 1)}, size)) {
				return 0, fmt.Errorf("message %d of %d bytes arrived damaged", i-len(requests), size)
			}
			switch {
			case i >= count:
				requests[k] = p2p.Request{} // a request is waited for once
			case w.Rank() == 0:
				requests[k] = w.Isend(1, tag, bufs[k])
			default:
				if verify {
					clear(bufs[k])
				}
				requests[k] = w.Irecv(tag, p2p.MaskExact, bufs[k])
			}
		}
	}
	return time.Since(start), nil
}

// Pingpong bounces messages between two ranks and prints half the time of a round trip by message
// size.
//
//	go run ./examples/pingpong [-device auto|shm|tcp] [-transport auto|rc|tmsrq]
//		[-sizes 8,1k,1m] [-iters N] [-check] [-json]
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
	sizes := flag.String("sizes", "0,8,64,512,1k,4k,16k,64k,256k,1m,4m", "message `sizes`; k and m are powers of 1024")
	iters := flag.Int("iters", 0, "round trips of each size, 0: as many as it calls for")
	check := flag.Bool("check", false, "compare every message, not only the first; slower")
	asJSON := flag.Bool("json", false, "print a JSON object a line instead of a table")
	flag.Parse()
	switch err := cfg.Validate(); {
	case err != nil:
		log.Fatal(err)
	case flag.NArg() > 0 || *iters < 0:
		log.Fatalf("-iters must not be below 0, and arguments that are no flags are not known: %q", flag.Args())
	}
	code, rank, err := launch.Self(2, launch.Options{Pin: true})
	if rank && err == nil {
		err = run(context.Background(), cfg, *sizes, *iters, *check, map[bool]string{false: table, true: lines}[*asJSON])
	}
	if err != nil {
		log.Fatal(err) // the launcher then ends the other rank
	}
	os.Exit(code)
}

const (
	tag   p2p.Tag = 7
	table         = "%s/%s %10d bytes %8d round trips %10.3f us %10.1f MB/s %8d offloaded\n"
	lines         = `{"device":%q,"transport":%q,"size":%d,"iters":%d,"avg_us":%.3f,"mb_s":%.1f,"offloaded":%d}` + "\n"
)

func run(ctx context.Context, cfg p2p.Config, sizes string, iters int, check bool, format string) error {
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
		n := cmp.Or(iters, min(max(1<<30/(size+1), 20), 20_000))
		if w.Rank() > 1 {
			break // to wait in Shutdown
		}
		took, err := bounce(ctx, w, size, n, check)
		if err != nil {
			return err
		}
		m := w.Metrics()
		us := took.Seconds() * 1e6 / float64(2*n)
		if w.Rank() == 0 { // MB are 10^6 bytes; offloaded are receives that the device has got so far
			fmt.Printf(format, m.Device, m.Transport, size, n, us, float64(size)/us, m.Offload.Offloaded)
		}
	}
	return w.Shutdown(ctx)
}

// bounce returns the time of n round trips, after one that is compared and some to warm up.
func bounce(ctx context.Context, w *p2p.World, size, n int, check bool) (time.Duration, error) {
	out, in := make([]byte, size), make([]byte, size)
	warm, start := min(n/10+1, 1000), time.Time{}
	for i := range 1 + warm + n {
		if i == 1+warm {
			start = time.Now()
		}
		verify := check || i == 0
		if verify { // both ranks send the same
			out, in = bytes.Repeat([]byte{byte(i%255 + 1)}, size), make([]byte, size)
		}
		var err error
		if w.Rank() == 0 {
			err = w.Send(ctx, 1, tag, out)
		}
		if err == nil {
			_, err = w.Recv(ctx, tag, p2p.MaskExact, in)
		}
		if err == nil && w.Rank() == 1 {
			err = w.Send(ctx, 0, tag, out)
		}
		if err == nil && verify && !bytes.Equal(in, out) {
			err = fmt.Errorf("round %d: a message of %d bytes arrived damaged", i, size)
		}
		if err != nil {
			return 0, err
		}
	}
	return time.Since(start), nil
}

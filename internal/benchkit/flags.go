package benchkit

import (
	"errors"
	"flag"
	"fmt"
	"strconv"
	"strings"
)

// Flags are those of every measuring command.
type Flags struct {
	Device     string
	Transport  string
	Sizes      Sizes
	Iters      int // 0: chosen by size
	Window     int // 0: the command has no window
	Check      bool
	JSON       bool
	NoPin      bool
	GOMAXPROCS int
}

// Register adds the flags to fs; what f holds already are the defaults.
func (f *Flags) Register(fs *flag.FlagSet) {
	fs.StringVar(&f.Device, "device", "auto", "`name`: auto, shm or tcp")
	fs.StringVar(&f.Transport, "transport", "auto", "`name`: auto or rc")
	fs.Var(&f.Sizes, "sizes", "message `sizes` in bytes, separated by commas; k and m are powers of 1024")
	fs.IntVar(&f.Iters, "iters", 0, "messages of each size, 0: as many as the size calls for")
	if f.Window > 0 {
		fs.IntVar(&f.Window, "window", f.Window, "messages under way at once")
	}
	fs.BoolVar(&f.Check, "check", false, "verify every payload, not only those before timing; slower")
	fs.BoolVar(&f.JSON, "json", false, "print one JSON object a line instead of a table")
	fs.BoolVar(&f.NoPin, "nopin", false, "leave ranks where the kernel puts them, instead of on distinct processors")
	fs.IntVar(&f.GOMAXPROCS, "gomaxprocs", 0, "set GOMAXPROCS in each rank, 0: leave it")
}

// validate reports the faults that the flag package does not find.
func (f *Flags) validate(hasWindow bool) error {
	var errs []error
	if f.Iters < 0 {
		errs = append(errs, fmt.Errorf("-iters is %d: give 1 or more, or 0 for as many as the size calls for", f.Iters))
	}
	if hasWindow && (f.Window < 1 || f.Window > maxWindow) {
		errs = append(errs, fmt.Errorf("-window is %d: give 1 to %d", f.Window, maxWindow))
	}
	if f.GOMAXPROCS < 0 {
		errs = append(errs, fmt.Errorf("-gomaxprocs is %d: give 1 or more, or 0 to leave it", f.GOMAXPROCS))
	}
	return errors.Join(errs...)
}

const (
	maxSize   = 1 << 30
	maxWindow = 1 << 14
)

// Sizes is a list of message sizes as a flag.
type Sizes []int

// String is the list as Set reads it.
func (s *Sizes) String() string {
	var parts []string
	for _, n := range *s {
		parts = append(parts, strconv.Itoa(n))
	}
	return strings.Join(parts, ",")
}

// Set reads a list such as 8,1k,4m.
func (s *Sizes) Set(text string) error {
	var list Sizes
	for part := range strings.SplitSeq(text, ",") {
		digits, shift := part, 0
		if i := strings.IndexByte("km", lastLower(part)); i >= 0 {
			digits, shift = part[:len(part)-1], 10*(i+1)
		}
		n, err := strconv.Atoi(digits)
		if err != nil || n < 0 || n > maxSize>>shift {
			return fmt.Errorf("%q is not a size: give 0 to %d bytes, for example 8,1k,4m", part, maxSize)
		}
		list = append(list, n<<shift)
	}
	*s = list
	return nil
}

func lastLower(s string) byte {
	if s == "" {
		return 0
	}
	return s[len(s)-1] | 0x20
}

package benchkit

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// peakMemory is the largest resident memory of this process so far, in bytes. It needs Linux.
func peakMemory() (int64, error) { return status("VmHWM:") }

// Resident is the resident memory of this process now, in bytes. It needs Linux.
func Resident() (int64, error) { return status("VmRSS:") }

// status returns the number in a line such as "VmRSS:    1234 kB", in bytes.
func status(name string) (int64, error) {
	const file = "/proc/self/status"
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(text), name)
	line, _, _ := strings.Cut(rest, "kB")
	n, err := strconv.ParseInt(strings.TrimSpace(line), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%s: the line %s: %w", file, name, err)
	}
	return n << 10, nil
}

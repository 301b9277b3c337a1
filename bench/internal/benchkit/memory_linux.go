package benchkit

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
)

// Resident is the resident memory of this process in bytes, now and at its peak.
func Resident() (now, peak int64, err error) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, 0, err
	}
	if now, err = kilobytes(status, "VmRSS:"); err == nil {
		peak, err = kilobytes(status, "VmHWM:")
	}
	return now, max(now, peak), err
}

// available is the memory that the kernel could still give to processes of this host.
func available() (int64, error) {
	info, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, err
	}
	return kilobytes(info, "MemAvailable:")
}

// kilobytes returns the number in a line of a /proc file such as "VmRSS:    1234 kB", in bytes.
func kilobytes(file []byte, name string) (int64, error) {
	for line := range bytes.Lines(file) {
		if rest, ok := bytes.CutPrefix(line, []byte(name)); ok {
			n, err := strconv.ParseInt(string(bytes.TrimSpace(bytes.TrimSuffix(bytes.TrimSpace(rest), []byte("kB")))), 10, 64)
			return n << 10, err
		}
	}
	return 0, fmt.Errorf("/proc has no line %s", name)
}

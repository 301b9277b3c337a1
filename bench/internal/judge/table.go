package judge

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/tagmatch/tagmatch/bench/internal/peers"
)

// window is how many messages are under way at once where rates and bandwidths are measured.
const window = 64

// Table has all rows. Those without a mark are for pictures, and measured where they are named.
func Table() []Row {
	return slices.Concat(shm(), tcp(), own(), curves())
}

// Marked reports whether the row has a mark to reach, or an aim.
func (r *Row) Marked() bool { return r.Must != 0 || r.Aim != 0 }

// curves are the sizes between and beside those that have marks.
func curves() []Row {
	var rows []Row
	for _, size := range []int{256, 16 << 10, 256 << 10, 1 << 20} {
		rows = append(rows, latency("shm", size, 0, 0))
	}
	for _, size := range []int{1 << 10, 4 << 10, 16 << 10} {
		rows = append(rows, stream("bw", "shm", size, "", 0, 0), stream("bw", "shm", size, sliding, 0, 0))
	}
	for _, size := range []int{64, 1 << 10, 8 << 10, 64 << 10, 1 << 20} {
		rows = append(rows, latency("tcp", size, 0, 0))
	}
	for _, size := range []int{4 << 10, 16 << 10, 256 << 10, 4 << 20} {
		rows = append(rows, stream("bw", "tcp", size, "", 0, 0), stream("bw", "tcp", size, sliding, 0, 0))
	}
	return rows
}

// sizeName writes a size for the name of a row.
func sizeName(n int) string {
	switch {
	case n >= 1<<20:
		return strconv.Itoa(n>>20) + "m"
	case n >= 1<<10:
		return strconv.Itoa(n>>10) + "k"
	}
	return strconv.Itoa(n)
}

func shm() []Row {
	var rows []Row
	for _, size := range []int{8, 64} {
		rows = append(rows, latency("shm", size, 1.25, 1.0))
	}
	for _, size := range []int{1 << 10, 4 << 10, 8 << 10, 64 << 10} {
		rows = append(rows, latency("shm", size, 0.9, 0.6))
	}
	many := stream("rate", "shm", 8, "", 0.8, 1.2)
	many.Name, many.About = many.Name+"-many", many.About+", ours by calls that post and complete many at once"
	many.ours.args = append(many.ours.args, "-many")
	rows = append(rows, stream("rate", "shm", 8, "", 0.6, 1.0), many, stream("rate", "shm", 8, sliding, 0.6, 1.0))
	for _, pattern := range []string{"", sliding, cold} {
		for _, size := range []int{64 << 10, 256 << 10, 1 << 20, 4 << 20} {
			rows = append(rows, stream("bw", "shm", size, pattern, 1.5, 2))
		}
	}
	return rows
}

func tcp() []Row {
	rows := []Row{latency("tcp", 8, 1.0, 0), stream("rate", "tcp", 8, "", 1.0, 0), stream("rate", "tcp", 8, sliding, 5, 20)}
	for _, pattern := range []string{"", sliding} {
		rows = append(rows, stream("bw", "tcp", 64<<10, pattern, 1.0, 1.3), stream("bw", "tcp", 1<<20, pattern, 1.0, 1.3))
	}
	return rows
}

func latency(device string, size int, must, aim float64) Row {
	return against(fmt.Sprintf("%s-lat-%s", device, sizeName(size)), "half round trip",
		peers.Job{Test: "lat", Device: device, Size: size}, must, aim)
}

// Patterns of streams beside windows that end and are answered, as MPI's program has them: windows
// of buffers that are in no cache, and one window that slides, as UCX's program has it.
const cold, sliding = "cold", "sliding"

func stream(test, device string, size int, pattern string, must, aim float64) Row {
	name := fmt.Sprintf("%s-%s-%s", device, test, sizeName(size))
	about := map[string]string{"rate": "message rate, ", "bw": "bandwidth, "}[test] +
		map[string]string{"": "windows of 64", cold: "windows of 64 buffers that are in no cache", sliding: "a sliding window of 64"}[pattern]
	if pattern != "" {
		name += "-" + pattern
	}
	return against(name, about, peers.Job{Test: test, Device: device, Size: size, Window: window, Sliding: pattern == sliding, Cold: pattern == cold}, must, aim)
}

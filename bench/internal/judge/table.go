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
		rows = append(rows, bandwidth("shm", size, false, 0, 0))
	}
	for _, size := range []int{64, 1 << 10, 8 << 10, 64 << 10, 1 << 20} {
		rows = append(rows, latency("tcp", size, 0, 0))
	}
	for _, size := range []int{4 << 10, 16 << 10, 256 << 10, 4 << 20} {
		rows = append(rows, bandwidth("tcp", size, false, 0, 0))
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
	many := rate("shm", 0.8, 1.2)
	many.Name, many.About = many.Name+"-many", many.About+", ours by calls that post and complete many at once"
	many.ours.args = append(many.ours.args, "-many")
	rows = append(rows, rate("shm", 0.6, 1.0), many)
	for _, cold := range []bool{false, true} {
		for _, size := range []int{64 << 10, 256 << 10, 1 << 20, 4 << 20} {
			rows = append(rows, bandwidth("shm", size, cold, 1.5, 2))
		}
	}
	return rows
}

func tcp() []Row {
	ucx := rate("tcp", 5, 20, "ucx")
	ucx.Name += "-ucx"
	return []Row{
		latency("tcp", 8, 1.0, 0),
		rate("tcp", 1.0, 0),
		ucx,
		bandwidth("tcp", 64<<10, false, 1.0, 1.3),
		bandwidth("tcp", 1<<20, false, 1.0, 1.3),
	}
}

func latency(device string, size int, must, aim float64) Row {
	return against(fmt.Sprintf("%s-lat-%s", device, sizeName(size)), "half round trip",
		peers.Job{Test: "lat", Device: device, Size: size}, must, aim)
}

func rate(device string, must, aim float64, names ...string) Row {
	return against(device+"-rate-8", "message rate, window 64", peers.Job{Test: "rate", Device: device, Size: 8, Window: window}, must, aim, names...)
}

func bandwidth(device string, size int, cold bool, must, aim float64) Row {
	r := against(fmt.Sprintf("%s-bw-%s", device, sizeName(size)), "bandwidth, window 64",
		peers.Job{Test: "bw", Device: device, Size: size, Window: window, Cold: cold}, must, aim)
	if cold {
		r.Name, r.About = r.Name+"-cold", r.About+", buffers that are in no cache"
	}
	return r
}

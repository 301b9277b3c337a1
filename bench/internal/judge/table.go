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
	return slices.Concat(beside(), collectives(), own())
}

// Marked reports whether the row has a mark to reach, or an aim.
func (r *Row) Marked() bool { return r.Must != 0 || r.Aim != 0 }

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

// Patterns of streams.
const (
	windows = ""        // of 64, each ended by Waitall and an answer of 4 bytes: osu_mbw_mr, and the program for MPI
	cold    = "cold"    // the same of buffers that are in no cache
	many    = "many"    // the same, where ours posts and completes each window by a call for all
	sliding = "sliding" // one window of 64, whose oldest message is waited for: ucx_perftest's tag_bw
)

// mpi are the peers of windows that end; the peer of a window that slides is UCX.
var mpi = []string{"openmpi", "mpich"}

// pairs are the peers that send messages from one rank to another.
var pairs = append([]string{"ucx"}, mpi...)

// marks are what the ratio of ours to the best of a row's peers must reach, and the aim beyond.
// Where a row was split, so that each peer runs one pattern with ours, both have the mark of the
// old row.
var marks = []struct {
	test, device, pattern string
	sizes                 []int
	must, aim             float64
}{
	// Of the shortest messages peers are faster.
	{"lat", "shm", "", []int{8, 64}, 1.25, 1},
	{"lat", "shm", "", []int{1 << 10, 4 << 10, 8 << 10, 64 << 10}, 0.9, 0.6},
	{"rate", "shm", windows, []int{8}, 0.6, 1},
	{"rate", "shm", many, []int{8}, 0.8, 1.2},
	{"rate", "shm", sliding, []int{8}, 0.6, 1},
	// Of ours both ends copy, of peers one.
	{"bw", "shm", windows, []int{64 << 10, 256 << 10, 1 << 20, 4 << 20}, 1.5, 2},
	{"bw", "shm", sliding, []int{64 << 10, 256 << 10, 1 << 20, 4 << 20}, 1.5, 2},
	{"bw", "shm", cold, []int{64 << 10, 256 << 10, 1 << 20, 4 << 20}, 1.5, 2},
	{"lat", "tcp", "", []int{8}, 1, 0},
	// Of a window that slides short messages share packets; one that ends costs a round trip.
	{"rate", "tcp", windows, []int{8}, 1, 0},
	{"rate", "tcp", sliding, []int{8}, 5, 20},
	{"bw", "tcp", windows, []int{64 << 10, 1 << 20}, 1, 1.3},
	{"bw", "tcp", sliding, []int{64 << 10, 1 << 20}, 1, 1.3},

	// For pictures.
	{"lat", "shm", "", []int{256, 16 << 10, 256 << 10, 1 << 20}, 0, 0},
	{"bw", "shm", windows, []int{1 << 10, 4 << 10, 16 << 10}, 0, 0},
	{"bw", "shm", sliding, []int{1 << 10, 4 << 10, 16 << 10}, 0, 0},
	{"lat", "tcp", "", []int{64, 1 << 10, 8 << 10, 64 << 10, 1 << 20}, 0, 0},
	{"bw", "tcp", windows, []int{4 << 10, 16 << 10, 256 << 10, 4 << 20}, 0, 0},
	{"bw", "tcp", sliding, []int{4 << 10, 16 << 10, 256 << 10, 4 << 20}, 0, 0},
}

// beside are the rows that ours and peers measure.
func beside() (rows []Row) {
	for _, m := range marks {
		for _, size := range m.sizes {
			name := fmt.Sprintf("%s-%s-%s", m.device, m.test, sizeName(size))
			j, with := peers.Job{Test: m.test, Device: m.device, Size: size}, pairs
			about := "half round trip"
			if m.test != "lat" {
				about = map[string]string{"rate": "message rate, ", "bw": "bandwidth, "}[m.test] +
					map[string]string{windows: "windows of 64", cold: "windows of 64 buffers that are in no cache",
						many: "windows of 64, ours by calls for all of one", sliding: "a sliding window of 64"}[m.pattern]
				j.Window, j.Sliding, j.Cold, with = window, m.pattern == sliding, m.pattern == cold, mpi
			}
			if j.Sliding {
				with = []string{"ucx"}
			}
			if m.pattern != windows {
				name += "-" + m.pattern
			}
			r := against(name, about, j, m.must, m.aim, with)
			if m.pattern == many {
				r.ours.args = append(r.ours.args, "-many")
			}
			rows = append(rows, r)
		}
	}
	return rows
}

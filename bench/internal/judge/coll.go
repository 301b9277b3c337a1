package judge

import (
	"fmt"

	"github.com/tagmatch/tagmatch/bench/internal/peers"
)

// collectives are the rows of package coll.
func collectives() (rows []Row) {
	few := []int{8, 64 << 10, 4 << 20}
	for _, o := range []struct {
		op    string
		sizes []int
	}{
		{"allreduce", []int{8, 4 << 10, 64 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20}},
		{"bcast", few}, {"allgather", few}, {"reducescatter", few}, {"alltoall", few}, {"barrier", []int{0}},
	} {
		for _, ranks := range []int{2, 4, 8} {
			for _, device := range []string{"shm", "tcp"} {
				for _, size := range o.sizes {
					rows = append(rows, collective(peers.Job{Test: "coll", Device: device, Op: o.op, Ranks: ranks, Size: size}))
				}
			}
		}
	}
	return rows
}

func collective(j peers.Job) Row {
	name, about := fmt.Sprintf("coll-%s-%d-%s", j.Op, j.Ranks, j.Device), j.Op+" of float32"
	if j.Size > 0 {
		name += "-" + sizeName(j.Size)
	}
	if j.Ranks > 2 {
		about += fmt.Sprintf(", %d ranks on 2 processors", j.Ranks)
	}
	must, aim := collMarks(j)
	r := against(name, about+"; at most half of gloo's", j, must, aim, append([]string{"gloo"}, mpi...))
	r.also = map[string]float64{"gloo": 0.5}
	return r
}

// collMarks are for the ratio to the best peer.
func collMarks(j peers.Job) (must, aim float64) {
	const ahead, far = 1 / 1.2, 1 / 1.4
	switch {
	case j.Device == "tcp":
		return 1, 0
	case j.Op == "allreduce" && j.Ranks == 2 && j.Size >= 64<<20:
		return far, 0
	case j.Op == "allreduce" && (j.Ranks == 2 || j.Ranks == 4 && j.Size >= 4<<10):
		return ahead, 0
	}
	return 1, ahead
}

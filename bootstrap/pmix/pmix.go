// Package pmix lets programs join jobs whose launcher speaks PMIx: mpirun of Open MPI, srun
// --mpi=pmix, prterun. A program opts in by importing it in its main package:
//
//	import _ "github.com/tagmatch/tagmatch/bootstrap/pmix"
//
// The library libpmix.so.2 is loaded when the environment shows such a launcher, and not before;
// TAGMATCH_LIBPMIX names another file. There is no cgo, also with CGO_ENABLED=0, but the program is
// linked dynamically, which is why package bootstrap does not import this one by itself.
//
// Sources: the PMIx standard 4.1, and the layout of the structures of libpmix 4.2 on 64-bit Linux,
// which has not changed since 4.0.
package pmix

import (
	"context"
	"strconv"
	"strings"

	"github.com/tagmatch/tagmatch/bootstrap/internal/space"
)

func init() { space.Register(space.Driver{Name: "pmix", Find: find}) }

// find recognises a process of a PMIx server. A tool of PMIx may have a namespace without being
// one.
func find(getenv func(string) string) (*space.Place, error) {
	nspace := getenv("PMIX_NAMESPACE")
	rank, err := strconv.Atoi(getenv("PMIX_RANK"))
	if nspace == "" || err != nil || !hasServer(getenv) {
		return nil, nil
	}
	name := "a launcher with PMIx"
	switch {
	case getenv("OMPI_COMM_WORLD_SIZE") != "":
		name = "mpirun (Open MPI, PMIx)"
	case strings.HasPrefix(nspace, "slurm.pmix."):
		name = "srun --mpi=pmix (Slurm)"
	}
	p := &space.Place{Launcher: name, Variables: []string{"PMIX_NAMESPACE"}, // PMIX_RANK tells of a child that it is one

		Identity: space.Identity{Rank: rank, Size: -1, LocalRank: -1, LocalSize: -1, JobID: nspace}}
	p.Open = func(ctx context.Context) (space.Space, error) { return open(ctx, getenv(space.EnvPMIxLibrary)) }
	return p, nil
}

// hasServer reports whether a server's address is there, in any of the flavours of PMIx's versions.
func hasServer(getenv func(string) string) bool {
	for _, v := range []string{"PMIX_SERVER_URI41", "PMIX_SERVER_URI4", "PMIX_SERVER_URI3", "PMIX_SERVER_URI21", "PMIX_SERVER_URI2", "PMIX_SERVER_URI"} {
		if getenv(v) != "" {
			return true
		}
	}
	return false
}

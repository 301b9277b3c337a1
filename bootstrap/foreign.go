package bootstrap

import (
	"fmt"
	"strconv"
	"strings"
)

// foreign is a launcher that has started this process and whose protocol is not implemented here.
type foreign struct {
	name string   // name for error texts
	seen []string // the variables that identify it
	rank string   // the variable with the rank, "" where there is none
	size string   // the variable with the number of ranks, "" where there is none
	n    int      // number of ranks, 0: not known
}

// recognise lists the foreign launchers whose variables are set. Slurm counts only if it is the
// only one: inside an allocation mpiexec and mpirun start their daemons by srun, and the ranks
// inherit the daemon's variables.
func recognise(getenv func(string) string) []foreign {
	var list []foreign
	for _, find := range []func(func(string) string) *foreign{findPMI, findOpenMPI, findPMIx} {
		if f := find(getenv); f != nil {
			list = append(list, *f)
		}
	}
	if len(list) == 0 {
		if f := findSlurm(getenv); f != nil {
			list = append(list, *f)
		}
	}
	return list
}

func newForeign(getenv func(string) string, name, rank, size string, others ...string) *foreign {
	f := &foreign{name: name}
	for _, v := range append([]string{rank, size}, others...) {
		if v != "" && getenv(v) != "" {
			f.seen = append(f.seen, v)
		}
	}
	if len(f.seen) == 0 {
		return nil
	}
	if getenv(rank) != "" {
		f.rank = rank
	}
	if n, err := strconv.Atoi(getenv(size)); err == nil && n > 0 {
		f.size, f.n = size, n
	}
	return f
}

// findPMI finds Hydra (mpiexec of MPICH, Intel MPI and MVAPICH), Slurm's pmi2 and others with PMI-1
// or PMI-2. In Hydra's port model the size is not in the environment.
func findPMI(getenv func(string) string) *foreign {
	name := "mpiexec (Hydra, of MPICH or Intel MPI)"
	if getenv("PMI_JOBID") != "" && getenv("SLURM_STEP_ID") != "" {
		name = "srun --mpi=pmi2 (Slurm)"
	}
	return newForeign(getenv, name, "PMI_RANK", "PMI_SIZE", "PMI_FD", "PMI_PORT")
}

func findOpenMPI(getenv func(string) string) *foreign {
	return newForeign(getenv, "mpirun (Open MPI)", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE")
}

// findPMIx finds PMIx servers other than Open MPI's. PMIx itself does not put the size into the
// environment, Slurm does.
func findPMIx(getenv func(string) string) *foreign {
	switch {
	case getenv("OMPI_COMM_WORLD_SIZE") != "":
		return nil // the same launcher
	case strings.HasPrefix(getenv("PMIX_NAMESPACE"), "slurm.pmix."):
		return newForeign(getenv, "srun --mpi=pmix (Slurm)", "PMIX_RANK", "SLURM_STEP_NUM_TASKS", "PMIX_NAMESPACE")
	case getenv("PMIX_NAMESPACE") == "":
		return nil // a child of some PMIx tool may have inherited it
	}
	return newForeign(getenv, "a launcher that speaks PMIx", "PMIX_RANK", "", "PMIX_NAMESPACE")
}

// lastStep is the largest number of an srun step: those above are batch scripts and interactive
// shells.
const lastStep = 0xfffffff0

// findSlurm finds srun without PMI. SLURM_PROCID and SLURM_NTASKS are also set in batch scripts and
// shells of salloc, SLURM_STEP_ID only by srun.
func findSlurm(getenv func(string) string) *foreign {
	step, err := strconv.ParseUint(getenv("SLURM_STEP_ID"), 10, 64)
	if err != nil || step > lastStep || getenv("SLURM_PROCID") == "" {
		return nil
	}
	return newForeign(getenv, "srun (Slurm)", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_STEP_ID")
}

// String is the name with the variables that identified the launcher.
func (f *foreign) String() string { return f.name + " by " + strings.Join(f.seen, ", ") }

// refuse is the error of a process that f started as one of several, and that would be a job of one
// rank.
func (f *foreign) refuse(getenv func(string) string) error {
	who, n, from := "one of several ranks", "N", ""
	switch {
	case f.rank != "" && f.n > 0:
		who, n = fmt.Sprintf("rank %s of %d", getenv(f.rank), f.n), strconv.Itoa(f.n)
		from = fmt.Sprintf(" (RANK=$%s WORLD_SIZE=$%s in a shell between the two)", f.rank, f.size)
	case f.n > 0:
		who, n = fmt.Sprintf("one of %d ranks", f.n), strconv.Itoa(f.n)
	}
	return configErrorf("this process was started as %s by %s (%s in its environment), whose protocol this release does not speak: "+
		"each process would be a job of its own. Start the program with `tagmatch run -n %s` or torchrun, or set RANK, WORLD_SIZE, "+
		"MASTER_ADDR and MASTER_PORT for each process%s; %s=singleton insists on a job of one rank",
		who, f.name, strings.Join(f.seen, ", "), n, from, EnvLauncher)
}

// refuseForeign is the error of a plain start under a launcher that started several processes.
func refuseForeign(opt *Options) error {
	for _, f := range recognise(opt.Getenv) {
		if f.n != 1 {
			return f.refuse(opt.Getenv)
		}
	}
	return nil
}

// ignored names the foreign launchers whose variables are set.
func ignored(opt *Options) []string {
	var names []string
	for _, f := range recognise(opt.Getenv) {
		names = append(names, f.String())
	}
	return names
}

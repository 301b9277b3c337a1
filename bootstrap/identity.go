package bootstrap

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/tagmatch/tagmatch/bootstrap/internal/hostlist"
	"github.com/tagmatch/tagmatch/bootstrap/internal/rendezvous"
	"github.com/tagmatch/tagmatch/bootstrap/internal/space"
	"github.com/tagmatch/tagmatch/internal/ports"
)

// Launchers that tell each process its rank, but have no key-value space by which rank 0 could tell
// where it is. Where all ranks are on one host a file in a directory of this user's own does it;
// otherwise the user gives the address of rank 0, or a directory that all hosts share.

// findOpenMPI finds mpirun of Open MPI by its own variables, which need no PMIx.
func findOpenMPI(opt *Options, forced bool) (plan, error) {
	const rank, size = "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"
	if opt.Getenv(rank) == "" || opt.Getenv(size) == "" {
		return nil, nil
	}
	if !forced && opt.Getenv("PMIX_RANK") != "" && opt.Getenv("PMIX_NAMESPACE") == "" {
		return nil, refuseForeign(opt) // a child of a rank
	}
	j, err := openMPIJob(opt.Getenv)
	if err != nil {
		return nil, err
	}
	return j.meet(opt, "mpirun (Open MPI)", "give it by `mpirun -x MASTER_ADDR=host -x MASTER_PORT=port`, name a directory that all hosts share by "+
		"`mpirun -x TAGMATCH_STORE=dir`, or import _ \"github.com/tagmatch/tagmatch/bootstrap/pmix\" in the program, with libpmix.so.2 installed")
}

func openMPIJob(getenv func(string) string) (*jobVars, error) {
	j := &jobVars{Job: rendezvous.Job{Launcher: "openmpi"}}
	err := j.read(getenv, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE")
	for _, v := range []string{"PMIX_NAMESPACE", "OMPI_MCA_orte_precondition_transports", "OMPI_MCA_ess_base_jobid"} {
		if id := getenv(v); id != "" {
			j.Epoch = epochText("openmpi-" + id)
			break
		}
	}
	return j, err
}

// lastStep is the largest number of an srun step: those above are batch scripts and interactive
// shells.
const lastStep = 0xfffffff0

// findSlurm finds srun without PMI. SLURM_PROCID and SLURM_NTASKS are also set in batch scripts and
// shells of salloc, SLURM_STEP_ID only by srun.
func findSlurm(opt *Options, forced bool) (plan, error) {
	j, err := slurmJob(opt.Getenv)
	if j == nil || err != nil {
		return nil, err
	}
	// A nearer launcher, which used srun to start its daemons, or whose rank started this process.
	if !forced && !strings.HasPrefix(opt.Getenv("PMIX_NAMESPACE"), "slurm.pmix.") {
		if err := refuseForeign(opt); err != nil {
			return nil, err
		}
	}
	if j.local() || opt.Getenv(EnvMasterAddr) != "" {
		return j.meet(opt, "srun (Slurm)", "")
	}
	// The first host of the step has rank 0, in block and in cyclic distribution.
	hosts, err := hostlist.Expand(opt.Getenv("SLURM_STEP_NODELIST"))
	if err != nil || len(hosts) == 0 {
		return nil, configErrorf("SLURM_STEP_NODELIST is %q: %v: set MASTER_ADDR and MASTER_PORT to the address of rank 0, or start with srun --mpi=pmi2",
			opt.Getenv("SLURM_STEP_NODELIST"), err)
	}
	if dist := opt.Getenv("SLURM_DISTRIBUTION"); strings.HasPrefix(dist, "arbitrary") {
		return nil, configErrorf("with SLURM_DISTRIBUTION %q nothing tells on which host rank 0 is: set MASTER_ADDR and MASTER_PORT, or start with srun --mpi=pmi2", dist)
	}
	r, err := opt.ports()
	if err != nil {
		return nil, err
	}
	j.host, j.port = hosts[0], slurmPort(opt.Getenv, r)
	return j.plan(opt, "SLURM_STEP_NODELIST and SLURM_STEP_RESV_PORTS or the job's number")
}

// slurmJob returns nil where no srun has started this process.
func slurmJob(getenv func(string) string) (*jobVars, error) {
	step, err := strconv.ParseUint(getenv("SLURM_STEP_ID"), 10, 64)
	if err != nil || step > lastStep || getenv("SLURM_PROCID") == "" {
		return nil, nil
	}
	epoch := epochText(fmt.Sprintf("slurm-%s.%d.%s", getenv("SLURM_JOB_ID"), step, getenv("SLURM_RESTART_COUNT")))
	j := &jobVars{Job: rendezvous.Job{Launcher: "slurm", Epoch: epoch}}
	if err := j.read(getenv, "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", ""); err != nil {
		return nil, err
	}
	tasks, err := hostlist.Tasks(getenv("SLURM_STEP_TASKS_PER_NODE"))
	if node, errNode := strconv.Atoi(getenv("SLURM_NODEID")); err == nil && errNode == nil && node >= 0 && node < len(tasks) {
		j.LocalSize = tasks[node]
	}
	return j, nil
}

// slurmPort is a port that all hosts of the step know: one that Slurm has reserved for it, else one
// of the range or, where there is none, above the ephemeral range of Linux. Two jobs may get the
// same one: their runs differ in the rendezvous' greeting.
func slurmPort(getenv func(string) string, r ports.Range) string {
	first, _, _ := strings.Cut(getenv("SLURM_STEP_RESV_PORTS"), "-")
	first, _, _ = strings.Cut(first, ",")
	if n, err := strconv.Atoi(first); err == nil && n > 0 && n < 1<<16 {
		return first
	}
	job, _ := strconv.ParseUint(getenv("SLURM_JOB_ID"), 10, 32)
	step, _ := strconv.ParseUint(getenv("SLURM_STEP_ID"), 10, 32)
	n := job*31 + step
	return strconv.Itoa(r.Pick(n, 61440+int(n%4096)))
}

// findKubernetes finds an Indexed Job. Kubernetes does not tell how many pods it has.
func findKubernetes(opt *Options, forced bool) (plan, error) {
	const index = "JOB_COMPLETION_INDEX"
	if opt.Getenv(index) == "" {
		return nil, nil
	}
	for _, v := range []string{EnvWorldSize, EnvMasterAddr} {
		if opt.Getenv(v) == "" {
			return nil, configErrorf("%s is set, as in a pod of a Kubernetes Indexed Job, but %s is not: the manifest must give the pods %s "+
				"(the Job's completions) and %s (<job>-0.<headless service>); %s=singleton insists on a job of one rank", index, v, EnvWorldSize, EnvMasterAddr, EnvBootstrap)
		}
	}
	j := &jobVars{Job: rendezvous.Job{Launcher: "kubernetes"}}
	if err := j.read(opt.Getenv, index, EnvWorldSize, "", ""); err != nil {
		return nil, err
	}
	r, err := opt.ports()
	if err != nil {
		return nil, err
	}
	j.host, j.port = strings.Trim(opt.Getenv(EnvMasterAddr), "[]"), strconv.Itoa(r.Pick(0, defaultPort))
	if opt.Getenv(EnvMasterPort) != "" {
		if err := j.parseMaster(opt.Getenv); err != nil {
			return nil, err
		}
	}
	return j.plan(opt, masterVars)
}

// defaultPort is that of torchrun.
const defaultPort = 29500

// findFile finds a job whose user names a directory that all ranks share.
func findFile(opt *Options, forced bool) (plan, error) {
	dir := opt.Getenv(EnvStore)
	if dir == "" {
		return nil, nil
	}
	j, err := anyJob(opt.Getenv)
	switch {
	case err != nil:
		return nil, err
	case j == nil:
		return nil, configErrorf("%s is %q, but nothing tells this process its rank: set RANK and WORLD_SIZE, or start it by srun or mpirun", EnvStore, dir)
	}
	j.Launcher = "file"
	name := j.Epoch
	if id := opt.Getenv(EnvJobID); id != "" {
		name = id
	}
	if name == "" {
		return nil, configErrorf("%s is %q, but nothing tells this run of the job from others: set %s, the same for all ranks and another for each run", EnvStore, dir, EnvJobID)
	}
	return j.file(dir, name).plan(opt)
}

// anyJob returns who this process is, by whatever tells it; nil: nothing does.
func anyJob(getenv func(string) string) (*jobVars, error) {
	switch {
	case getenv(EnvRank) != "":
		j, err := parseRank(getenv)
		return &j, err
	case getenv("OMPI_COMM_WORLD_RANK") != "":
		return openMPIJob(getenv)
	}
	return slurmJob(getenv)
}

// local reports whether all ranks are known to be on this host.
func (j *jobVars) local() bool { return j.LocalSize == j.Size }

// meet returns the plan of a job whose launcher does not tell where rank 0 is. hint is what to do
// where nothing else does.
func (j *jobVars) meet(opt *Options, name, hint string) (plan, error) {
	switch {
	case opt.Getenv(EnvMasterAddr) != "":
		if err := j.parseMaster(opt.Getenv); err != nil {
			return nil, err
		}
		return j.plan(opt, masterVars)
	case j.local() && j.Epoch != "":
		dir := filepath.Join(os.TempDir(), fmt.Sprintf("tagmatch-%d", os.Getuid()))
		return j.file(dir, j.Epoch).plan(opt)
	}
	return nil, configErrorf("%s has started rank %d of %d, and does not tell where rank 0 is: %s", name, j.Rank, j.Size, hint)
}

// identity is j as a key-value space tells it.
func (j *jobVars) identity() space.Identity {
	return space.Identity{Rank: j.Rank, Size: j.Size, LocalRank: j.LocalRank, LocalSize: j.LocalSize, JobID: j.Epoch}
}

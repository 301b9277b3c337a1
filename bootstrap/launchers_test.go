package bootstrap

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestLaunchers: environments of real launchers: Hydra 4.0.2, Open MPI 4.1.4, Slurm 22.05, torchrun
// 1.13 and 2, Kubernetes 1.28.
func TestLaunchers(t *testing.T) {
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	require.NoError(t, err)
	defer func() { _, _ = syscall.Close(fds[0]), syscall.Close(fds[1]) }()
	hydra := vars{"PMI_FD": strconv.Itoa(fds[0]), "PMI_RANK": "1", "PMI_SIZE": "4", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "4"}
	port := vars{"PMI_PORT": "vm:43033", "PMI_ID": "1", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "4"}
	openMPI := vars{"OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_RANK": "3", "OMPI_COMM_WORLD_LOCAL_SIZE": "4",
		"PMIX_NAMESPACE": "1546518529", "PMIX_RANK": "3"}
	batch := vars{"SLURM_JOB_ID": "13", "SLURM_PROCID": "0", "SLURM_NTASKS": "4", "SLURM_NNODES": "2"}
	step := batch.with("SLURM_STEP_ID", "0", "SLURM_PROCID", "2", "SLURM_STEP_NUM_TASKS", "3", "SLURM_LOCALID", "2", "SLURM_NODEID", "0",
		"SLURM_STEP_NODELIST", "n1", "SLURM_STEP_TASKS_PER_NODE", "3")
	nodes := step.with("SLURM_STEP_NODELIST", "n[07-8]", "SLURM_STEP_TASKS_PER_NODE", "2,1", "SLURM_LOCALID", "0", "SLURM_NODEID", "1", EnvSecret, hexSecret)
	pmi2 := step.with("PMI_FD", strconv.Itoa(fds[0]), "PMI_RANK", "2", "PMI_SIZE", "3", "PMI_JOBID", "13.0")
	torch := envOf(1, 2, "29511").with("TORCHELASTIC_RUN_ID", "x", "TORCHELASTIC_RESTART_COUNT", "0", "TORCHELASTIC_USE_AGENT_STORE", "False",
		"LOCAL_RANK", "1", "LOCAL_WORLD_SIZE", "2")
	pod := vars{"JOB_COMPLETION_INDEX": "2", "WORLD_SIZE": "3", "MASTER_ADDR": "job-0.svc"}
	// The environment of ranks whose daemon srun has started.
	daemon := batch.with("SLURM_STEP_ID", "0", "SLURM_STEP_NUM_TASKS", "2")
	private := "directory " + filepath.Join(os.TempDir(), fmt.Sprintf("tagmatch-%d", os.Getuid()))
	tests := []struct {
		name       string
		env        vars
		launcher   string
		rank, size int
		from       string // how the others get rank 0's address
	}{
		{"Hydra", hydra, "pmi", 1, 4, "mpiexec (PMI-1)"},
		{"Hydra in an allocation", daemonOf(hydra, daemon), "pmi", 1, 4, "mpiexec (PMI-1)"},
		{"Hydra from a shell with RANK", hydra.with("RANK", "0", "WORLD_SIZE", "2", "MASTER_ADDR", "h", "MASTER_PORT", "1"), "pmi", 1, 4, "mpiexec (PMI-1)"},
		{"tagmatch run in a rank of Hydra", hydra.with("RANK", "0", "WORLD_SIZE", "2", "MASTER_ADDR", "h", "MASTER_PORT", "1", EnvBootstrap, "env"), "env", 0, 2, masterVars},
		{"Hydra's port model", port, "pmi", -1, -1, "mpiexec (PMI-1)"},
		{"Open MPI", openMPI, "openmpi", 3, 4, private},
		{"Open MPI in an allocation", daemonOf(openMPI, daemon), "openmpi", 3, 4, private},
		{"Open MPI, two hosts, told", openMPI.with("OMPI_COMM_WORLD_LOCAL_RANK", "1", "OMPI_COMM_WORLD_LOCAL_SIZE", "2", "MASTER_ADDR", "h", "MASTER_PORT", "5"), "openmpi", 3, 4, masterVars},
		{"Open MPI, two hosts, a directory", openMPI.with("OMPI_COMM_WORLD_LOCAL_RANK", "1", "OMPI_COMM_WORLD_LOCAL_SIZE", "2", EnvStore, "/shared"), "file", 3, 4, "directory /shared"},
		{"srun", step, "slurm", 2, 3, private},
		{"srun, two nodes", nodes, "slurm", 2, 3, "SLURM_STEP_NODELIST and SLURM_STEP_RESV_PORTS or the job's number"},
		{"srun, two nodes, told", nodes.with("MASTER_ADDR", "h", "MASTER_PORT", "5"), "slurm", 2, 3, masterVars},
		{"srun --mpi=pmi2", pmi2, "pmi", 2, 3, "srun (Slurm, PMI-2)"},
		{"srun --mpi=pmix without the client", step.with("PMIX_NAMESPACE", "slurm.pmix.13.0", "PMIX_RANK", "2"), "slurm", 2, 3, private},
		{"batch script", batch, "singleton", 0, 1, ""},
		{"shell of salloc, an interactive step", batch.with("SLURM_STEP_ID", "4294967290", "SLURM_STEP_NUM_TASKS", "4"), "singleton", 0, 1, ""},
		{"torchrun", torch, "env", 1, 2, masterVars},
		{"torchrun with its agent's store", torch.with("TORCHELASTIC_USE_AGENT_STORE", "True"), "torchrun", 1, 2, "torchrun (MASTER_ADDR:MASTER_PORT=127.0.0.1:29511)"},
		{"Kubernetes", pod, "kubernetes", 2, 3, masterVars},
		{"Kubernetes with RANK too", pod.with("RANK", "1", "MASTER_PORT", "5"), "env", 1, 3, masterVars},
		{"a directory", vars{"RANK": "1", "WORLD_SIZE": "2", EnvStore: "/shared", EnvJobID: "a"}, "file", 1, 2, "directory /shared"},
		{"a rank's child, which PMI_FD was taken from", hydra.with("PMI_FD", "999", "PMI_SIZE", "1"), "singleton", 0, 1, ""},
		{"PMIx without a namespace", vars{"PMIX_RANK": ""}, "singleton", 0, 1, ""},
		{"insisted", hydra.with(EnvBootstrap, "singleton"), "singleton", 0, 1, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f, err := Inspect(options(tt.env))
			require.NoError(t, err)
			require.Equal(t, tt.launcher, f.Launcher)
			require.Equal(t, []int{tt.rank, tt.size}, []int{f.Rank, f.Size})
			require.Equal(t, tt.from, f.RendezvousOrigin)
		})
	}
	f, err := Inspect(options(nodes))
	require.NoError(t, err)
	require.Equal(t, "n07:61843", f.Rendezvous, "a port from job 13's number")
	require.Equal(t, []int{0, 1}, []int{f.LocalRank, f.LocalSize})
	f, err = Inspect(options(nodes.with("SLURM_STEP_RESV_PORTS", "27037-27039")))
	require.NoError(t, err)
	require.Equal(t, "n07:27037", f.Rendezvous)
	f, err = Inspect(options(pod))
	require.NoError(t, err)
	require.Equal(t, "job-0.svc:29500", f.Rendezvous)
}

// TestLaunchersRefused: what is recognised and cannot be spoken to is an error, not a job of one.
func TestLaunchersRefused(t *testing.T) {
	openMPI := vars{"OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_SIZE": "2", "PMIX_NAMESPACE": "1", "PMIX_RANK": "3"}
	step := vars{"SLURM_JOB_ID": "13", "SLURM_STEP_ID": "0", "SLURM_PROCID": "2", "SLURM_STEP_NUM_TASKS": "3", "SLURM_NODEID": "1",
		"SLURM_STEP_NODELIST": "n[1-2]", "SLURM_STEP_TASKS_PER_NODE": "2,1", EnvSecret: hexSecret}
	for _, tt := range []struct {
		name string
		env  vars
		want string
	}{
		{"a child of a rank", vars{"PMI_RANK": "1", "PMI_SIZE": "4", "PMI_FD": "999"}, "as rank 1 of 4 by mpiexec (MPICH's Hydra or another with PMI) (PMI_RANK in its environment), but its PMI_FD is no open socket"},
		{"a child of Hydra's rank inside salloc", step.with("PMI_RANK", "2", "PMI_SIZE", "4", "PMI_FD", "999"), "as rank 2 of 4 by mpiexec"},
		{"PMIx inside salloc", step.with("PMIX_NAMESPACE", "prterun-1", "PMIX_RANK", "2"), "has no PMIx client"},
		{"a child of mpirun's rank", openMPI.with("PMIX_NAMESPACE", ""), "the rank that started this process keeps for itself"},
		{"PMIx of nobody known", vars{"PMIX_NAMESPACE": "prte-1@1", "PMIX_RANK": "0"}, `has no PMIx client: import _ "github.com/tagmatch/tagmatch/bootstrap/pmix"`},
		{"Open MPI on two hosts", openMPI, "mpirun (Open MPI) has started rank 3 of 4, and does not tell where rank 0 is: give it by `mpirun -x MASTER_ADDR=host"},
		{"Open MPI's nonsense", openMPI.with("OMPI_COMM_WORLD_RANK", "4"), "OMPI_COMM_WORLD_RANK is 4 but OMPI_COMM_WORLD_SIZE is 4: OMPI_COMM_WORLD_RANK must be from 0 to 3"},
		{"srun with a host file", step.with("SLURM_DISTRIBUTION", "arbitrary"), "nothing tells on which host rank 0 is"},
		{"srun with a bad list", step.with("SLURM_STEP_NODELIST", "n[1-"), `SLURM_STEP_NODELIST is "n[1-"`},
		{"Kubernetes without a size", vars{"JOB_COMPLETION_INDEX": "1"}, "but WORLD_SIZE is not: the manifest must give the pods"},
		{"Kubernetes without an address", vars{"JOB_COMPLETION_INDEX": "1", "WORLD_SIZE": "3"}, "but MASTER_ADDR is not"},
		{"a directory for nobody", vars{EnvStore: "/shared"}, "nothing tells this process its rank"},
		{"a directory for any run", vars{EnvStore: "/shared", "RANK": "0", "WORLD_SIZE": "2"}, "nothing tells this run of the job from others: set TAGMATCH_JOB_ID"},
		{"asked for, not there", vars{EnvBootstrap: "pmi"}, `launcher "pmi" was asked for (TAGMATCH_BOOTSTRAP), but nothing in the environment is of it`},
		{"torchrun, secret required", envOf(0, 2, "1").with("TORCHELASTIC_USE_AGENT_STORE", "True", EnvRequireSecret, "1"), "no job secret"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Inspect(options(tt.env))
			require.ErrorIs(t, err, ErrConfig)
			require.ErrorContains(t, err, tt.want)
		})
	}
}

// daemonOf is the environment of a rank whose launcher runs with the variables of daemon.
func daemonOf(rank, daemon vars) vars {
	for k, v := range rank {
		daemon = daemon.with(k, v)
	}
	return daemon
}

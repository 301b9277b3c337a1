package bootstrap

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestForeignLaunchers: environments of real launchers: Hydra 4.0.2, Open MPI 4.1.4 and Slurm
// 22.05.
func TestForeignLaunchers(t *testing.T) {
	hydra := vars{"PMI_FD": "6", "PMI_RANK": "1", "PMI_SIZE": "4", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "4", "HYDI_CONTROL_FD": "7"}
	port := vars{"PMI_PORT": "vm:43033", "PMI_ID": "1", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "4"}
	openMPI := vars{"OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "4", "PMIX_NAMESPACE": "1546518529", "PMIX_RANK": "3"}
	batch := vars{"SLURM_JOB_ID": "13", "SLURM_PROCID": "0", "SLURM_NTASKS": "4", "SLURM_NNODES": "2"}
	step := batch.with("SLURM_STEP_ID", "0", "SLURM_PROCID", "2", "SLURM_STEP_NUM_TASKS", "3", "SLURM_LOCALID", "0")
	pmi2 := step.with("PMI_FD", "5", "PMI_RANK", "2", "PMI_SIZE", "3", "PMI_JOBID", "13.0")
	pmix := step.with("PMIX_NAMESPACE", "slurm.pmix.13.0", "PMIX_RANK", "2")
	// The environment of ranks whose daemon srun has started.
	daemon := batch.with("SLURM_STEP_ID", "0", "SLURM_STEP_NUM_TASKS", "2")
	tests := []struct {
		name string
		env  vars
		want string // part of the error; "": a job of one rank
	}{
		{"Hydra", hydra, "as rank 1 of 4 by mpiexec (Hydra, of MPICH or Intel MPI) (PMI_RANK, PMI_SIZE, PMI_FD in its environment)"},
		{"Hydra, what to do", hydra, "Start the program with `tagmatch run -n 4` or torchrun, or set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT for " +
			"each process (RANK=$PMI_RANK WORLD_SIZE=$PMI_SIZE in a shell between the two); TAGMATCH_LAUNCHER=singleton insists"},
		{"Hydra in an allocation", hydra.with("SLURM_STEP_ID", "0", "SLURM_PROCID", "0", "SLURM_STEP_NUM_TASKS", "1"), "rank 1 of 4 by mpiexec"},
		{"Hydra, one rank", hydra.with("PMI_RANK", "0", "PMI_SIZE", "1"), ""},
		{"Hydra, one rank, in an allocation", hydra.with("PMI_SIZE", "1", "SLURM_STEP_ID", "0", "SLURM_PROCID", "0", "SLURM_STEP_NUM_TASKS", "2"), ""},
		{"Hydra's port model", port, "as one of several ranks by mpiexec"},
		{"nonsense for a size", hydra.with("PMI_SIZE", "many"), "as one of several ranks by mpiexec"},
		{"Open MPI", openMPI, "as rank 3 of 4 by mpirun (Open MPI)"},
		{"Open MPI in an allocation", daemonOf(openMPI, daemon), "rank 3 of 4 by mpirun"},
		{"Open MPI, one rank", openMPI.with("OMPI_COMM_WORLD_RANK", "0", "OMPI_COMM_WORLD_SIZE", "1"), ""},
		{"Open MPI in a step of one", daemonOf(openMPI, pmi2.with("PMI_SIZE", "1")), "rank 3 of 4 by mpirun"},
		{"PMIx of nobody known", vars{"PMIX_NAMESPACE": "prte-1@1", "PMIX_RANK": "0"}, "one of several ranks by a launcher that speaks PMIx"},
		{"PMIx without a namespace", vars{"PMIX_RANK": "0"}, ""},
		{"srun", step, "as rank 2 of 3 by srun (Slurm) (SLURM_PROCID, SLURM_STEP_NUM_TASKS, SLURM_STEP_ID"},
		{"srun, one task", step.with("SLURM_PROCID", "0", "SLURM_STEP_NUM_TASKS", "1"), ""},
		{"srun --mpi=pmi2", pmi2, "as rank 2 of 3 by srun --mpi=pmi2 (Slurm)"},
		{"srun --mpi=pmix", pmix, "as rank 2 of 3 by srun --mpi=pmix (Slurm)"},
		{"srun --mpi=pmix, one task", pmix.with("SLURM_STEP_NUM_TASKS", "1"), ""},
		{"batch script", batch, ""},
		{"shell of salloc, an interactive step", batch.with("SLURM_STEP_ID", "4294967290", "SLURM_STEP_NUM_TASKS", "4"), ""},
		{"our own variables win", hydra.with("RANK", "0", "WORLD_SIZE", "2", "MASTER_ADDR", "127.0.0.1", "MASTER_PORT", "29500"), ""},
		{"insisted", hydra.with(EnvLauncher, "singleton"), ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f, err := Inspect(options(tt.env))
			if tt.want == "" {
				require.NoError(t, err)
				require.NotEqual(t, 3, f.Size)
				require.NotEqual(t, 4, f.Size)
				return
			}
			require.ErrorIs(t, err, ErrConfig)
			require.ErrorContains(t, err, tt.want)
			require.NotEmpty(t, f.Ignored)
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

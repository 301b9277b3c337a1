// Package launchertest starts programs by the launchers that people have: mpiexec of MPICH, mpirun
// of Open MPI, srun of a real Slurm, torchrun, and ranks by hand in network namespaces. Its tests
// have the build tag launchers, as they need these programs (Debian's packages mpich, openmpi-bin,
// libpmix2, slurm-wlm, munge, python3-torch, iproute2) and root; they fail where one is missing.
package launchertest

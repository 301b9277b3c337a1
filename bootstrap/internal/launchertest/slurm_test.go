//go:build linux && launchers

package launchertest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/testlevel"
)

// slurm is a cluster of three nodes on this machine.
type slurm struct {
	dir     string
	daemons []*exec.Cmd
}

var cluster *slurm

// slurmConf is the configuration: three nodes, authenticated by munge. TmpFS keeps their daemons'
// directories apart.
const slurmConf = `ClusterName=t
SlurmctldHost=localhost(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket=%[1]s/munge/socket
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
SelectType=select/linear
SchedulerType=sched/builtin
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
StateSaveLocation=%[1]s/state
SlurmdSpoolDir=%[1]s/spool-%%n
SlurmctldPidFile=%[1]s/slurmctld.pid
SlurmdPidFile=%[1]s/slurmd-%%n.pid
SlurmctldPort=26817
SlurmctldLogFile=%[1]s/log/ctld.log
SlurmdLogFile=%[1]s/log/d-%%n.log
TmpFS=%[1]s/tmp-%%n
ReturnToService=2
TreeWidth=2
MpiParams=ports=27000-27099
NodeName=n[1-3] NodeAddr=127.0.0.1 NodeHostname=%[2]s Port=26821-26823 CPUs=2 State=UNKNOWN
PartitionName=p Nodes=n[1-3] Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:8
`

var starting sync.Mutex

// startSlurm starts the cluster, once.
func startSlurm(t *testing.T) {
	t.Helper()
	starting.Lock()
	defer starting.Unlock()
	if cluster != nil {
		return
	}
	dir, err := os.MkdirTemp("", "slurm")
	require.NoError(t, err)
	cluster = &slurm{dir: dir}
	for _, d := range []string{"state", "log", "munge", "tmp-n1", "tmp-n2", "tmp-n3", "spool-n1", "spool-n2", "spool-n3"} {
		require.NoError(t, os.Mkdir(filepath.Join(dir, d), 0o755))
	}
	host, err := os.Hostname()
	require.NoError(t, err)
	host, _, _ = strings.Cut(host, ".")
	conf := filepath.Join(dir, "slurm.conf")
	require.NoError(t, os.WriteFile(conf, fmt.Appendf(nil, slurmConf, dir, host), 0o644))
	key := make([]byte, 128)
	copy(key, "a key of this test alone")
	require.NoError(t, os.WriteFile(dir+"/munge/key", key, 0o600))
	require.NoError(t, os.Setenv("SLURM_CONF", conf))
	m := dir + "/munge/"
	cluster.start(t, "munged", "-F", "--force", "--key-file="+m+"key", "--socket="+m+"socket", "--pid-file="+m+"pid", "--log-file="+m+"log", "--seed-file="+m+"seed")
	cluster.start(t, "slurmctld", "-D")
	for n := 1; n <= 3; n++ {
		cluster.start(t, "slurmd", "-D", "-N", "n"+strconv.Itoa(n))
	}
	require.Eventually(t, func() bool {
		out, _ := exec.Command("sinfo", "-h", "-t", "idle", "-o", "%D").Output()
		return strings.TrimSpace(string(out)) == "3"
	}, testlevel.Patience(30*time.Second), 50*time.Millisecond, "the nodes are not idle: see %s/log", dir)
}

func (s *slurm) start(t *testing.T, command ...string) {
	t.Helper()
	c := exec.Command(command[0], command[1:]...)
	require.NoError(t, c.Start())
	s.daemons = append(s.daemons, c)
}

func stopSlurm() {
	if cluster == nil {
		return
	}
	for i := len(cluster.daemons) - 1; i >= 0; i-- {
		_ = cluster.daemons[i].Process.Kill()
		_ = cluster.daemons[i].Wait()
	}
	_ = os.RemoveAll(cluster.dir)
}

var secretEnv = []string{"TAGMATCH_SECRET=" + strings.Repeat("5a", 32)}

// TestSlurm starts steps on one node and on three. Without PMI several nodes need a secret, and the
// address of rank 0: the nodes' names are not in the DNS here.
func TestSlurm(t *testing.T) {
	t.Parallel()
	startSlurm(t)
	for _, l := range []row{
		{name: "pmi2, one node", command: line("srun -K -N1 -O --mpi=pmi2")},
		{name: "pmi2, three nodes", command: line("srun -K -N2 -O --mpi=pmi2")},
		{name: "pmix, one node", command: line("srun -K -N1 -O --mpi=pmix")},
		{name: "none, one node", command: line("srun -K -N1 -O --mpi=none")},
	} {
		t.Run(l.name, func(t *testing.T) { requireRow(t, l) })
	}
	t.Run("pmix, three nodes", func(t *testing.T) {
		requireWell(t, play(t, "exchange", nil, strings.Fields("srun -K -N3 -n6 -O --mpi=pmix")...), 6)
	})
	t.Run("none, three nodes", func(t *testing.T) {
		env := append([]string{"MASTER_ADDR=127.0.0.1", "MASTER_PORT=27099"}, secretEnv...)
		requireWell(t, play(t, "exchange", env, strings.Fields("srun -K -N3 -n6 -O --mpi=none")...), 6)
	})
	t.Run("none, three nodes without a secret", func(t *testing.T) {
		r := play(t, "exchange", nil, strings.Fields("srun -K -N3 -n6 -O --mpi=none")...)
		require.NotZero(t, r.Code)
		require.Contains(t, r.Out, "no job secret, but only 2 of 6 ranks are on this host")
	})
}

// TestNested: launchers inside an allocation, whose ranks have their daemons' Slurm variables, and
// a program in the allocation's shell, which is a job of one rank.
func TestNested(t *testing.T) {
	t.Parallel()
	startSlurm(t)
	salloc := strings.Fields("salloc -Q -N2 -n4 -O")
	for name, command := range map[string]string{
		"mpiexec": "mpiexec.hydra -launcher fork -n 4", "mpirun": OpenMPI + " --mca plm rsh --mca ras ^slurm -n 4",
	} {
		t.Run(name, func(t *testing.T) {
			requireWell(t, play(t, "exchange", nil, append(salloc, strings.Fields(command)...)...), 4)
		})
	}
	t.Run("shell", func(t *testing.T) {
		requireWell(t, play(t, "exchange", nil, salloc...), 1)
	})
}

// TestBatch submits the scripts of deploy/slurm. The nodes' names are not in the DNS here, so the
// address of rank 0 is given.
func TestBatch(t *testing.T) {
	t.Parallel()
	startSlurm(t)
	self, err := os.Executable()
	require.NoError(t, err)
	scripts, err := filepath.Glob("../../../deploy/slurm/*.sbatch")
	require.NoError(t, err)
	require.Len(t, scripts, 2)
	for _, script := range scripts {
		t.Run(filepath.Base(script), func(t *testing.T) {
			dir := t.TempDir()
			require.NoError(t, os.Symlink(self, dir+"/ring"))
			path, err := filepath.Abs(script)
			require.NoError(t, err)
			env := []string{roleVar + "=exchange", "HOME=" + dir, "MASTER_ADDR=127.0.0.1", "MASTER_PORT=27098"}
			submitted := Run(t, env, "sbatch", "--wait", "--chdir="+dir, "--output="+dir+"/out", "--nodes=3", "--ntasks-per-node=2", "--overcommit", path)
			out, err := os.ReadFile(dir + "/out")
			require.NoError(t, err, submitted.Out)
			requireWell(t, Result{string(out), submitted.Code}, 6)
			left, err := filepath.Glob(dir + "/.tagmatch-*")
			require.NoError(t, err)
			require.Empty(t, left)
		})
	}
}

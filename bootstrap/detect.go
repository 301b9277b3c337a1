package bootstrap

import (
	"context"
	"crypto/fips140"
	"crypto/sha256"
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/tagmatch/tagmatch/bootstrap/internal/rendezvous"
)

// plan is a detected launcher, ready to be joined.
type plan interface {
	found() Found
	join(ctx context.Context) (Bootstrap, error)
}

// launcher is one row of the detection table.
type launcher struct {
	name string
	// find returns nil if the launcher is absent, and an error if its settings are wrong. forced
	// means that the user asked for this launcher by name.
	find func(opt *Options, forced bool) (plan, error)
}

// launchers are in the order of detection. Process managers with a key-value space come first: a
// program under mpiexec may inherit RANK from a shell, but PMI_FD only from mpiexec. Slurm is
// behind those that use srun to start their daemons, whose variables the ranks inherit.
func launchers() []launcher {
	return []launcher{
		{"pmi", findPMI},
		{"pmix", findPMIx},
		{"file", findFile},
		{"torchrun", findTorchrun},
		{"env", findEnvironment},
		{"openmpi", findOpenMPI},
		{"slurm", findSlurm},
		{"kubernetes", findKubernetes},
		{"singleton", findSingleton},
	}
}

// Launchers lists the launchers that Detect knows, in the order of detection.
func Launchers() []string {
	var names []string
	for _, l := range launchers() {
		names = append(names, l.name)
	}
	return names
}

func find(opt *Options) (plan, error) {
	want := opt.Launcher
	if want == "" {
		want = opt.Getenv(EnvBootstrap)
	}
	known := false
	for _, l := range launchers() {
		if want != "" && want != l.name {
			continue
		}
		known = true
		p, err := l.find(opt, want != "")
		if p != nil || err != nil {
			return p, err
		}
	}
	if !known {
		return nil, configErrorf("%s is %q: this program knows %s", EnvBootstrap, want, strings.Join(Launchers(), ", "))
	}
	return nil, configErrorf("launcher %q was asked for (%s), but nothing in the environment is of it", want, EnvBootstrap)
}

// present lists the launchers that the environment shows, in the order of detection.
func present(opt *Options) []string {
	var names []string
	for _, l := range launchers() {
		if l.name == "singleton" {
			continue
		}
		if p, err := l.find(opt, false); p != nil || err != nil {
			names = append(names, l.name)
		}
	}
	return names
}

// jobVars is the description of the job in the environment.
type jobVars struct {
	rendezvous.Job
	host, port string // of rank 0
}

// masterVars names the variables with rank 0's address, for error texts.
const masterVars = EnvMasterAddr + ":" + EnvMasterPort

// findEnvironment leaves it to the launchers behind it where only the address of rank 0 is set.
func findEnvironment(opt *Options, forced bool) (plan, error) {
	set, missing := jobVariables(opt.Getenv)
	switch {
	case !forced && opt.Getenv(EnvRank) == "":
		return nil, nil
	case len(set) == 0:
		return nil, configErrorf("launcher \"env\" was asked for, but %s are not set", strings.Join(missing, ", "))
	case len(missing) > 0:
		return nil, partialEnvironment(set, missing)
	}
	job, err := parseJob(opt.Getenv)
	if err != nil {
		return nil, err
	}
	return job.plan(opt, masterVars)
}

// jobVariables are those of the four that are set, and those that are not.
func jobVariables(getenv func(string) string) (set, missing []string) {
	for _, v := range []string{EnvRank, EnvWorldSize, EnvMasterAddr, EnvMasterPort} {
		if getenv(v) != "" {
			set = append(set, v)
		} else {
			missing = append(missing, v)
		}
	}
	return set, missing
}

func partialEnvironment(set, missing []string) error {
	return configErrorf("%s set but not %s: a launcher sets all four of RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT; "+
		"set what is missing, or unset all of them for a job of one rank", strings.Join(set, ", "), strings.Join(missing, ", "))
}

// plan returns the plan of a job whose address of rank 0 is known, from the variables that from
// names.
func (j *jobVars) plan(opt *Options, from string) (plan, error) {
	sec, err := resolveSecret(opt)
	if err != nil {
		return nil, err
	}
	if err := opt.checkRequired(sec); err != nil {
		return nil, err
	}
	if sec.Bytes == nil && j.Size > 1 && fips140.Enforced() {
		return nil, configErrorf("no job secret, and GODEBUG=fips140=only allows no handshake without one: set %s or %s for all ranks, "+
			"or start with `tagmatch run`", EnvSecret, EnvSecretFile)
	}
	return &envPlan{opt: opt, job: *j, secret: sec, from: from}, nil
}

// parseJob reads RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT.
func parseJob(getenv func(string) string) (jobVars, error) {
	j, err := parseRank(getenv)
	if err != nil {
		return j, err
	}
	return j, j.parseMaster(getenv)
}

// parseRank reads RANK, WORLD_SIZE, LOCAL_RANK and LOCAL_WORLD_SIZE.
func parseRank(getenv func(string) string) (jobVars, error) {
	j := jobVars{Job: rendezvous.Job{Launcher: "env", Epoch: epochOf(getenv)}}
	return j, j.read(getenv, EnvRank, EnvWorldSize, EnvLocalRank, EnvLocalWorldSize)
}

// parseMaster reads where rank 0 serves the rendezvous.
func (j *jobVars) parseMaster(getenv func(string) string) error {
	port, err := number(getenv, EnvMasterPort, 1, 65535)
	j.host, j.port = strings.Trim(getenv(EnvMasterAddr), "[]"), strconv.Itoa(port)
	return err
}

// read reads rank, size and the local ones from variables; those of the last two may be missing, as
// their names may. Some launchers treat every process as a host of its own, with local rank 0.
func (j *jobVars) read(getenv func(string) string, rank, size, localRank, localSize string) (err error) {
	j.LocalRank, j.LocalSize = -1, -1
	if j.Size, err = number(getenv, size, 1, rendezvous.MaxSize); err != nil {
		return err
	}
	if j.Rank, err = below(getenv, rank, size, j.Size); err != nil {
		return err
	}
	of, most := size, j.Size
	if localSize != "" && getenv(localSize) != "" {
		if j.LocalSize, err = number(getenv, localSize, 1, j.Size); err != nil {
			return err
		}
		of, most = localSize, j.LocalSize
	}
	if localRank != "" && getenv(localRank) != "" {
		j.LocalRank, err = below(getenv, localRank, of, most)
	}
	return err
}

// below reads a rank, which must be below the size n that another variable has.
func below(getenv func(string) string, name, size string, n int) (int, error) {
	rank, err := number(getenv, name, 0, rendezvous.MaxSize)
	if err == nil && rank >= n {
		err = configErrorf("%s is %d but %s is %d: %s must be from 0 to %d", name, rank, size, n, name, n-1)
	}
	return rank, err
}

// epochOf distinguishes incarnations of an elastic job: a rank from before a restart must not join
// the next one.
func epochOf(getenv func(string) string) string {
	id := getenv("TORCHELASTIC_RUN_ID")
	if id == "" {
		return ""
	}
	return epochText(id + "/" + getenv("TORCHELASTIC_RESTART_COUNT"))
}

// epochText makes s an epoch: what is too long ends with its hash.
func epochText(s string) string {
	if len(s) <= rendezvous.MaxEpoch {
		return s
	}
	sum := fmt.Sprintf("#%x", sha256.Sum256([]byte(s)))
	return s[:rendezvous.MaxEpoch-len(sum)] + sum
}

func number(getenv func(string) string, name string, low, high int) (int, error) {
	s := getenv(name)
	n, err := strconv.Atoi(s)
	if err != nil {
		return 0, configErrorf("%s is %q, which is not a whole number; it must be from %d to %d", name, s, low, high)
	}
	if n < low || n > high {
		return 0, configErrorf("%s is %d, which is out of range; it must be from %d to %d", name, n, low, high)
	}
	return n, nil
}

func (j *jobVars) address() string { return net.JoinHostPort(j.host, j.port) }

// singletonPlan is a job of one rank, without connections.
type singletonPlan struct{ secret rendezvous.Secret }

func findSingleton(opt *Options, forced bool) (plan, error) {
	if err := refuseSingleton(opt); err != nil && !forced {
		return nil, err
	}
	sec, err := resolveSecret(opt)
	if err != nil {
		return nil, err
	}
	if sec.Bytes == nil {
		sec = rendezvous.NewSecret("made by this process, a job of one rank")
	}
	return &singletonPlan{sec}, nil
}

func (p *singletonPlan) found() Found {
	return Found{Launcher: "singleton", Size: 1, LocalSize: 1, SecretOrigin: p.secret.Origin}
}

func (p *singletonPlan) join(context.Context) (Bootstrap, error) {
	j := rendezvous.Job{Launcher: "singleton", Size: 1, LocalSize: 1}
	return j.Alone(p.secret), nil
}

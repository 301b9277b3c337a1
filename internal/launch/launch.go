package launch

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tagmatch/tagmatch/bootstrap"
	"github.com/tagmatch/tagmatch/internal/cpus"
	"github.com/tagmatch/tagmatch/internal/launch/link"
)

// EnvPin is the variable with a rank's CPU: see PinSelf.
const EnvPin = bootstrap.EnvPin

// asyncOn is the setting of p2p that asks for an asynchronous device.
const asyncOn = "TAGMATCH_ASYNC=on"

// MaxRanks bounds Options.N, so that a typing error does not overload the host.
const MaxRanks = 4096

// Options of Run. Zero values are good defaults, except for N and Command.
type Options struct {
	N       int      // number of ranks
	Command []string // program and arguments
	Env     []string // default os.Environ(); variables of another job are replaced
	Dir     string   // working directory; default this process's

	Stdin          *os.File  // for rank 0; default none. The others have none
	Stdout, Stderr io.Writer // default os.Stdout and os.Stderr
	NoPrefix       bool      // do not put "[rank] " in front of each line

	// Unless Env has GOMAXPROCS or TAGMATCH_ASYNC, a rank's GOMAXPROCS is its share of the
	// processors, and 1 with Pin.

	// Hosts has the ranks run there, by a shell that Agent starts on each: `ssh -o BatchMode=yes`,
	// unless another command is given, which gets the host's name and "sh -s" behind it. Their
	// environment is that of the host, with the job's own variables, those whose names begin with
	// TAGMATCH_ or GO, and those of Pass. Nothing is passed of Stdin, and an Abort ends the job
	// with the code of the rank that exits first.
	Hosts []Host
	Agent []string
	Pass  []string // NAME, which must be in Env, or NAME=VALUE, also for ranks of this host

	Bind   bool // bind rank i to the i-th allowed CPU of its host, modulo their number
	Pin    bool // tell rank i that CPU, for it to bind itself; see PinSelf
	OneCPU bool // with Pin: give all ranks the first one

	KeepGoing bool          // a rank that ends does not end the others: only an Abort, a signal and ctx do
	Grace     time.Duration // between SIGTERM and SIGKILL; default 5 s

	// Diagnose says what is wrong with the ranks of this host whose first processes these are, ""
	// if it has nothing to say; with rested above 0 also where anything of the job has moved within
	// that time. It is called by one goroutine or several, and ends soon after ctx. With it the
	// first SIGQUIT prints the diagnosis, and only a second one within 5 s goes to the ranks; a
	// signal that ends a job in which nothing has moved for 10 s has it printed behind all else.
	Diagnose func(ctx context.Context, pids []int, rested time.Duration) string

	agentEnv []string // Env without the values of Pass, which are for ranks
}

// Run starts opt.N copies of opt.Command as the ranks of a job and returns the job's exit code when
// all have ended: 0, or the first code other than 0 of a rank, 128 + the signal's number if one
// killed it. After that, unless KeepGoing, and after an Abort, SIGINT, SIGTERM or SIGHUP to this
// process, or the end of ctx, it ends the other ranks; the code is that of the Abort, or the
// signal, then. Other signals that programs have a use for reach the ranks, see forwarded. With
// KeepGoing the code is 0 if ranks that were not lost are left and have ended with 0: lost is whom
// a signal has ended, or who had its World open. The error is for a job that could not be started
// (with code 2 where the Options are wrong), and for ctx. Run waits until all output is written,
// except after a second signal: then a Write that does not end is left behind.
func Run(ctx context.Context, opt Options) (code int, err error) {
	if err := opt.setDefaults(); err != nil {
		return 2, err
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		// The parent-death signal is sent at the end of the thread that started the child, not of
		// the process. So one thread starts all ranks and stays until they have ended.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		j := &job{opt: &opt, events: make(chan event), quit: make(chan struct{}), givenUp: make(chan struct{}), holders: holders{look: killHolders}}
		code, err = j.run(ctx)
	}()
	<-done
	return code, err
}

func (o *Options) setDefaults() error {
	if o.N < 1 || o.N > MaxRanks {
		return fmt.Errorf("launch: %d ranks: give a number from 1 to %d", o.N, MaxRanks)
	}
	if len(o.Command) == 0 {
		return errors.New("launch: no command: say which program the ranks run")
	}
	if o.Pin && (o.Bind || len(o.Hosts) > 0) {
		return errors.New("launch: Pin is for ranks of this host that bind themselves: use Bind")
	}
	if o.Grace < 0 {
		return fmt.Errorf("launch: a grace period of %v: give no less than 0", o.Grace)
	}
	if o.Env == nil {
		o.Env = os.Environ()
	}
	if err := o.setPass(); err != nil {
		return err
	}
	if o.Stdout == nil {
		o.Stdout = os.Stdout
	}
	if o.Stderr == nil {
		o.Stderr = os.Stderr
	}
	if o.Grace == 0 {
		o.Grace = 5 * time.Second
	}
	return nil
}

// job is one Run. Its fields belong to the goroutine that runs it.
type job struct {
	opt    *Options
	ranks  []*rank
	places []placed   // of Options.Hosts, by rank; nil: all on this host
	exits  *exitQueue // nil: not supported
	output sync.Mutex // one line at a time, on both streams
	events chan event
	quit   chan struct{} // closed when events are received no more
	wg     sync.WaitGroup

	givenUp chan struct{} // closed when output is no longer waited for

	holders holders
}

type rank struct {
	n        int
	host     string // "": this one
	cmd      *exec.Cmd
	link     *os.File // the launcher's end; nil where links are not supported
	socket   string   // the other end, as /proc names it
	agent    *agent   // of a rank on another host
	out, err *stream
	passed   chan struct{} // closed when all its output is passed on, or given up
	running  bool
	reaping  sync.Mutex // held while its processes are signalled; guards reaped
	reaped   bool       // it may be: nothing is signalled any more
	leaving  bool       // it has left the job, and is awaited for leaveTime
	told     bool       // it was signalled before it had ended

	state  link.State
	queued chan struct{} // closed when the exitQueue has reported its end; nil: no exitQueue
	order  int           // position among the ended ranks, from 1; 0: not known
	code   int           // exit code, once it has ended
	killed bool          // by a signal
	reason string
	lost   []int // ranks that it reported as lost before it left the job
}

// name names a rank, and its host where that is another.
func (r *rank) name() string {
	if r.host == "" {
		return fmt.Sprintf("rank %d", r.n)
	}
	return fmt.Sprintf("rank %d on %s", r.n, r.host)
}

// event is an event of a rank.
type event struct {
	rank   int
	kind   eventKind
	state  link.State
	peer   int
	code   int
	killed bool
	reason string // of rankPassed: why output was lost, "" if none was
}

type eventKind uint8

const (
	rankSaid   eventKind = iota // its state
	rankLost                    // has reported the loss of peer
	rankAbort                   // called Abort
	rankEnded                   // its process has ended; its last reports may still be unread
	rankGone                    // its reports are read, and its exit code is known
	rankPassed                  // its output is passed on too
)

// start starts all ranks or none.
func (j *job) start() error {
	env, ln, err := j.rendezvous()
	if err != nil {
		return err
	}
	if ln != nil {
		defer ln.Close() // rank 0 has its copy by then, and no other process can get the port
	}
	cpus, err := j.cpus()
	if err != nil {
		return err
	}
	j.exits = newExitQueue()
	defer j.watchAll()
	for n := range j.opt.N {
		r := &rank{n: n, passed: make(chan struct{})}
		if j.places != nil {
			r.host = j.places[n].host
		}
		if err := j.startRank(r, env, cpus, ln); err != nil {
			return fmt.Errorf("launch: %s: %w", r.name(), err)
		}
		r.running = true
		j.ranks = append(j.ranks, r)
	}
	return nil
}

// rendezvous chooses where rank 0 serves, which the environment of the ranks says, and listens
// there where that is this host.
func (j *job) rendezvous() (env []string, ln net.Listener, err error) {
	within, err := j.ports()
	if err != nil {
		return nil, nil, err
	}
	if len(j.opt.Hosts) > 0 {
		if j.places, err = place(j.opt.Hosts, j.opt.N); err != nil {
			return nil, nil, err
		}
		return j.environment(j.opt.Hosts[0].address(), remotePort(within)), nil, nil
	}
	if ln, err = within.Listen(context.Background(), "127.0.0.1"); err != nil {
		return nil, nil, fmt.Errorf("launch: no port for the rendezvous: %w", err)
	}
	return j.environment("127.0.0.1", ln.Addr().(*net.TCPAddr).Port), ln, nil
}

// watchAll watches the started ranks.
func (j *job) watchAll() {
	if j.exits != nil {
		j.wg.Go(func() { j.exits.run(func(r *rank) { j.report(event{rank: r.n, kind: rankEnded}) }) })
	}
	for _, r := range j.ranks {
		j.wg.Go(func() { j.watch(r) })
	}
}

func (j *job) startRank(r *rank, env []string, cpus []int, ln net.Listener) error {
	prefix := ""
	if !j.opt.NoPrefix {
		prefix = fmt.Sprintf("[%d] ", r.n)
	}
	r.out = newStream(&lineWriter{mu: &j.output, w: j.opt.Stdout, prefix: prefix})
	r.err = newStream(&lineWriter{mu: &j.output, w: j.opt.Stderr, prefix: prefix})
	if j.places != nil {
		return j.startRemote(r, env)
	}
	c := exec.Command(j.opt.Command[0], j.opt.Command[1:]...)
	c.Dir = j.opt.Dir
	c.Env = append(env, fmt.Sprintf("%s=%d", bootstrap.EnvRank, r.n), fmt.Sprintf("%s=%d", bootstrap.EnvLocalRank, r.n))
	if j.opt.Pin {
		c.Env = append(c.Env, fmt.Sprintf("%s=%d", EnvPin, cpus[r.n%len(cpus)]))
	}
	if r.n == 0 && j.opt.Stdin != nil {
		c.Stdin = j.opt.Stdin
	}
	inherited, err := j.inherit(r, c, ln)
	defer closeFiles(inherited)
	if err != nil {
		return err
	}
	if j.opt.Bind {
		unbind, err := bindThread(cpus[r.n%len(cpus)])
		if err != nil {
			return err
		}
		defer unbind()
	}
	return j.startProcess(r, c)
}

func (j *job) startProcess(r *rank, c *exec.Cmd) error {
	c.SysProcAttr = processAttr()
	var pidfd *int
	if j.exits != nil {
		pidfd = j.exits.prepare(c)
	}
	if err := startStreams(c, r.out, r.err); err != nil {
		if r.link != nil {
			_ = r.link.Close()
		}
		return err
	}
	r.cmd = c
	if pidfd != nil {
		j.exits.add(r, *pidfd)
	}
	return nil
}

// inherit passes the rank its link and, to rank 0, the socket of the rendezvous.
func (j *job) inherit(r *rank, c *exec.Cmd, ln net.Listener) ([]*os.File, error) {
	parent, child, env, err := link.Pair(3 + len(c.ExtraFiles))
	switch {
	case errors.Is(err, errors.ErrUnsupported):
		return nil, nil // neither is supported here: rank 0 opens the port itself
	case err != nil:
		return nil, err
	}
	_, inode, _ := strings.Cut(env, ":")
	r.link, r.socket = parent, "socket:["+inode+"]"
	c.ExtraFiles = append(c.ExtraFiles, child)
	c.Env = append(c.Env, link.Env+"="+env)
	if r.n != 0 {
		return c.ExtraFiles, nil
	}
	f, err := ln.(*net.TCPListener).File()
	if err != nil {
		_ = parent.Close()
		return c.ExtraFiles, err
	}
	c.Env = append(c.Env, fmt.Sprintf("%s=%d", bootstrap.EnvRendezvousFD, 3+len(c.ExtraFiles)))
	c.ExtraFiles = append(c.ExtraFiles, f)
	return c.ExtraFiles, nil
}

func closeFiles(files []*os.File) {
	for _, f := range files {
		_ = f.Close()
	}
}

// environment is the environment that all ranks share.
func (j *job) environment(host string, port int) []string {
	env := make([]string, 0, len(j.opt.Env)+16)
	for _, kv := range j.opt.Env {
		if name, _, _ := strings.Cut(kv, "="); !ofJob(name) {
			env = append(env, kv)
		}
	}
	secret := make([]byte, bootstrap.SecretSize)
	rand.Read(secret)
	n := strconv.Itoa(j.opt.N)
	if p := j.procs(env); p > 0 {
		env = append(env, fmt.Sprintf("GOMAXPROCS=%d", p))
	}
	env = append(env,
		bootstrap.EnvWorldSize+"="+n, bootstrap.EnvLocalWorldSize+"="+n,
		bootstrap.EnvMasterAddr+"="+host, bootstrap.EnvMasterPort+"="+strconv.Itoa(port),
		bootstrap.EnvSecret+"="+hex.EncodeToString(secret),
		bootstrap.EnvBootstrap+"=env", // also where another launcher started this process
	)
	return env[:len(env):len(env)]
}

// procs is the GOMAXPROCS of the ranks: their share of the processors, since threads beyond it take
// the processor from the rank that has the message. 0 leaves it as it is: where it is given, and
// with an asynchronous device, which works beside its program on a thread of its own.
func (j *job) procs(env []string) int {
	for _, kv := range env {
		if strings.HasPrefix(kv, "GOMAXPROCS=") || kv == asyncOn {
			return 0
		}
	}
	switch {
	case j.opt.Bind || len(j.opt.Hosts) > 0:
		return 0 // the processors of each rank tell
	case j.opt.Pin:
		return 1
	}
	return max(1, runtime.GOMAXPROCS(0)/j.opt.N)
}

// ofJob reports whether a variable describes the job of this process, which is not the job that it
// starts.
func ofJob(name string) bool {
	switch name {
	case bootstrap.EnvRank, bootstrap.EnvWorldSize, bootstrap.EnvLocalRank, bootstrap.EnvLocalWorldSize,
		bootstrap.EnvMasterAddr, bootstrap.EnvMasterPort, bootstrap.EnvSecret, bootstrap.EnvSecretFile,
		bootstrap.EnvBootstrap, bootstrap.EnvListen, bootstrap.EnvRendezvousFD, link.Env, EnvPin:
		return true
	}
	for _, p := range []string{"PMI_", "PMIX_", "OMPI_COMM_WORLD_", "TORCHELASTIC_"} {
		if strings.HasPrefix(name, p) {
			return true
		}
	}
	return false
}

func (j *job) cpus() ([]int, error) {
	if !j.opt.Pin && (!j.opt.Bind || len(j.opt.Hosts) > 0) {
		return nil, nil
	}
	list, err := cpus.Allowed()
	if err != nil {
		return nil, fmt.Errorf("launch: pinning: %w", err)
	}
	if j.opt.OneCPU {
		list = list[:1]
	}
	return list, nil
}

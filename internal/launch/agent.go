package launch

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tagmatch/tagmatch/bootstrap"
)

// agent is the standard input of the shell that starts a rank on another host. It stays open as
// long as this process lives, which the shell watches.
type agent struct {
	in      *os.File
	written chan struct{} // closed when the script is
}

// startRemote starts the agent of a rank on another host.
func (j *job) startRemote(r *rank, env []string) error {
	p := j.places[r.n]
	c := j.remote(p)
	c.Env = j.opt.agentEnv
	out, in, err := os.Pipe()
	if err != nil {
		return err
	}
	c.Stdin = out
	err = j.startProcess(r, c)
	_ = out.Close() // the agent has its own
	if err != nil {
		_ = in.Close()
		return err
	}
	r.agent = &agent{in, make(chan struct{})}
	go r.agent.start(j.script(p, r.n, env))
	return nil
}

func (a *agent) start(script string) {
	defer close(a.written)
	_, _ = io.WriteString(a.in, script) // an agent that takes nothing ends, and says why
}

// signalTime is how long an agent has to take a signal.
const signalTime = 100 * time.Millisecond

// signal has the shell there send a signal to the rank, which misses it before it runs.
func (a *agent) signal(sig syscall.Signal) {
	select {
	case <-a.written:
	default:
		return
	}
	_ = a.in.SetWriteDeadline(time.Now().Add(signalTime)) // a pipe has deadlines
	_, _ = io.WriteString(a.in, strings.TrimPrefix(unix.SignalName(sig), "SIG")+"\n")
}

func (a *agent) close() { _ = a.in.Close() }

// remote is the command that starts a rank on another host, by a shell that reads script.
func (j *job) remote(p placed) *exec.Cmd {
	agent := j.opt.Agent
	if len(agent) == 0 {
		agent = defaultAgent
	}
	return exec.Command(agent[0], slices.Concat(agent[1:], []string{p.host, "sh", "-s"})...)
}

// script is what the shell on the host reads. The secret is in it, and so on no command line.
// Behind it come names of signals for the rank. When its standard input ends, because the launcher
// has ended the agent or is gone, so does the rank.
func (j *job) script(p placed, rank int, env []string) string {
	var b strings.Builder
	dir, _ := filepath.Abs(j.opt.Dir)
	b.WriteString("main() {\n") // so that the shell has read everything before the rest is read
	fmt.Fprintf(&b, "cd %s || exit 1\n", quote(dir))
	for _, kv := range env {
		if name, value, _ := strings.Cut(kv, "="); j.opt.passed(name) || ofJob(name) {
			fmt.Fprintf(&b, "export %s=%s\n", name, quote(value))
		}
	}
	fmt.Fprintf(&b, "export %s=%d %s=%d %s=%d\n", bootstrap.EnvRank, rank, bootstrap.EnvLocalRank, p.local, bootstrap.EnvLocalWorldSize, p.localSize)
	var command []string
	if j.opt.Bind {
		b.WriteString(allowedCPUsThere)
		fmt.Fprintf(&b, "shift $((%d %% $#))\n", p.local)
		command = append(command, "taskset", "-c", "$1")
	}
	for _, arg := range j.opt.Command {
		command = append(command, quote(arg))
	}
	// setsid makes the rank a process group, as on this host; without it the rank is ended alone.
	b.WriteString("group=; own=\ncommand -v setsid >/dev/null && group=setsid own=-\n")
	fmt.Fprintf(&b, "exec 3<&0\n$group %s </dev/null 3<&- &\nrank=$!\n", strings.Join(command, " "))
	grace := 0 // in whole seconds, as every sleep(1) takes them
	if j.opt.Grace >= time.Millisecond {
		grace = int(j.opt.Grace.Seconds()) + 1
	}
	b.WriteString("{ while read -r signal <&3; do kill -s $signal -- $own$rank; done\n")
	fmt.Fprintf(&b, "kill -s TERM -- $own$rank; sleep %d; kill -s KILL -- $own$rank; } >/dev/null 2>&1 &\nwatch=$!\n", grace)
	b.WriteString("wait $rank\ncode=$?\nkill $watch 2>/dev/null\n")
	b.WriteString("[ -z \"$own\" ] || { kill -s KILL -- -$rank; pkill -KILL -s $rank; } >/dev/null 2>&1\nexit $code\n}\nmain\n")
	return b.String()
}

// allowedCPUsThere has a shell set its arguments to the processors that it may use.
const allowedCPUsThere = `set --
for range in $(sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' /proc/self/status | tr , ' '); do
set -- "$@" $(seq ${range%-*} ${range#*-})
done
`

// quote makes s one word of a shell.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

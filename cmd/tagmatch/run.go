package main

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/tagmatch/tagmatch/internal/launch"
)

const runHelp = `Run starts N copies of a program as the ranks of one job on this host.

Each rank finds RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR,
MASTER_PORT and a fresh job secret (TAGMATCH_SECRET) in its environment. Rank 0
gets the standard input; with --hosts, and from a terminal, no rank does. Lines of
output are prefixed with "[rank] ".

The job ends when all ranks have ended. When one exits with a code other than 0,
is killed, or aborts the job, the others are sent SIGTERM and, after the grace
period, SIGKILL; one that has closed its World by then is sent SIGTERM later, after
half of that period or three seconds. On SIGINT, SIGTERM and SIGHUP (unless nohup
has it ignored) all ranks are ended in this way; a second signal kills at once, and
output that nobody takes within a second is then lost. If nothing of the job had
moved for 10 seconds then, the last output says what was wrong with it.

SIGQUIT (Ctrl-\) prints what is wrong with the job, as tagmatch dump does, and the
job goes on; with a second one within 5 seconds the ranks get it, and have the
grace period to end by themselves. SIGUSR1, SIGUSR2, SIGWINCH, SIGXCPU and SIGCONT
are passed on to all processes of the ranks, and Ctrl-Z stops them; other signals
are not passed on. A rank is a process group that ends with its first process:
what that leaves running is killed, in a group of its own too.

Exit code: 0 if all ranks exited with 0; else that of the rank that brought the job
down: one that was killed (128 + number of the signal), or the first that failed;
or the code of an abort; 1 if the job could not be started; 2 for wrong usage.

With --keep-going the others go on where a rank ends. A rank counts as lost if a
signal ends it, or if it ends with its World open. The exit code is 0 if there are
other ranks and all of them exited with 0; else the first code above 0, or 1. With
--hosts only exit codes are seen: a rank was lost if its code is above 128.`

func newRun(in *os.File) *cobra.Command {
	var opt launch.Options
	var n rankCount
	var hosts, bind, agent string
	c := &cobra.Command{
		Use:   "run -n N [flags] [--] program [arguments]",
		Short: "Start a program as N ranks on this host, or on others by ssh",
		Long:  runHelp,
		Example: `  tagmatch run -n 4 ./ring
  tagmatch run -n 2 --bind-to core ./ring
  tagmatch run -n 8 --hosts node1:4,node2:4 ./ring
  tagmatch run -n 2 --pin -- go run ./examples/pingpong -json`,
		Args: whatToRun,
		RunE: func(c *cobra.Command, args []string) error {
			opt.N, opt.Command = int(n), args
			if err := placement(&opt, hosts, bind, agent); err != nil {
				return err
			}
			if opt.Grace == 0 {
				opt.Grace = 1 // as 0, for which Options has a default
			}
			opt.Stdin = usableStdin(in)
			opt.Stdout, opt.Stderr = c.OutOrStdout(), c.ErrOrStderr()
			opt.Diagnose = diagnoseRanks
			code, err := launch.Run(c.Context(), opt)
			if code != 0 || err != nil {
				return &exitError{code, err}
			}
			return nil
		},
	}
	f := c.Flags()
	f.SetInterspersed(false) // flags after the program are the program's
	f.VarP(&n, "ranks", "n", "number of ranks (required)")
	f.BoolVar(&opt.NoPrefix, "no-prefix", false, "do not prefix lines of output with the rank")
	f.BoolVar(&opt.Pin, "pin", false, "name a CPU of its own to each rank (TAGMATCH_PIN; programs of this runtime bind to it), and set GOMAXPROCS=1")
	f.StringVar(&hosts, "hosts", "", "hosts to run on, as a comma list of host:ranks; the program and the directory must be there too")
	f.StringVar(&agent, "ssh", "", "command that starts a shell on another host (default \"ssh -o BatchMode=yes\")")
	f.StringArrayVarP(&opt.Pass, "env", "x", nil, "variable to pass to other hosts, besides TAGMATCH_... and GO...; or NAME=VALUE, set for all ranks; may be repeated")
	f.StringVar(&bind, "bind-to", "none", "core: bind each rank to a CPU of its own; none")
	f.DurationVar(&opt.Grace, "grace", 5*time.Second, "time between SIGTERM and SIGKILL when the job is ended")
	f.BoolVar(&opt.KeepGoing, "keep-going", false, "do not end the other ranks when one ends, for programs that survive losses; the exit code is that of the ranks that were not lost")
	f.StringVar(&opt.Dir, "dir", "", "working directory of the ranks")
	f.Var(wrongName{}, "np", "")
	_ = f.MarkHidden("np")
	_ = c.RegisterFlagCompletionFunc("bind-to", cobra.FixedCompletions([]string{"core", "none"}, cobra.ShellCompDirectiveNoFileComp))
	return c
}

// placement is where the ranks run.
func placement(opt *launch.Options, hosts, bind, agent string) (err error) {
	switch bind {
	case "core":
		opt.Bind = true
	case "none":
	default:
		return fmt.Errorf("--bind-to %s: core or none", bind)
	}
	if opt.Pin && (opt.Bind || hosts != "") {
		return errors.New("--pin is for ranks of this host that bind themselves: leave it out, --bind-to core binds them, also with --hosts")
	}
	opt.Agent = strings.Fields(agent)
	if hosts != "" {
		opt.Hosts, err = launch.ParseHosts(hosts)
	}
	return err
}

// usableStdin leaves a terminal out: the ranks are not its foreground process group, and reading
// would stop them.
func usableStdin(in *os.File) *os.File {
	if in == nil {
		return nil
	}
	st, err := in.Stat()
	if err != nil || st.Mode()&os.ModeCharDevice != 0 {
		return nil
	}
	return in
}

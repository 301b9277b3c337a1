package bootstrap

import "strconv"

// foreign is a launcher that has started this process as one of several, and that this process
// cannot speak to.
type foreign struct {
	name       string
	rank, size string // variables
	why        string // it cannot be spoken to, and what to do
}

// refuseSingleton is the error of a process that would be a job of one rank though a launcher
// started it with others: N jobs of one rank that all succeed would hide the mistake.
func refuseSingleton(opt *Options) error {
	if set, missing := jobVariables(opt.Getenv); len(set) > 0 {
		return partialEnvironment(set, missing)
	}
	return refuseForeign(opt)
}

// refuseForeign is the error of a process whose own launcher, or that of the rank which started it,
// cannot be spoken to.
func refuseForeign(opt *Options) error {
	for _, f := range foreigners {
		if opt.Getenv(f.rank) == "" && (f.size == "" || opt.Getenv(f.size) == "") {
			continue
		}
		n, err := strconv.Atoi(opt.Getenv(f.size))
		if err == nil && n == 1 {
			continue
		}
		of := "one of several ranks"
		if err == nil {
			of = "rank " + opt.Getenv(f.rank) + " of " + strconv.Itoa(n)
		}
		return configErrorf("this process was started as %s by %s (%s in its environment), %s; %s=singleton insists on a job of one rank",
			of, f.name, f.rank, f.why, EnvBootstrap)
	}
	return nil
}

var foreigners = []foreign{
	{"mpiexec (MPICH's Hydra or another with PMI)", "PMI_RANK", "PMI_SIZE",
		"but its PMI_FD is no open socket: the rank that started this process keeps it for itself, or has closed it. Start the program by mpiexec itself, " +
			"or, for a job of its own inside a rank, by `tagmatch run`"},
	{"a launcher that speaks PMIx", "PMIX_RANK", "",
		"which the rank that started this process keeps for itself, or this program has no PMIx client: import _ \"github.com/tagmatch/tagmatch/bootstrap/pmix\" in its main package, which needs libpmix.so.2 at " +
			"run time; or set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT for each process"},
}

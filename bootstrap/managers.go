package bootstrap

import (
	"context"
	"fmt"

	"github.com/tagmatch/tagmatch/bootstrap/internal/filestore"
	"github.com/tagmatch/tagmatch/bootstrap/internal/pmi"
	"github.com/tagmatch/tagmatch/bootstrap/internal/space"
	"github.com/tagmatch/tagmatch/bootstrap/internal/tcpstore"
)

// findPMI finds a process manager that speaks PMI-1 or PMI-2.
func findPMI(opt *Options, _ bool) (plan, error) {
	p, err := pmi.Find(opt.Getenv)
	if err != nil {
		return nil, configErrorf("%v", err)
	}
	if p == nil {
		return nil, nil
	}
	return place{launcher: "pmi", seen: p.Launcher, vars: p.Variables,
		id:   space.Identity{Rank: p.Rank, Size: p.Size, LocalRank: -1, LocalSize: -1},
		open: func(ctx context.Context) (space.Space, error) { return p.Open(ctx) }}.plan(opt)
}

// findPMIx finds a launcher that speaks PMIx, if the program has imported the client.
func findPMIx(opt *Options, _ bool) (plan, error) {
	for _, d := range space.Drivers() {
		p, err := d.Find(opt.Getenv)
		if err != nil {
			return nil, configErrorf("%v", err)
		}
		if p != nil {
			return place{launcher: d.Name, seen: p.Launcher, vars: p.Variables, id: p.Identity, open: p.Open}.plan(opt)
		}
	}
	return nil, nil
}

// findTorchrun finds torchrun where its agent serves a store at MASTER_ADDR:MASTER_PORT, which rank
// 0 then cannot listen at. Where it does not, torchrun is as any other environment.
func findTorchrun(opt *Options, forced bool) (plan, error) {
	if opt.Getenv("TORCHELASTIC_USE_AGENT_STORE") != "True" || opt.Getenv(EnvRank) == "" {
		return nil, nil
	}
	j, err := parseJob(opt.Getenv)
	if err != nil {
		return nil, err
	}
	prefix := fmt.Sprintf("/tagmatch/%s/", j.Epoch)
	return place{launcher: "torchrun", seen: "torchrun (" + masterVars + "=" + j.address() + ")", id: j.identity(), public: true,
		open: func(ctx context.Context) (space.Space, error) {
			return tcpstore.Open(ctx, j.address(), prefix, j.identity())
		}}.plan(opt)
}

// file is the place of a job whose ranks share a directory.
func (j *jobVars) file(dir, name string) place {
	return place{launcher: j.Launcher, seen: "directory " + dir, id: j.identity(),
		open: func(context.Context) (space.Space, error) { return filestore.Open(dir, name, j.identity()) }}
}

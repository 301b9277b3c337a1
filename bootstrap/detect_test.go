package bootstrap

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/bootstrap/internal/ranktest"
	"github.com/tagmatch/tagmatch/bootstrap/internal/rendezvous"
)

func TestInspect(t *testing.T) {
	full := envOf(1, 4, "29500")
	file := filepath.Join(t.TempDir(), "secret")
	require.NoError(t, os.WriteFile(file, []byte(hexSecret+"\n"), 0o600))
	short := filepath.Join(t.TempDir(), "short")
	require.NoError(t, os.WriteFile(short, []byte("abc"), 0o600))
	made := "made by this process, a job of one rank"
	env := Found{Launcher: "env", Rank: 1, Size: 4, LocalRank: -1, LocalSize: -1, Rendezvous: "127.0.0.1:29500", RendezvousOrigin: masterVars, SecretOrigin: rendezvous.HandedOut,
		Present: []string{"env"}}
	local, ipv6, secret, fromFile := env, env, env, env
	local.LocalRank, local.LocalSize = 1, 2
	ipv6.Rendezvous = "[fe80::1]:29500"
	secret.SecretOrigin = EnvSecret
	fromFile.SecretOrigin = EnvSecretFile + " " + file
	tests := []struct {
		name string
		env  vars
		want Found
		err  string // part of the error
	}{
		{"nothing", vars{}, Found{Launcher: "singleton", Size: 1, LocalSize: 1, SecretOrigin: made}, ""},
		{"full", full, env, ""},
		{"local", full.with("LOCAL_RANK", "1", "LOCAL_WORLD_SIZE", "2"), local, ""},
		{"IPv6", full.with("MASTER_ADDR", "[fe80::1]"), ipv6, ""},
		{"secret", full.with(EnvSecret, hexSecret), secret, ""},
		{"secret file", full.with(EnvSecretFile, file), fromFile, ""},
		{"a PMI_FD that is no socket", full.with("PMI_FD", "999", "PMIX_RANK", "0"), env, ""},
		{"forced singleton", full.with(EnvBootstrap, "singleton"), Found{Launcher: "singleton", Size: 1, LocalSize: 1, SecretOrigin: made, Present: []string{"env"}}, ""},

		{"forced env", vars{EnvBootstrap: "env"}, Found{}, `"env" was asked for, but RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT are not set`},
		{"unknown", vars{EnvBootstrap: "lsf"}, Found{}, `TAGMATCH_BOOTSTRAP is "lsf": this program knows pmi, pmix, file, torchrun, env, openmpi, slurm, kubernetes, singleton`},
		{"only RANK", vars{"RANK": "0"}, Found{}, "RANK set but not WORLD_SIZE, MASTER_ADDR, MASTER_PORT"},
		{"only MASTER_ADDR", vars{"MASTER_ADDR": "h"}, Found{}, "MASTER_ADDR set but not RANK"},
		{"no port", full.with("MASTER_PORT", ""), Found{}, "not MASTER_PORT"},
		{"no address", full.with("MASTER_ADDR", ""), Found{}, "not MASTER_ADDR"},
		{"RANK not a number", full.with("RANK", "one"), Found{}, `RANK is "one", which is not a whole number`},
		{"RANK too large", full.with("RANK", "4"), Found{}, "RANK is 4 but WORLD_SIZE is 4: RANK must be from 0 to 3"},
		{"RANK negative", full.with("RANK", "-1"), Found{}, "RANK is -1, which is out of range"},
		{"WORLD_SIZE zero", full.with("WORLD_SIZE", "0"), Found{}, "WORLD_SIZE is 0, which is out of range"},
		{"WORLD_SIZE huge", full.with("WORLD_SIZE", "99999999999999999999"), Found{}, "WORLD_SIZE is"},
		{"MASTER_PORT zero", full.with("MASTER_PORT", "0"), Found{}, "MASTER_PORT is 0, which is out of range; it must be from 1 to 65535"},
		{"MASTER_PORT text", full.with("MASTER_PORT", "http"), Found{}, `MASTER_PORT is "http"`},
		{"LOCAL_RANK too large", full.with("LOCAL_RANK", "2", "LOCAL_WORLD_SIZE", "2"), Found{}, "LOCAL_RANK is 2 but LOCAL_WORLD_SIZE is 2: LOCAL_RANK must be from 0 to 1"},
		{"LOCAL_RANK above size", full.with("LOCAL_RANK", "4"), Found{}, "LOCAL_RANK is 4 but WORLD_SIZE is 4: LOCAL_RANK must be from 0 to 3"},
		{"LOCAL_WORLD_SIZE above size", full.with("LOCAL_WORLD_SIZE", "5"), Found{}, "LOCAL_WORLD_SIZE is 5"},
		{"secret too short", full.with(EnvSecret, "5a5a"), Found{}, "TAGMATCH_SECRET must be 64 hexadecimal digits (it has 4 characters)"},
		{"secret not hex", full.with(EnvSecret, strings.Repeat("zz", 32)), Found{}, "TAGMATCH_SECRET must be 64"},
		{"no secret file", full.with(EnvSecretFile, "/nonexistent"), Found{}, "TAGMATCH_SECRET_FILE: open /nonexistent"},
		{"short secret file", full.with(EnvSecretFile, short), Found{}, "must hold 64 hexadecimal digits or 32 bytes"},
		{"secret for a file", full.with(EnvSecretFile, strings.Repeat("5a", 32)), Found{}, "TAGMATCH_SECRET_FILE seems to have the secret itself: give the name of a file, or set TAGMATCH_SECRET"},
		{"secret required", full.with(EnvRequireSecret, "1"), Found{}, "no job secret, and TAGMATCH_REQUIRE_SECRET refuses to start without one"},
		{"required nonsense", full.with(EnvRequireSecret, "perhaps"), Found{}, `TAGMATCH_REQUIRE_SECRET is "perhaps"`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := Inspect(options(tt.env))
			if tt.err != "" {
				require.ErrorIs(t, err, ErrConfig)
				require.ErrorContains(t, err, tt.err)
				require.NotContains(t, err.Error(), hexSecret[:8])
				return
			}
			require.NoError(t, err)
			require.Equal(t, tt.want, got)
		})
	}
}

func TestOptionSecret(t *testing.T) {
	opt := options(vars{})
	opt.Secret = []byte("short")
	_, err := Inspect(opt)
	require.ErrorContains(t, err, "Options.Secret has 5 bytes")
	opt.Secret = make([]byte, SecretSize)
	f, err := Inspect(opt)
	require.NoError(t, err)
	require.Equal(t, "given by the program", f.SecretOrigin)
}

func TestDetectSingleton(t *testing.T) {
	for _, v := range []vars{{}, envOf(0, 1, freePort(t))} {
		b, err := Detect(context.Background(), options(v))
		require.NoError(t, err)
		require.NoError(t, b.Put(context.Background(), "k", []byte("v")))
		require.NoError(t, b.Fence(context.Background()))
		got, err := b.Get(context.Background(), 0, "k")
		require.NoError(t, err)
		require.Equal(t, "v", string(got))
		require.NoError(t, b.Close())
	}
}

func TestJoinTimeout(t *testing.T) {
	_, err := Detect(context.Background(), options(vars{EnvJoinTimeout: "soon"}))
	require.ErrorContains(t, err, `TAGMATCH_JOIN_TIMEOUT is "soon"`)

	env := jobEnv(t, 4)
	_, err = Detect(context.Background(), options(env(0).with(EnvJoinTimeout, "50ms")))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, "still missing: ranks 1-3 of 4")
}

func TestPortInUse(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	_, port, _ := net.SplitHostPort(ln.Addr().String())
	_, err = Detect(ranktest.Timeout(t), options(envOf(0, 2, port)))
	require.ErrorContains(t, err, "port "+port+" (MASTER_ADDR:MASTER_PORT) is in use")
}

// TestPortOfAnotherJob: two jobs have chosen the same port of a range. Each rank of the second says
// so at once.
func TestPortOfAnotherJob(t *testing.T) {
	env := jobEnv(t, 2)
	port, first := env(0)[EnvMasterPort], make([]Bootstrap, 2)
	ranktest.Each(t, 2, func(r int) (err error) {
		first[r], err = Detect(ranktest.Timeout(t), options(env(r).with(EnvSecret, hexSecret)))
		return err
	})
	defer closeAll(t, first)
	errs := ranktest.Outcomes(2, func(r int) error {
		_, err := Detect(ranktest.Timeout(t), options(envOf(r, 2, port).with(EnvSecret, strings.Repeat("a5", SecretSize))))
		return err
	})
	require.ErrorContains(t, errs[0], "port "+port+" (MASTER_ADDR:MASTER_PORT) is in use on this host: give the job another by MASTER_PORT; "+
		"`tagmatch run --hosts` takes another each time")
	require.ErrorIs(t, errs[1], ErrSecret)
	require.ErrorContains(t, errs[1], "if it is no other job that serves there")
	ranktest.Each(t, 2, func(r int) error { return first[r].Fence(t.Context()) })
}

func TestListenHost(t *testing.T) {
	tests := []struct {
		name, addr, listen, secret, local string
		want, err                         string
	}{
		{"loopback", "127.0.0.1", "", "", "", "127.0.0.1", ""},
		{"loopback with secret", "127.0.0.1", "", hexSecret, "", "127.0.0.1", ""},
		{"other loopback", "127.0.1.1", "", "", "", "127.0.1.1", ""},
		{"no secret", "192.0.2.1", "", "", "", "127.0.0.1", ""},
		{"no secret, all local", "192.0.2.1", "", "", "4", "127.0.0.1", ""},
		{"no secret, several hosts", "192.0.2.1", "", "", "2", "", "no job secret, but only 2 of 4 ranks are on this host"},
		{"no secret, told to", "192.0.2.1", "0.0.0.0", "", "2", "0.0.0.0", ""},
		{"secret", "192.0.2.1", "", hexSecret, "2", "", ""},
		{"nonsense", "192.0.2.1", "host:1", hexSecret, "", "", `TAGMATCH_LISTEN is "host:1"`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			opt := options(envOf(0, 4, "29500").with("MASTER_ADDR", tt.addr, EnvListen, tt.listen, EnvSecret, tt.secret, "LOCAL_WORLD_SIZE", tt.local))
			opt.setDefaults()
			p, err := find(&opt)
			require.NoError(t, err)
			got, err := p.(*envPlan).listenHost(context.Background())
			if tt.err != "" {
				require.ErrorContains(t, err, tt.err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, tt.want, got)
		})
	}
}

func TestVariablesAreComplete(t *testing.T) {
	listed := map[string]bool{
		"TAGMATCH_LAUNCH_FD": true, "JOB_COMPLETION_INDEX": true}
	foreign := []string{"PMI_", "PMIX_", "MPI_LOCAL", "OMPI_", "SLURM_", "TORCHELASTIC_"}
	for _, v := range Variables() {
		listed[v.Name] = true
	}
	opt := options(nil)
	full := envOf(0, 1, freePort(t)).with("LOCAL_RANK", "0", "LOCAL_WORLD_SIZE", "1")
	opt.Getenv = func(name string) string {
		known := listed[name] || slices.ContainsFunc(foreign, func(p string) bool { return strings.HasPrefix(name, p) })
		require.True(t, known, "%s is read but not listed", name)
		return full[name]
	}
	b, err := Detect(context.Background(), opt)
	require.NoError(t, err)
	require.NoError(t, b.Close())
}

func TestNoJoinTimeout(t *testing.T) {
	for _, s := range []string{"none", "-1"} {
		opt := options(vars{EnvJoinTimeout: s})
		d, err := opt.timeout()
		require.NoError(t, err)
		require.Negative(t, d)
	}
	env := jobEnv(t, 2)
	ranktest.Each(t, 2, func(r int) error {
		b, err := Detect(ranktest.Timeout(t), options(env(r).with(EnvJoinTimeout, "none")))
		if err == nil {
			err = b.Close()
		}
		return err
	})
}

package p2p

import (
	"context"
	"crypto/fips140"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/tagmatch/tagmatch/bootstrap"
	"github.com/tagmatch/tagmatch/internal/contexts"
	"github.com/tagmatch/tagmatch/internal/inspect/doors"
	"github.com/tagmatch/tagmatch/internal/secure"
	"github.com/tagmatch/tagmatch/internal/settings"
	"github.com/tagmatch/tagmatch/verbs"
)

// parts are what a World is built from, in the order of opening.
type parts struct {
	boot   Bootstrap
	secret []byte // Config.Secret; nil: the Bootstrap's
	tls    *secure.Layer
	devs   []verbs.Device // in the order of Config.Device
	noSHM  string         // why shared memory, which was asked for, does not work here
}

// joined is set once this process has joined the job of its launcher.
var joined atomic.Bool

// Init joins the job. It is collective, and ends with ctx or when Config.JoinTimeout is over: then
// the error of every rank that has joined names those that have not. cfg is copied. An unknown
// TAGMATCH_ variable is ErrInvalid. A process has one World per launcher: a second Init without its
// own Config.Bootstrap is ErrInvalid, also after Close, except where no launcher started the
// process and the first World is closed. (Package p2ptest: Run(t, n, func(w *World)) gives n Worlds
// in one process.)
func Init(ctx context.Context, cfg Config) (*World, error) {
	if ctx == nil {
		if cfg.Bootstrap != nil {
			_ = cfg.Bootstrap.Close()
		}
		return nil, errNoContext
	}
	full, tls, err := prepare(&cfg)
	if err != nil {
		if cfg.Bootstrap != nil {
			_ = cfg.Bootstrap.Close()
		}
		return nil, err
	}
	alone, boot := false, cfg.Bootstrap
	start, waits := time.Now(), new(bootstrap.Waits)
	if boot == nil {
		if boot, alone, err = detect(ctx, cfg.Secret, &full, waits); err != nil {
			return nil, err
		}
	}
	w := &World{cfg: full, rank: boot.Rank(), size: boot.Size(), alone: alone,
		parts: parts{boot: boot, secret: cfg.Secret, tls: tls}, ending: newCtxLock(), waits: waits}
	w.comm.init(w, contexts.World, 0, nil)
	w.contexts.Init(w.rank, w.size)
	w.contexts.Open(nil, &w.comm.comm)
	if d := full.JoinTimeout; d > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadlineCause(ctx, start.Add(d), fmt.Errorf("the %v of %s are over", d, bootstrap.EnvJoinTimeout))
		defer cancel()
	}
	if err := w.start(ctx); err != nil {
		_ = w.release(err, true)
		return nil, wrapf("init: %w", err)
	}
	return w, nil
}

// prepare completes cfg and loads what it names.
func prepare(cfg *Config) (full settings.Config, tls *secure.Layer, err error) {
	if full, err = cfg.resolve(); err != nil {
		return full, nil, err
	}
	if tls, err = full.Security().Load(); err != nil {
		err = invalidf("Config.TLS (%s): %v", bootstrap.EnvTLS, err)
	}
	return full, tls, err
}

// detect joins the job of the launcher. alone reports that there is no launcher, so that a later
// Init may join again.
func detect(ctx context.Context, secret []byte, cfg *settings.Config, waits *bootstrap.Waits) (b Bootstrap, alone bool, err error) {
	if !joined.CompareAndSwap(false, true) {
		return nil, false, invalidf("this process has joined its job already: use one World, or give the second Config a Bootstrap of its own")
	}
	opt := bootstrap.Options{Secret: secret, Timeout: cfg.JoinTimeout, PeerTimeout: cfg.PeerTimeout,
		Ports: cfg.Ports, TLS: cfg.TLS, Logger: cfg.Logger, Waits: waits}
	var door *doors.Door
	opt.Found = func(found bootstrap.Found) { door = openJoining(cfg, &found, waits) }
	b, err = bootstrap.Detect(ctx, opt)
	door.Close()
	if err != nil {
		joined.Store(false)
		return nil, false, wrapf("init: %w", err)
	}
	return b, b.Info().Launcher == "singleton", nil
}

// start opens devices, transport and engine, exchanges cards and tells the engine where each rank
// is. Nothing is connected yet. A rank that fails publishes that in its card, so that the others do
// not wait for it.
func (w *World) start(ctx context.Context) error {
	if w.size > maxRanks {
		return invalidf("%d ranks: at most %d are supported", w.size, maxRanks)
	}
	secret := w.secret()
	if err := w.checkSecret(secret); err != nil {
		return err
	}
	door, hidden := w.openDoor()
	mine := newCard(&w.cfg, secret)
	failed := w.open(secret)
	if failed != nil {
		mine.failure = head(failed.Error(), maxFailure)
	} else {
		mine.address, mine.noSHM = w.eng.Address(), head(w.parts.noSHM, maxNoSHM)
	}
	all, err := exchange(ctx, w.parts.boot, mine)
	if err != nil {
		w.tellFailure(err)
		return errors.Join(err, failed) // this rank's own too
	}
	if err := all.agree(); err != nil {
		return err
	}
	if err := w.connect(all); err != nil {
		return err
	}
	w.tellWires(all)
	w.tellTLS()
	w.localRank, w.localSize = all.locals(w.parts.boot.Info(), w.rank)
	w.hosts = all.hosts()
	w.eng.Share(all.sharers(w.rank))
	w.record()
	w.eng.Start()
	w.watch()
	w.started.Store(true)
	w.startWatchdog(door, hidden)
	return nil
}

// connect tells the engine where each rank is.
func (w *World) connect(all cards) error {
	for r := range all {
		c := all.of(r)
		if err := w.eng.Connect(r, c.address); err != nil {
			hint := ""
			if errors.Is(err, syscall.EHOSTUNREACH) {
				hint = w.insists()
			}
			return fmt.Errorf("connecting to rank %d on %s: %w%s", r, c.host, err, hint)
		}
	}
	return nil
}

// checkSecret is an error where the job cannot be without a secret, and is.
func (w *World) checkSecret(secret []byte) error {
	switch {
	case w.size == 1:
		return nil
	case len(secret) > 0:
		return w.checkExposed()
	case fips140.Enforced():
		return invalidf("the job has no secret, and GODEBUG=fips140=only allows no handshake without one: give Config.Secret, or a Bootstrap that has one")
	case w.parts.tls != nil:
		return invalidf("the job has no secret, and Config.TLS (%s) needs one: give Config.Secret, or a Bootstrap that has one", bootstrap.EnvTLS)
	}
	return nil
}

// checkExposed is an error where TLS would be bound to a secret that others may have read.
func (w *World) checkExposed() error {
	i := w.parts.boot.Info()
	if w.parts.tls == nil || w.parts.secret != nil || !i.SecretExposed {
		return nil
	}
	return invalidf("the secret of this Bootstrap (%s) went to the ranks in plain, and Config.TLS (%s) needs one that only they know: "+
		"set %s or %s for all ranks, or give Config.Secret", i.SecretOrigin, bootstrap.EnvTLS, bootstrap.EnvSecret, bootstrap.EnvSecretFile)
}

// secret is the job's secret: Config.Secret, or the Bootstrap's.
func (w *World) secret() []byte {
	if w.parts.secret != nil {
		return w.parts.secret
	}
	return w.parts.boot.Info().Secret
}

// lossGrace is how long the device has to detect a loss by itself after the launcher reports it.
// The device's report comes after all messages of that rank; and after an orderly Shutdown this
// World is closed before the time is over.
const lossGrace = 500 * time.Millisecond

// watch fails operations when the job is aborted, and those that wait for a rank that left the job
// before it was connected to this one. When nobody tells of such ranks any more the engine looks
// for itself.
func (w *World) watch() {
	w.watcher.Go(func() {
		for loss := range w.parts.boot.Losses() {
			time.AfterFunc(lossGrace, func() {
				w.parts.boot.Lost(loss.Rank)
				w.eng.PeerLost(loss.Rank, lossCause(loss))
			})
		}
		w.eng.ReachAwaited()
		_ = w.eng.Call(w.contexts.ReachAwaited) // fails where all calls have
	})
	w.watcher.Go(func() {
		for info := range w.parts.boot.Aborted() {
			w.eng.Abort(abortError(info))
		}
	})
}

// tellFailure reports the ranks that a failed fence names to the launcher.
func (w *World) tellFailure(err error) {
	var r *bootstrap.RankError
	if errors.As(err, &r) {
		w.parts.boot.Lost(r.Rank)
	}
}

func lossCause(l bootstrap.Loss) error {
	if l.GivenUp {
		if what, ok := strings.CutPrefix(l.Reason, ErrProtocol.Error()); ok {
			return fmt.Errorf("rank %d has given this rank up: %w%s", l.Rank, ErrProtocol, what)
		}
		return fmt.Errorf("rank %d has given this rank up: %s", l.Rank, l.Reason)
	}
	return departed(l.Reason)
}

// reportGivenUp reports to a rank, through the launcher's store, that this rank has given it up: it
// may have no other way to find out. The engine calls it and does not wait.
func (w *World) reportGivenUp(rank int, cause error) {
	w.parts.boot.Lost(rank)
	if rank == w.rank {
		return
	}
	w.watcher.Go(func() {
		if err := w.parts.boot.ReportGivenUp(rank, cause.Error()); err != nil && w.cfg.Logger != nil {
			w.cfg.Logger.Debug("a rank that was given up cannot be told", "rank", w.rank, "peer", rank, "err", err)
		}
	})
}

// abortError is the error of an abort, which the engine also sends to the other ranks.
func abortError(info bootstrap.AbortInfo) error {
	who := fmt.Sprintf("rank %d", info.Rank)
	if info.Rank < 0 {
		who = "the launcher"
	}
	return fmt.Errorf("%w: by %s with code %d: %s", ErrAborted, who, info.Code, info.Reason)
}

// abortedByRank begins the text of an abortError that names a rank.
var abortedByRank = ErrAborted.Error() + ": by rank "

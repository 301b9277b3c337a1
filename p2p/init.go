package p2p

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/tagmatch/tagmatch/bootstrap"
	"github.com/tagmatch/tagmatch/verbs"
)

// parts are what a World is wired from, in the order in which they are opened.
type parts struct {
	boot  Bootstrap
	devs  []verbs.Device // best first
	noSHM string         // why this rank has no shared memory that it was to have
}

// joined is set once this process has taken the place in the job that its launcher gave it.
var joined atomic.Bool

// Init joins the job: collective, ends with ctx, or when Config.JoinTimeout is over: then the error
// of every rank that has joined names those that have not. cfg is copied. A TAGMATCH_ variable that
// nobody knows is ErrInvalid. A process has one World per launcher; a second Init without its own
// Config.Bootstrap is ErrInvalid, also after Close, except where no launcher has started the
// process and the first World is closed. (Package p2ptest: Run(t, n, func(w *World)) gives n Worlds
// in one process.)
func Init(ctx context.Context, cfg Config) (*World, error) {
	if ctx == nil {
		return nil, errNoContext
	}
	full, _, err := cfg.resolve(os.Getenv)
	if err = errors.Join(err, CheckEnvironment(os.Environ())); err != nil {
		if cfg.Bootstrap != nil {
			_ = cfg.Bootstrap.Close()
		}
		return nil, err
	}
	alone := false
	start := time.Now()
	if full.Bootstrap == nil {
		if full.Bootstrap, alone, err = detect(ctx, &full); err != nil {
			return nil, err
		}
	}
	w := &World{cfg: full, rank: full.Bootstrap.Rank(), size: full.Bootstrap.Size(), alone: alone, parts: parts{boot: full.Bootstrap}}
	w.comm = Comm{w: w, base: namespace | worldContext<<contextShift}
	if d := full.joinTimeout(); d > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadlineCause(ctx, start.Add(d), fmt.Errorf("the %v of %s are over", d, bootstrap.EnvJoinTimeout))
		defer cancel()
	}
	if err := w.start(ctx); err != nil {
		_ = w.release(err)
		return nil, fmt.Errorf("p2p: init: %w", err)
	}
	return w, nil
}

// detect takes this process's place in its launcher's job. alone says that there is no launcher, so
// that the place can be taken again.
func detect(ctx context.Context, cfg *Config) (b Bootstrap, alone bool, err error) {
	if !joined.CompareAndSwap(false, true) {
		return nil, false, invalidf("this process has joined its job already: use one World, or give the second Config a Bootstrap of its own")
	}
	b, err = bootstrap.Detect(ctx, bootstrap.Options{Secret: cfg.Secret, Timeout: cfg.joinTimeout(), PeerTimeout: cfg.peerTimeout(),
		Logger: cfg.Logger})
	if err != nil {
		joined.Store(false)
		return nil, false, fmt.Errorf("p2p: init: %w", err)
	}
	return b, b.Info().Launcher == "singleton", nil
}

// start opens what this rank needs, meets the others and connects to them. A rank that cannot take
// part says so instead of leaving the others to wait for it.
func (w *World) start(ctx context.Context) error {
	if w.size > maxRanks {
		return invalidf("%d ranks: at most %d are supported", w.size, maxRanks)
	}
	secret := w.secret()
	mine := newCard(&w.cfg, secret)
	if err := w.open(secret); err != nil {
		mine.Failure = err.Error()
	} else {
		mine.Address, mine.NoSHM = w.eng.Address(), w.parts.noSHM
	}
	cards, err := exchange(ctx, w.parts.boot, mine)
	if err != nil {
		w.tellFailure(err)
		return errors.Join(err, failure(mine))
	}
	if err := agree(cards); err != nil {
		return err
	}
	for r := range cards {
		if err := w.eng.Connect(r, cards[r].Address); err != nil {
			return fmt.Errorf("connecting to rank %d on %s: %w%s", r, cards[r].Host, err, w.insists())
		}
	}
	w.tellWires(cards)
	w.localRank, w.localSize = locals(w.parts.boot.Info(), w.rank, cards)
	w.eng.Share(sharers(w.rank, cards))
	w.eng.Start()
	w.watch()
	return nil
}

// failure is what kept this rank from taking part, to be told even where the others could not be.
func failure(mine card) error {
	if mine.Failure == "" {
		return nil
	}
	return errors.New(mine.Failure)
}

// secret is the job's: the program's own, or the Bootstrap's.
func (w *World) secret() []byte {
	if w.cfg.Secret != nil {
		return w.cfg.Secret
	}
	return w.parts.boot.Info().Secret
}

// lossGrace is how long the device has to notice a loss that the launcher reports: its news comes
// after the messages that the rank has sent, and after the end of an orderly Shutdown there is
// nobody left to tell.
const lossGrace = 500 * time.Millisecond

// watch ends operations when another rank, or the launcher, aborts the job, and those that wait for
// a rank that has left it without ever having been connected to.
func (w *World) watch() {
	w.watcher.Go(func() {
		for loss := range w.parts.boot.Losses() {
			time.AfterFunc(lossGrace, func() {
				w.parts.boot.Lost(loss.Rank)
				w.eng.PeerLost(loss.Rank, lossCause(loss))
			})
		}
	})
	w.watcher.Go(func() {
		for info := range w.parts.boot.Aborted() {
			w.eng.Abort(abortError(info))
		}
	})
}

// tellFailure tells the launcher of a rank that a failed fence names.
func (w *World) tellFailure(err error) {
	var r *bootstrap.RankError
	if errors.As(err, &r) {
		w.parts.boot.Lost(r.Rank)
	}
}

func lossCause(l bootstrap.Loss) error {
	if l.Parted {
		return fmt.Errorf("rank %d has given this rank up: %s", l.Rank, l.Reason)
	}
	return departed(l.Reason)
}

// part tells a rank that this one has given it up: the rank may have no means to find that out. It
// is called by the engine, which does not wait for it.
func (w *World) part(rank int, cause error) {
	w.parts.boot.Lost(rank)
	if rank == w.rank {
		return
	}
	w.watcher.Go(func() {
		if err := w.parts.boot.Part(rank, cause.Error()); err != nil && w.cfg.Logger != nil {
			w.cfg.Logger.Debug("a rank that was given up cannot be told", "rank", w.rank, "peer", rank, "err", err)
		}
	})
}

// abortError is for the engine, which tells it to the other ranks.
func abortError(info bootstrap.AbortInfo) error {
	who := fmt.Sprintf("rank %d", info.Rank)
	if info.Rank < 0 {
		who = "the launcher"
	}
	return fmt.Errorf("%w: by %s with code %d: %s", ErrAborted, who, info.Code, info.Reason)
}

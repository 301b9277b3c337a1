package p2p

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"time"

	"github.com/tagmatch/tagmatch/bootstrap"
	"github.com/tagmatch/tagmatch/internal/inspect"
	"github.com/tagmatch/tagmatch/internal/inspect/doors"
	"github.com/tagmatch/tagmatch/internal/inspect/stacks"
	"github.com/tagmatch/tagmatch/internal/settings"
)

// openJoining opens the door of a rank that has not joined yet, where its launcher has told it what
// that takes. The name of the job is not known: this one is made of what all of its ranks know.
func openJoining(cfg *settings.Config, found *bootstrap.Found, waits *bootstrap.Waits) *doors.Door {
	if cfg.Inspect == settings.InspectOff || found.Rank < 0 || found.Size < 2 {
		return nil // of a job of one rank nobody waits
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "tagmatch: job of %d ranks by %s at %s", found.Size, found.Launcher, found.Rendezvous))
	me := self(hex.EncodeToString(sum[:4]), found.Rank, found.Size, cfg)
	d, _ := doors.Open(doors.Name{UID: os.Geteuid(), Job: me.Job, Rank: me.Rank, PID: me.PID}, func(request string) []any {
		if request != inspect.RequestState {
			return doors.Refuse(request)
		}
		return []any{joining(me, waits)}
	})
	return d // nil where it cannot be opened: the rank's own will say that
}

// joining completes the state of a rank that is in Init.
func joining(s inspect.State, waits *bootstrap.Waits) inspect.State {
	var whole bool
	s.Calls, s.Outside, whole = stacks.Parse(stacks.Take())
	text, since := waits.Now()
	if text == "" {
		since = s.Started
	}
	s.Partial, s.Phase, s.At, s.Still = !whole, inspect.PhaseJoining, time.Now(), ageOf(time.Since(since))
	s.Joins = cmp.Or(text, "for all ranks to get ready")
	return s
}

package benchkit

import (
	"fmt"
	"time"
)

// Soak is the result of random messages, beside its Result, whose msg_s and mb_s are those of all
// ranks.
type Soak struct {
	Rounds    int           `json:"rounds"`
	Messages  uint64        `json:"messages"`
	Bytes     uint64        `json:"bytes"`
	Canceled  uint64        `json:"canceled"`   // receives
	Withdrawn uint64        `json:"withdrawn"`  // sends
	Longest   time.Duration `json:"longest_ns"` // of a round
}

// Soak is the result of a test of random messages, of up to size bytes.
func (s *Session) Soak(size, count int, elapsed time.Duration, t Soak) Result {
	seconds := elapsed.Seconds()
	return Result{Test: "soak", Device: s.device(), Transport: s.World.Metrics().Transport, Ranks: s.World.Size(), Size: size, Iters: count,
		MBs: float64(t.Bytes) / seconds / 1e6, MsgS: float64(t.Messages) / seconds, Soak: &t}
}

var soakTable = layout{
	of: func(r *Result) bool { return r.Soak != nil },
	note: func(r *Result) string {
		return fmt.Sprintf("%s; messages that were received and compared, receives that were ended, and sends; the longest round", wires(r))
	},
	columns: []column{{"up to", 10, sizeColumn.text}, ranksColumn,
		whole("rounds", 8, func(r *Result) int { return r.Soak.Rounds }),
		whole("messages", 12, func(r *Result) uint64 { return r.Soak.Messages }),
		whole("canceled", 10, func(r *Result) uint64 { return r.Canceled }),
		whole("withdrawn", 10, func(r *Result) uint64 { return r.Withdrawn }),
		rateColumn, megabytesColumn,
		number("longest ms", 12, 1, func(r *Result) float64 { return float64(r.Longest) / 1e6 })},
}

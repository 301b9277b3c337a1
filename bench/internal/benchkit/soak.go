package benchkit

import "time"

// Soak is the result of random messages, beside its Result, whose msg_s and mb_s are those of all
// ranks.
type Soak struct {
	Rounds    int           `json:"rounds" col:"rounds"`
	Messages  uint64        `json:"messages" col:"received"` // and checked
	Bytes     uint64        `json:"bytes"`
	Canceled  uint64        `json:"canceled" col:"canceled"`   // receives that were ended by Cancel or by their context
	Withdrawn uint64        `json:"withdrawn" col:"withdrawn"` // sends that were ended by their context
	Longest   time.Duration `json:"longest_ns"`                // of a round
}

package diagnose

import "github.com/tagmatch/tagmatch/internal/inspect"

// Class is a kind of fault.
type Class string

// Classes of verdicts.
const (
	Mismatch   Class = "mismatch"                   // a receive or a send that finds no counterpart
	Cycle      Class = "cycle of receives"          // ranks wait for each other
	SendCycle  Class = "cycle of large sends"       // each sends before it receives
	SmallCycle Class = "cycle of sends"             // the same of any size: by Ssend, or without memory
	Collective Class = "collective call not joined" // or another one made in its place
	HeldUp     Class = "held up"                    // sends wait for memory of their receiver
	Late       Class = "late rank"                  // others wait for ranks that are in no call that waits
	Lost       Class = "lost rank"
	Leak       Class = "leak"
	NoAnswer   Class = "no answer"  // a rank is stopped, or says nothing
	NotJoined  Class = "not joined" // ranks wait in Init for others
)

// Deadlock reports whether a verdict of the class says that its ranks wait for good: where it is
// certain, the program has a fault. The other classes state what was seen.
func (c Class) Deadlock() bool {
	switch c {
	case Mismatch, Cycle, SendCycle, SmallCycle, Collective, HeldUp:
		return true
	}
	return false
}

// Verdict is one fault, with the ranks that only wait for those that have it.
type Verdict struct {
	Class   Class  `json:"class"`
	Certain bool   `json:"certain"`         // see the package comment
	Doubt   string `json:"doubt,omitempty"` // why it is not certain

	Ranks   []int `json:"ranks"`             // that have the fault; the culprit first, where one is known
	Culprit bool  `json:"culprit"`           // one is known
	Waiting []int `json:"waiting,omitempty"` // ranks that wait for these, over others or directly
	// Hosts is those of Ranks, as far as they are known, where the job is on several.
	Hosts map[int]string `json:"hosts,omitempty"`

	Comm  string      `json:"comm,omitempty"`
	Tag   *uint64     `json:"tag,omitempty"` // of the receive or send; nil: any, or none
	Bits  *Bits       `json:"bits,omitempty"`
	Bytes uint64      `json:"bytes,omitempty"`
	Where string      `json:"where,omitempty"` // place in the program of the culprit, or of the first of Ranks
	Age   inspect.Age `json:"age,omitempty"`

	What string `json:"what"` // what is wrong
	Do   string `json:"do"`   // what to do about it
}

// Bits are two tags that differ.
type Bits struct {
	Asked uint64 `json:"asked"` // by the receive
	Found uint64 `json:"found"` // in the message
}

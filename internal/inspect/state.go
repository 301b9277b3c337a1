// Package inspect looks into running ranks from outside: what a rank says of itself, the door
// through which it says that, and who finds the doors of a host.
//
// A rank answers each request with lines of JSON. No text of a message, no secret and no
// environment is in an answer.
package inspect

import "time"

// Version is that of State; an answer of another one is refused with both numbers.
const Version = 1

// RequestState is the request that is answered with one State.
const RequestState = "state"

// State is one rank at one moment.
type State struct {
	Version int       `json:"version"`
	Job     string    `json:"job"` // the same for all ranks of a job, and for no other one on this host
	Rank    int       `json:"rank"`
	Size    int       `json:"size"`
	Host    string    `json:"host"`
	PID     int       `json:"pid"`
	Program string    `json:"program"` // the name of its executable, without directories
	At      time.Time `json:"at"`      // of the look
	Started time.Time `json:"started"` // the World

	Device     string `json:"device"`
	Transport  string `json:"transport"`
	EagerLimit int    `json:"eager_limit"` // bytes

	// Moved counts all that has moved in the engine: operations that were begun, messages that
	// came, operations that ended. Two looks with the same count saw the same operations.
	Moved uint64 `json:"moved"`
	Still Age    `json:"still"` // nothing has moved for so long

	// Silent says why the rank has not answered: then nothing is known but Job, Rank, Host, PID and
	// At.
	Silent string `json:"silent,omitempty"`

	// Waiting is how many goroutines inside the library wait for nothing but what is listed below:
	// receives and sends that are Awaited, none of which has ended, and meetings that are Waiting.
	// As many as Calls has (the sum of N) says that none of them is about to go on.
	Waiting int `json:"waiting,omitempty"`
	Timed   int `json:"timed,omitempty"` // of Waiting: those whose context has a deadline

	// Partial says that lists below are not whole: what is not listed may be there. Receives,
	// messages and sends that are alike are one entry, so that few lists need be cut.
	Partial bool `json:"partial,omitempty"`

	Phase  string         `json:"phase"`            // see PhaseRunning
	Joins  string         `json:"joins,omitempty"`  // of PhaseJoining: what it waits for, Still long; little else is known then
	Failed map[int]string `json:"failed,omitempty"` // lost ranks, with the cause; at most 100
	Losses int            `json:"losses,omitempty"` // how many ranks are lost
	// Unacked is the lost ranks that AckFailures was not told of, by Comm: receives from any source
	// of it end with an error. CommWorld stands for raw receives too.
	Unacked map[string][]int `json:"unacked,omitempty"`
	Broken  string           `json:"broken,omitempty"` // why the whole engine has stopped
	Leaked  uint64           `json:"leaked,omitempty"` // about how many requests have ended that nobody has completed; 0: none, or not known
	Calls   []Call           `json:"calls,omitempty"`  // goroutines inside the library
	// Outside is goroutines outside of it, whatever they do, but those of the runtime, of os/signal
	// (NotifyContext's too) and of the library. One that sleeps, or waits for a channel or a
	// connection, can send a message at any time.
	Outside []Place `json:"outside,omitempty"`

	// Lists are not longer than some hundred entries. What is not in them is counted: receives and
	// probes, messages, sends. Those that are awaited come first, then the oldest.
	Receives     []Receive `json:"receives,omitempty"`
	Messages     []Message `json:"messages,omitempty"` // that no receive has matched
	Sends        []Send    `json:"sends,omitempty"`    // that have not ended
	Peers        []Peer    `json:"peers,omitempty"`    // of whom something is worth knowing
	MoreReceives int       `json:"more_receives,omitempty"`
	MoreMessages int       `json:"more_messages,omitempty"`
	MoreSends    int       `json:"more_sends,omitempty"`
	Meetings     []Meeting `json:"meetings,omitempty"` // collective calls that this rank is in, or was last in
}

// Phases of a rank.
const (
	PhaseJoining  = "joining" // in Init
	PhaseRunning  = "running"
	PhaseShutdown = "in shutdown"
	PhaseClosed   = "closed"
)

// Comms, beside "Comm N".
const (
	CommWorld   = "World"   // World.Comm
	CommRaw     = "raw"     // calls of the World by tag and mask
	CommLibrary = "library" // Barrier, Dup, Split and the like
)

// Key is what a message bears, or what a receive asks for.
type Key struct {
	Comm string `json:"comm"` // see CommWorld; equal names of two ranks are the same Comm
	Tag  uint64 `json:"tag"`
	Mask uint64 `json:"mask,omitempty"` // of a receive: the bits of Tag that count, where not all do
	Any  bool   `json:"any,omitempty"`  // any tag of the Comm
}

// Any is Peer of a receive from any source.
const Any = -1

// Receive is posted receives, or probes, that are alike.
type Receive struct {
	Key
	Peer    int    `json:"peer"` // the source, by rank of the World; Any
	Bytes   uint64 `json:"bytes"`
	N       int    `json:"n"`
	Awaited int    `json:"awaited,omitempty"` // of them, those that a blocking call waits for
	Kind    string `json:"kind"`              // "receive", "probe", "alloc" (its length is unknown)
	Where   string `json:"where"`             // "software", "device", WhereRead
	Age     Age    `json:"age"`               // of the oldest
	From    []int  `json:"from,omitempty"`    // of Any: the ranks that it can come from, where not all can
}

// WhereRead is where a receive is that has its message: the bytes are on their way.
const WhereRead = "being received"

// Message is unexpected messages that are alike.
type Message struct {
	Key
	Peer  int    `json:"peer"` // the source
	Bytes uint64 `json:"bytes"`
	N     int    `json:"n"`
	Eager bool   `json:"eager"` // its bytes are here
	Age   Age    `json:"age"`
}

// Send is sends that are alike.
type Send struct {
	Key
	Peer    int    `json:"peer"` // the destination
	Bytes   uint64 `json:"bytes"`
	N       int    `json:"n"`
	Awaited int    `json:"awaited,omitempty"`
	Stage   string `json:"stage"` // see the constants
	Age     Age    `json:"age"`
}

// Stages of a send.
const (
	StageRoom      = "waits for room"  // in the device, or for a connection
	StageHeld      = "held up"         // the receiver has no memory for more unexpected messages
	StageRequested = "not received"    // the receiver was told, and has not received it
	StageWithdrawn = "being withdrawn" // its context has ended, the receiver has not answered
)

// Peer is what this rank knows of another one.
type Peer struct {
	Rank      int    `json:"rank"`
	Connected bool   `json:"connected"`
	Queued    int    `json:"queued,omitempty"`   // sends to it that wait: for room, a connection or its memory
	HeldUp    int    `json:"held_up,omitempty"`  // sends to it that wait for its memory
	Wants     int    `json:"wants,omitempty"`    // receives of it that wait for others, as it has told
	HoldsUp   bool   `json:"holds_up,omitempty"` // its sends wait for memory of this rank
	Charged   uint64 `json:"charged,omitempty"`  // bytes of its messages here
	Window    uint64 `json:"window,omitempty"`   // bytes that they may be

	// What shows that nothing is on its way between two ranks: each count has one at the peer that
	// follows it, and is the same once nothing is. A peer of which one is not 0 is listed.
	//
	// Every tagged message costs credit when it goes on its way, be it the program's or the
	// library's, eager or a request: Sent is what those to the peer have cost since the start, Came
	// what those of the peer have that have come. A message that waits at its sender is in neither.
	// One that the device has matched may not be in Came before it is read: its receive is at
	// WhereRead.
	Sent uint64 `json:"sent,omitempty"` // flow.Sender.Charged
	Came uint64 `json:"came,omitempty"` // charged, of credit.Account.Usage

	// Episode is that of the sends to the peer, odd while they are held up, and Seen the one of the
	// peer's last HELD (both of package flow). Credit in all: Allowed is what this rank knows that
	// it has at the peer, Granted what it has given the peer, also where that has not been told.
	// Asked is the WANTs that the peer was told since the start, Heard those of the peer.
	Episode uint32 `json:"episode,omitempty"`
	Seen    uint32 `json:"seen,omitempty"`
	Allowed uint64 `json:"allowed,omitempty"`
	Granted uint64 `json:"granted,omitempty"`
	Asked   uint64 `json:"asked,omitempty"`
	Heard   uint64 `json:"heard,omitempty"`
}

// Meeting is a collective call: what each member of a Comm must join. Calls of package coll have a
// numbering of their own.
type Meeting struct {
	Name    string `json:"name"`              // "Dup", "Split", "Barrier", MeetingShutdown, "coll.AllReduce"
	Comm    string `json:"comm"`              // "" of Shutdown
	Number  uint64 `json:"number"`            // how many of the Comm were begun here, this one included
	Waiting bool   `json:"waiting"`           // this rank is in it
	Size    int    `json:"size"`              // members
	Members []int  `json:"members,omitempty"` // ranks of the World; empty: all, or too many to be listed where Size is not that of the World
}

// MeetingShutdown is the Name of the Meeting of Shutdown.
const MeetingShutdown = "Shutdown"

// Place is a line of the program.
type Place struct {
	At    string `json:"at"`    // "main.go:73 main.exchange"; "" where no frame is the program's
	N     int    `json:"n"`     // goroutines
	State string `json:"state"` // the runtime's word, such as "running", "runnable", "sleep"
}

// Call is calls of the library that are alike.
type Call struct {
	Name string `json:"name"` // "Comm.Recv", "Request.Wait", "coll.AllReduce"
	Place
	Age Age `json:"age"`
}

// Look is what was heard of the ranks of a job, each at a moment of its own.
type Look struct {
	States []State  `json:"states"`
	Absent []Absent `json:"absent,omitempty"` // ranks that have not answered
}

// Absent is a rank that has not answered.
type Absent struct {
	Rank int    `json:"rank"`
	Host string `json:"host,omitempty"`
	PID  int    `json:"pid,omitempty"`
	Why  string `json:"why"` // see WhyGone
}

// Why a rank has not answered.
const (
	WhyGone    = "gone"                     // its process has ended
	WhyStopped = "stopped"                  // by a signal or a debugger
	WhyDisk    = "in uninterruptible sleep" // mostly a file system that hangs
	WhySilent  = "silent"                   // nothing is known
)

// Age is a duration in milliseconds, as far as it is known; 0 is not known. It is at least that.
type Age int64

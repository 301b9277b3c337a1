package trace

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Version is that of requests and answers; it changes with any of them.
const Version = 2

// Request is what all ranks of a job are asked: to begin, to end, or to hand out what was recorded.
type Request struct {
	ID int // names the trace, above 0 and of 31 bits: who asks chooses it

	Start   bool
	Records int           // of Start: how many are kept
	For     time.Duration // of Start: after so long the rank ends it by itself

	Stop bool
	Read bool
	From int // of Read: the first record
	Rank int // of Read: the first rank that hands out any, of ReadAtOnce
}

// Bounds of an answer to Read: a rank's fits into a bootstrap's reply, and those of all ranks that
// answer at once into what rank 0 keeps of them.
const (
	MostInPart = 1000 // records
	ReadAtOnce = 64   // ranks
)

// Reads reports whether a rank hands out records.
func (q Request) Reads(rank int) bool { return q.Read && rank >= q.Rank && rank < q.Rank+ReadAtOnce }

const word = "trace "

// String is the line that a door is asked.
func (q Request) String() string {
	switch {
	case q.Start:
		return fmt.Sprintf("%sstart %d %d %d", word, q.ID, q.Records, q.For.Milliseconds())
	case q.Stop:
		return fmt.Sprintf("%sstop %d", word, q.ID)
	}
	return fmt.Sprintf("%sread %d %d %d", word, q.ID, q.From, q.Rank)
}

// ParseRequest is the inverse of String; false where s is none.
func ParseRequest(s string) (q Request, ok bool) {
	rest, ok := strings.CutPrefix(s, word)
	if !ok {
		return q, false
	}
	name, args, _ := strings.Cut(rest, " ")
	var numbers []int
	for _, f := range strings.Fields(args) {
		n, err := strconv.ParseUint(f, 10, 31)
		if err != nil {
			return q, false
		}
		numbers = append(numbers, int(n))
	}
	switch {
	case name == "start" && len(numbers) == 3:
		q = Request{ID: numbers[0], Start: true, Records: numbers[1], For: time.Duration(numbers[2]) * time.Millisecond}
	case name == "stop" && len(numbers) == 1:
		q = Request{ID: numbers[0], Stop: true}
	case name == "read" && len(numbers) == 3:
		q = Request{ID: numbers[0], Read: true, From: numbers[1], Rank: numbers[2]}
	}
	return q, q.ID > 0 && q.String() == s
}

// Answer is what a rank says to each Request. Of Start only the head is set; of Stop the numbers
// too; of Read the head and Part.
type Answer struct {
	Version int    `json:"trace_version"`
	Job     string `json:"job"`
	Rank    int    `json:"rank"`
	Size    int    `json:"size"`
	Host    string `json:"host"`
	PID     int    `json:"pid"`
	Program string `json:"program"`

	// When it began, in ns: by the clock that all processes of the host share, where there is one,
	// and since 1970.
	Mono int64 `json:"mono"`
	Wall int64 `json:"wall"`

	Records int      `json:"records"` // that there are to be read
	Lost    uint64   `json:"lost"`    // older ones, that there was no room for
	Comms   []string `json:"comms"`   // the Comms of tags, at most MostComms
	Part    []byte   `json:"part,omitempty"`
}

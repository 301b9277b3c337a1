package trace

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Version is that of requests and answers; it changes with any of them.
const Version = 1

// Request is what a rank is asked: to begin, to end, or to hand out what was recorded.
type Request struct {
	Start   bool
	Records int           // of Start: how many are kept
	For     time.Duration // of Start: after so long the rank ends it by itself

	Stop bool
	Read bool
	From int // of Read: the first record
}

const word = "trace "

// String is the line that a door is asked.
func (q Request) String() string {
	switch {
	case q.Start:
		return fmt.Sprintf("%sstart %d %d", word, q.Records, q.For.Milliseconds())
	case q.Stop:
		return word + "stop"
	}
	return fmt.Sprintf("%sread %d", word, q.From)
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
	case name == "start" && len(numbers) == 2:
		q = Request{Start: true, Records: numbers[0], For: time.Duration(numbers[1]) * time.Millisecond}
	case name == "stop" && len(numbers) == 0:
		q.Stop = true
	case name == "read" && len(numbers) == 1:
		q = Request{Read: true, From: numbers[0]}
	}
	return q, q.String() == s
}

// Answer is what a rank says to each Request. Of Start only the head is set; of Stop the rest too,
// without Part.
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
	Comms   []string `json:"comms"`   // the Comms of tags
	Part    []byte   `json:"part,omitempty"`
}

// MostInPart is how many records Part has at most: with them an answer has a megabyte.
const MostInPart = 1 << 14

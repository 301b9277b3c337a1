package inspect

import "encoding/json"

// RequestJob before another request, with a blank between, passes that on to all ranks of the job,
// on all hosts. The answer is a Part for each, in no order.
const RequestJob = "job"

// Part is what one rank has answered, or why it has not.
type Part struct {
	Rank  int               `json:"rank"`
	Lines []json.RawMessage `json:"lines,omitempty"` // as the rank's own door has them

	// Where there are no Lines.
	Why  string `json:"why,omitempty"`
	Host string `json:"host,omitempty"` // "": not known
	PID  int    `json:"pid,omitempty"`  // of the process on that host; 0: not known
}

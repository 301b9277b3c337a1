package inspect

import (
	"encoding/json"
	"time"
)

// RequestMetrics is the request that is answered with one Metrics. It costs a rank much less than
// RequestState.
const RequestMetrics = "metrics"

// Metrics is the counters of one rank at one moment.
type Metrics struct {
	Version int       `json:"version"` // see Version
	Job     string    `json:"job"`
	Rank    int       `json:"rank"`
	Size    int       `json:"size"`
	Host    string    `json:"host"`
	PID     int       `json:"pid"`
	Program string    `json:"program"`
	At      time.Time `json:"at"`
	Started time.Time `json:"started"`

	// Values is p2p.Metrics: package meters reads it, and has names for what is in it.
	Values json.RawMessage `json:"values,omitempty"`

	CPU             time.Duration `json:"cpu"`              // processor time of the process
	UnexpectedLimit int64         `json:"unexpected_limit"` // bytes: p2p.Config has it

	Silent string `json:"silent,omitempty"` // as in State; then only Job, Rank, Host, PID and At are known
}

package soft

import (
	"github.com/tagmatch/tagmatch/verbs/soft/internal/tcp"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/wire"
)

// Threshold is a size at which a wire changes what it does.
type Threshold struct {
	Bytes int
	What  string // from this size on, or up to it
}

// Thresholds are those of a wire. They were measured (docs/performance.md), and are not to be set.
func Thresholds(name string) []Threshold {
	switch name {
	case WireSHM:
		return []Threshold{
			{halveFrom, "from here on each end copies one half of a read"},
			{wire.MaxChunk, "the most that is copied by one system call"},
		}
	case WireTCP:
		return []Threshold{
			{tcp.PlaceFrom, "from here on payloads are read to where they belong"},
			{tcp.DirectFrom, "from here on payloads are written without a copy"},
		}
	}
	return nil
}

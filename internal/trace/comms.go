package trace

// MostComms is how many Comms a trace names, the last for all others.
const MostComms = 1 << 12

// OtherComms is the name of the others.
const OtherComms = "another Comm"

// Name gives each record its Comm and the program's tag, which of tells for a tag of the engine. It
// returns the names of the Comms.
func Name(list []Record, of func(tag uint64) (comm string, own uint64)) []string {
	c := comms{index: map[string]uint16{}}
	for i := range list {
		r := &list[i]
		switch r.Kind {
		case Queued, Sent, Requested, Posted, Arrived, Asked, Received, Begun, Matched:
			comm, own := of(r.Tag)
			r.Comm, r.Tag = c.number(comm), own
		}
	}
	return c.names
}

// comms numbers the names of Comms.
type comms struct {
	names []string
	index map[string]uint16
}

func (c *comms) number(name string) uint16 {
	const last = MostComms - 1
	n, known := c.index[name]
	switch {
	case known:
		return n
	case len(c.names) > last:
		return last
	case len(c.names) == last:
		name = OtherComms
	}
	n = uint16(len(c.names))
	c.names, c.index[name] = append(c.names, name), n
	return n
}

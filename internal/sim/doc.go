// Package sim plays whole jobs, 2 to 16 ranks with their engines, transports and devices, on one
// goroutine over the loop wire, and checks everything that a rank sees.
//
// A Plan is all that a run depends on: the parameters of engines, devices and wires, and steps such
// as "rank 2 sends", "the device of rank 0 works twice", "the link between 1 and 3 breaks". NewPlan
// draws one from a seed. Run plays it: the same plan gives the same run. It checks: content, length
// and order of every message, by internal/matchmodel; that buffers do not change after the end of
// their operation (V4 of docs/tag-matching-offload.md, section 7.1), nor the bytes around them;
// that every operation ends, even if every bare SYNC is lost (V18); that a loss ends what waits for
// the lost rank, and an abort everything in all ranks that it can reach; that a flush waits for
// earlier sends; that each error has a cause among the plan's faults and contexts; that counters
// add up; that nothing stays registered. In a build with -tags invariants engines and devices check
// their own state too, completely each time (invariant.Thorough).
//
// Some messages are sent in Comms: a context of the tag and a group of ranks, of any of which a
// rank receives. The loss of a member must end such a receive or probe, and no other loss may.
// Ranks close their Comms and make them again, by the protocol of internal/contexts; only the
// collective calls that agree on a new context are left out. A tag also has the number of its Comm:
// no message may come to a rank where its context is free, or that of another Comm. At the end all
// Comms are closed, and their contexts must become free unless the first rank is lost, or two that
// live have lost each other.
//
// A rank may be in one blocking call: a receive or send whose context ends when the plan decides,
// as does the time that a receiver has to answer, or a Flush. Meanwhile other goroutines of the
// rank post and poll. Some receives are matched probes, whose message is received later, or
// discarded; what other probes say is compared with the receive that follows.
//
// Not played are several calls of a rank that wait for each other (who polls, who parks), and
// losses that a program reports (PeerLost). The tests of package progress play those.
//
// Shrink makes a failing plan smaller. The command is internal/sim/cmd/sim.
//
// Concurrency: Run may be called by several goroutines at once, each with its own Plan.
package sim

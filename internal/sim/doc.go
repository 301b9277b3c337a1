// Package sim plays whole jobs, 2 to 16 ranks with their engines, transports and devices, on one
// goroutine over the loop wire, and checks everything that a rank sees.
//
// A Plan says all that a run depends on: the knobs of engines, devices and wires, and steps such as
// "rank 2 sends", "the device of rank 0 works twice", "the link between 1 and 3 breaks". NewPlan
// draws one from a seed. Run plays it: the same plan gives the same run. What is checked: content,
// length and order of every message, by internal/matchmodel; that buffers are left alone once their
// operation has ended (V4 of docs/tag-matching-offload.md, section 7.1), and so are the bytes
// around them; that everything ends, also where every bare SYNC is lost (V18); that a loss ends
// what waits for the lost rank, and an abort everything in all ranks that can hear of it; that a
// flush waits for what was sent before; that errors are those of the faults and contexts in the
// plan; that counters add up; that nothing stays registered. In a build with -tags invariants
// engines and devices check their own state besides, all of it each time (invariant.Thorough).
//
// A rank may be in one call that blocks: a receive or send whose context the plan ends when it
// wants to, as it does the time that a receiver has to answer, or a Flush. Meanwhile other
// goroutines of the rank post and poll.
//
// What is not played: several calls of a rank that wait for each other, who polls and who parks;
// losses that a program reports (PeerLost). The tests of package progress play those.
//
// Shrink makes a plan that fails smaller. The command is internal/sim/cmd/sim.
//
// Concurrency: Run may be called by several goroutines at once, each with a Plan of its own. This
// package carries no compatibility promise yet.
package sim

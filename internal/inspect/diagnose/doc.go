// Package diagnose says what is wrong with a job that hangs or crawls, from what its ranks say of
// themselves (package inspect) at two moments: who waits for whom, who is the culprit, and what to
// do. It is pure: no clock, no I/O, no goroutine.
//
// # The graph
//
// Each rank waits for what its blocking calls wait for: receives, sends that their receiver was
// told of or that are held up for its memory, and collective calls. It can go on where one of these
// can come, so a receive from any source needs one of the ranks that it can come from. A collective
// call that waits for all ranks (Dup, Split, Barrier, Shutdown) needs all that have not joined it;
// those of package coll wait for messages, which are listed as receives. A send needs its receiver
// to go on, a receive its sender.
//
// The ranks that can go on are the least set that follows from those that can without anybody's
// doing. The others are stuck: none of them can do anything before another one of them does. It is
// found twice (solution): by what the last look suggests, and strictly, where whatever was not seen
// to be impossible may happen. What the first says and the second does not is told as "now".
//
// Of stuck ranks the strongly connected components that nothing leads out of (knots) are the
// causes, and so are ranks that are in no call, or do not answer, and that others wait for. All
// other ranks are told as those that wait for them.
//
// # What certain means
//
// Certain verdicts for which Class.Deadlock is true say that the ranks wait
// for good: as long as no further rank is lost and nobody intervenes, no message ever lets them go
// on. Of a Mismatch this is said of the first of Ranks, of the others of all. A program without a
// fault does not come to that. It is concluded where all of the following hold for each rank x of a
// set, and for each rank that could let x go on, which is in the set too:
//
//   - x was looked at twice, and has not moved between (State.Moved).
//   - All of its goroutines wait: none is outside of the library, but such as only another
//     goroutine can wake (mutexes and wait groups; a channel may get something from a timer or a
//     signal), and as many as are in calls wait for what is listed, without a deadline
//     (State.Waiting, Timed). This holds for both looks: goroutines and engine are not read at the
//     same moment, but of one look the goroutines were read between the two readings of an engine
//     that has not moved.
//   - What it waits for is listed, and so is what could satisfy it (State.Partial).
//   - Of each rank y that a receive of x can come from all messages have arrived: what y has sent
//     to x (Peer.Sent) is what x has taken in (Peer.Came). No send of y to x that x's receive would
//     match was begun, and no such message is at x.
//   - Each send of x that its receiver was told of lies there as a message that no receive has
//     matched.
//   - For each send that is held up the receiver knows of it (Episode, Seen), has given no credit
//     and told no WANT that has not arrived (Allowed, Granted, Asked, Heard), has no receive that
//     would match, and gets no message. All ranks of the job are in the set: any other one could
//     withdraw a message, or send one that is received or discarded, and so free memory.
//   - Of each collective call that waits for all one rank of the set has not begun it. Numbers of
//     such calls only grow.
//
// Why this suffices, although each rank is read at a moment of its own, even of a clock of its own:
// take the first wait of the set that ends after its rank, x, was read for the last time. Until
// then no rank of the set begins anything after it was read, since a wait of it would have ended
// before.
//
// A receive ends by a message of another rank y of the set. So y had begun to send it before y was
// read: it was in the list of its sends, where none would match; or it was in Sent. But all that is
// in Sent has come, and x had no message that matches. For messages of one rank come in order: as
// long as one that is in Sent has not come none that is not in Sent has, and Came is less. (A
// message that the device has matched may be missing in Came though it has come; that only makes
// Came less.)
//
// A send ends when y matches it, which lies there, by a receive that y begins. One that is held up
// goes on when y gives credit, because memory of y becomes free, or tells a WANT; what was given
// and told has arrived, as it is counted alike. A collective call ends after all have begun it.
// Moments of different ranks are never compared.
//
// What cannot be seen is a goroutine that does not exist yet: a timer's function (time.AfterFunc,
// context.AfterFunc) that sends a message. The sentence is true then, since the timer intervenes.
//
// Ranks that are in different collective calls at the same place (Collective too) are certain where
// both looks saw them: which call came at which place does not change.
//
// The other classes are certain only in what they say, which is seen and not concluded:
//
//   - Late: both looks saw the ranks in no call that waits, and those that wait for them had not
//     moved. They may be computing, and come.
//   - Lost: a process has ended, or a rank was given up. Neither comes back.
//   - NoAnswer: in both looks the rank did not answer, for the same reason. It may be continued.
//   - Leak: the rank is in Shutdown, after which nobody completes requests; else the program might
//     do it later, however many there are.
package diagnose

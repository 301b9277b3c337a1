// Package credit decides how much each peer may send that no receive waits for: it divides the
// memory for unexpected messages among the peers, and accounts for what each of them uses. It knows
// no message: a cost is a number of bytes, and who tells a peer of its credit is the caller.
//
// Every tagged message is charged to its sender with what it costs the receiver to keep. Credit is
// a count of bytes that only grows: a sender may have charged, in all, what the receiver has
// granted, in all, so that a later grant replaces an earlier one. The receiver grants what has left
// its memory plus a window for each peer, and the windows come out of one pool.
//
// A window begins when its peer is connected. Initial windows take at most half of the pool: of one
// quarter all peers of the job have the same part, of another each that comes takes a 64th of what
// is left. So they are large where a rank talks to few peers, however many there are.
//
// A window is small for a peer that has never needed more, and doubles when its peer runs out, as
// long as what it has beyond the initial one is at most what is left of the pool. It shrinks by the
// same rule when messages of its peer are consumed. So one busy peer gets half of the pool, two a
// third each, and there is always something left for the next.
//
// What a peer that has no credit sends for a WANT is beyond the bound: its account is in excess
// until it says that it is within its credit again. What happens to a sender without credit, and
// which WANTs it gets, is in package flow.
//
// Concurrency: a Pool and all of its Accounts have one owner at a time; the engine calls them under
// its lock. Every call takes constant time and allocates nothing.
package credit

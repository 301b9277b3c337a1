// Package shmring is a ring of packets in memory that two processes share, and the ready bitmap by
// which a process that reads many rings finds those that have something.
//
// Concurrency: a ring has one writer, its Producer, and one reader, its Consumer. Each of the two
// may be used by one goroutine at a time; they run freely beside each other, in one process or in
// two. An Inbox has one owner, who parks and takes; any number of peers may raise slots in it at
// any time.
//
// The reader takes the writer for hostile: whatever lies in the shared memory is copied out once,
// checked, then used. The worst that a writer can do is to make Consumer.Peek fail and to change
// lent payload bytes while they are read. A hostile reader can make a writer stall or overwrite
// packets in its own ring, no more.
//
//	ring    = control block (256 bytes), then 2^k lines of 64 bytes, not all used at first
//	packet  = consecutive lines, never wrapping: word, id, extension if any, payload
//	word    = 8 bytes, 0 while nothing is published: mark (lap) | meta | form | payload length
//
// A small packet is one line, so that it costs one transfer of a cache line between two cores. The
// word is stored last. Before that the word of the line behind the packet has been cleared, so that
// the reader finds 0 there until the next packet is complete and never takes old payload for a
// word. Behind a packet of a few lines others are cleared some way ahead, after publishing: that
// takes the clearing off the path of the message, and brings lines into the writer's cache before
// it needs them. A longer packet's lines are cleared before it is copied, or while its writer waits
// (Producer.Prepare).
//
// A writer of several small packets publishes them with one such store (Hold, Publish): it stores
// the words of those behind the first plainly, and that of the first last. The reader, which goes
// from one packet to the next, comes to none of them before.
//
// Growth: a writer cycles through all lines of its ring, however few packets are in it, and so uses
// all of its memory. Most of a large job's rings never have much in them. So a ring uses its first
// lines alone until there is no room for a packet there; then its writer says in the line behind
// the last packet that it uses all, and both go on at the first line that was not used (grown).
// What is in the ring stays where it is.
//
// Parking: the reader says in the ring's state word that it does not look (SetHot(false)) and then
// looks once more; the writer publishes and then reads the state (NeedsSignal). Each side stores,
// then loads what the other stored, so there must be a full barrier between the two on both sides,
// or both can miss each other and the reader sleeps beside a full ring. Go's atomic stores are
// sequentially consistent: an exchange on amd64, a store-release ordered before later load-acquires
// on arm64. They must not be weakened to plain stores. progress/models has this as models, park.pml
// and room.pml, and what goes wrong without each barrier.
//
// Copies to the reader's memory, outside the ring: the reader gives away numbers (Grant), with each
// of which the writer may copy until the reader revokes it. The same exchange of a store and a load
// on each side (SetBusy and Granted, Revoke and Busy) has the reader know when nothing is written
// any more. The word that the writer looks at is beside the one that it reads with each packet.
//
// Both ends of a ring come from the same release.
package shmring

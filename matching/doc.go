// Package matching provides the two queues of tag matching: receives that wait
// for a message ([Posted]) and messages that wait for a receive ([Unexpected]).
// Neither is safe for concurrent use: a queue has one owner, who serializes all
// calls, reads included. The package starts no goroutine and has no lock, clock,
// I/O or log; given the seed, its behaviour is a function of the calls.
//
// The package carries no compatibility promise yet.
//
// # Rule
//
// A message with tag t matches a receive (tag, mask) when (t^tag)&mask == 0;
// bits of a receive's tag outside its mask count for nothing. Of several
// receives the one posted first takes a message, of several messages the one
// that arrived first is taken, whatever the masks.
//
// # Cost
//
// Posted keeps a hash table for each mask in use, keyed by tag&mask; a message
// costs one probe for each distinct mask, however many receives there are, and
// sequence numbers decide between the finds. Unexpected keeps a table by whole tag, takes
// the head of the arrival list for mask 0, and gives any other mask an index of
// its own once receives with it have scanned as much as building one costs;
// at most 16 of them, each dropped when messages keep coming and no receive
// uses it. Removal by handle is O(1). Posted keeps receives that were put back into their places
// beside all that: while there are any, a match costs a look at each of their masks more, and
// Return and the match or removal of one take logarithmic time.
//
// The newest elements of a queue are in a ring beside all that, which is searched from its oldest
// element on, or from where the last search for the same tag has ended: what is taken in the order
// in which it came, or in runs of one tag, costs a few compares, however much there is. The oldest
// go to the tables where others come and go behind them. All go there where there are more than
// 16,384, where more than 1,023 have outstayed others, where searches have examined too many, or
// for a walk: once, 0.4 to 1.4 ms for 16,384. Then the tables take what comes, until the queue is
// empty, or for 8,191 elements and until fewer than 512 of those that have moved are left.
//
// Tables are resized a few buckets at a time. What grows with the queue is getting the new array of
// buckets (8 MB for a million keys), and of places of the ring.
//
// The hash is seeded. A peer that does not know the seed cannot choose tags
// that share a bucket.
//
// # Memory
//
// An element takes 32 bytes of the ring, which has up to four times as many places as elements when
// it has just grown. An entry takes 40 bytes, 8 to 16 of buckets, and its value; another 32 to 40
// in each index. A receive that was put back takes some 200, which are allocated. Nothing else is
// while the depth moves within what is kept, and what a queue removes it no longer refers to. An
// empty queue has some 6 KB, and 4 KB more from its first element on. After a spike a queue keeps
//
//   - the ring, 0.5 MB where it had 16,384 places, and 0.8 MB of entries for its elements, which it
//     gets in part where elements outstay others, too;
//   - empty chunks of 128 entries: 64 of them (8,192 entries, some 0.5 MB), or as
//     many as are in use if that is more. A single entry holds on to its chunk;
//   - the array of buckets, which is halved again and again as further traffic
//     shows it to be too large;
//   - for Posted, one small table for each mask of the most that were ever in
//     use at the same time.
//
// A queue is limited to 2^28 entries and panics beyond; its owner bounds it far
// below.
package matching

package matching

import "iter"

// Entries live in chunks of a fixed size and are identified by index, so that growth never moves or
// copies an entry, links cost four bytes, and the garbage collector has no links to follow.
const (
	chunkBits = 7
	chunkSize = 1 << chunkBits
	chunkMask = chunkSize - 1

	// keepEmpty is how many chunks without entries a queue always keeps: a
	// queue that swings by less than keepEmpty*chunkSize never allocates.
	keepEmpty = 64
)

// A Handle is the index in the low bits and the low bits of the sequence number above.
// The sequence number is the generation: it needs no memory of its own and survives the
// release of a chunk. A stale handle could be taken for a live one only after
// exactly a multiple of 2^36 further entries, in the same slot.
const (
	indexBits  = 28
	indexMask  = 1<<indexBits - 1
	genMask    = 1<<(64-indexBits) - 1
	maxEntries = 1 << indexBits
)

// Handle identifies one entry of one queue. The zero Handle is never valid, and the handle of an
// entry that has left its queue is rejected.
type Handle uint64

// Seq is a position in posting or arrival order: 1 for the first entry of a queue, then
// ascending. None is used twice, but by Posted.Return.
type Seq = uint64

// node is an entry's place in arrival order. Index 0 is no entry: as a link
// it means "none", and node 0 is the root of the circular order list.
type node struct {
	seq  uint64 // 0 while the entry is free
	prev uint32
	next uint32 // of a free entry: the next free one of its chunk
}

// shelf is the bookkeeping of one chunk; that of the current chunk is in the
// slab itself.
type shelf struct {
	free       uint32 // first free entry, 0: none
	live       uint32
	prev, next uint32 // neighbours in the list of partly used chunks, plus 1
}

// slab hands out entries and keeps those in use in the order they were added.
type slab struct {
	nodes         []*[chunkSize]node
	links         links
	shelves       []shelf
	seq           uint64 // of the next entry
	n             int    // entries in use
	reservedInUse int    // entries of positions of the ring, whose elements have moved to the tables

	cur     uint32   // the chunk that entries are taken from; on no list
	free    uint32   // its first free entry, 0: none
	live    uint32   // its entries in use
	partial uint32   // list of the other chunks with free and used entries, plus 1
	empty   []uint32 // chunks without entries
	vacant  []uint32 // chunk numbers without memory
	surplus bool     // there are more empty chunks than are worth keeping
}

// reservedChunks is how many chunks the entries take that are reserved, those of the ring and the
// root. They are made when they are needed.
const reservedChunks = (longRing + chunkSize) / chunkSize

// init makes the root. The first entry that is added takes the first chunk that is not reserved.
func (s *slab) init() {
	s.seq = 1
	s.nodes = make([]*[chunkSize]node, reservedChunks)
	s.links = make(links, reservedChunks)
	s.shelves = make([]shelf, reservedChunks)
	for c := range s.shelves {
		s.shelves[c].live = chunkSize
	}
	s.nodes[0] = new([chunkSize]node)
	s.live = chunkSize
}

// useReserved puts a reserved entry last in order.
func (s *slab) useReserved(i uint32, seq uint64) {
	c := i >> chunkBits
	if s.nodes[c] == nil {
		s.nodes[c] = new([chunkSize]node)
	}
	if s.links[c] == nil {
		s.links[c] = new([chunkSize]link)
	}
	s.reservedInUse++
	s.enlist(i, s.node(i), seq)
}

// used reports whether a reserved entry is in use.
func (s *slab) used(i uint32) bool {
	c := s.nodes[i>>chunkBits]
	return c != nil && c[i&chunkMask].seq != 0
}

func (s *slab) node(i uint32) *node { return &s.nodes[i>>chunkBits][i&chunkMask] }

// add takes a free entry, gives it a sequence number and puts it last in order.
func (s *slab) add() uint32 {
	if s.free == 0 {
		s.nextChunk()
	}
	i := s.free
	e := s.node(i)
	s.free = e.next
	s.live++
	s.enlist(i, e, s.seq)
	s.seq++
	return i
}

// enlist appends an entry to the order list.
func (s *slab) enlist(i uint32, e *node, seq uint64) {
	root := &s.nodes[0][0]
	e.seq, e.prev, e.next = seq, root.prev, 0
	s.node(e.prev).next = i
	root.prev = i
	s.n++
}

// release takes an entry out of the order list and frees it.
func (s *slab) release(i uint32) {
	e := s.node(i)
	s.node(e.prev).next = e.next
	s.node(e.next).prev = e.prev
	e.seq = 0
	s.n--
	switch {
	case i <= longRing: // reserved: never on a free list
		s.reservedInUse--
	case i>>chunkBits == s.cur:
		e.next = s.free
		s.free = i
		s.live--
	default:
		s.shelve(i, e)
	}
}

// shelve frees an entry of a chunk that is not the current one.
func (s *slab) shelve(i uint32, e *node) {
	c := i >> chunkBits
	sh := &s.shelves[c]
	full := sh.free == 0
	e.next = sh.free
	sh.free = i
	sh.live--
	if full || sh.live == 0 {
		s.reshelve(c, full)
	}
}

// reshelve puts a chunk on the list that it belongs to after a release.
func (s *slab) reshelve(c uint32, wasFull bool) {
	if s.shelves[c].live != 0 {
		s.linkPartial(c)
		return
	}
	if !wasFull {
		s.unlinkPartial(c)
	}
	s.empty = append(s.empty, c)
	s.surplus = len(s.empty) > s.keep()
}

// keep is how many empty chunks to keep: as many as are in use, so that memory
// stays within twice the need, and some for small swings.
func (s *slab) keep() int {
	return max(keepEmpty, len(s.shelves)-reservedChunks-len(s.vacant)-len(s.empty))
}

// nextChunk makes a chunk with free entries the current one. Partly used ones
// come first, so that the others can run empty.
func (s *slab) nextChunk() {
	s.shelves[s.cur] = shelf{live: s.live}
	switch {
	case s.partial != 0:
		s.cur = s.partial - 1
		s.unlinkPartial(s.cur)
	case len(s.empty) != 0:
		s.cur = s.empty[len(s.empty)-1]
		s.empty = s.empty[:len(s.empty)-1]
	default:
		s.cur = s.addChunk()
	}
	s.free, s.live = s.shelves[s.cur].free, s.shelves[s.cur].live
}

func (s *slab) linkPartial(c uint32) {
	sh := &s.shelves[c]
	sh.prev, sh.next = 0, s.partial
	if sh.next != 0 {
		s.shelves[sh.next-1].prev = c + 1
	}
	s.partial = c + 1
}

func (s *slab) unlinkPartial(c uint32) {
	sh := &s.shelves[c]
	if sh.prev != 0 {
		s.shelves[sh.prev-1].next = sh.next
	} else {
		s.partial = sh.next
	}
	if sh.next != 0 {
		s.shelves[sh.next-1].prev = sh.prev
	}
	sh.prev, sh.next = 0, 0
}

// addChunk makes a chunk of free entries, chained in ascending order so that
// a fresh queue walks memory forwards.
func (s *slab) addChunk() uint32 {
	var c uint32
	if k := len(s.vacant); k != 0 {
		c, s.vacant = s.vacant[k-1], s.vacant[:k-1]
	} else {
		c = uint32(len(s.nodes))
		if c >= maxEntries/chunkSize {
			panic("matching: queue has more than 2^28 entries")
		}
		s.nodes = append(s.nodes, nil)
		s.links = append(s.links, nil)
		s.shelves = append(s.shelves, shelf{})
	}
	nodes, first := new([chunkSize]node), c<<chunkBits
	for k := range nodes[:chunkMask] {
		nodes[k].next = first + uint32(k) + 1
	}
	s.nodes[c], s.links[c] = nodes, new([chunkSize]link)
	s.shelves[c] = shelf{free: first}
	return c
}

// drop frees the memory of one empty chunk and returns its number; the caller drops its own data
// for the chunk. False if there is no surplus.
func (s *slab) drop() (uint32, bool) {
	k := len(s.empty)
	if k <= s.keep() {
		s.surplus = false
		return 0, false
	}
	c := s.empty[k-1]
	s.empty = s.empty[:k-1]
	s.nodes[c], s.links[c] = nil, nil
	s.vacant = append(s.vacant, c)
	return c, true
}

func makeHandle(i uint32, seq uint64) Handle {
	return Handle(seq<<indexBits | uint64(i))
}

func (s *slab) handle(i uint32) Handle { return makeHandle(i, s.node(i).seq) }

// resolve returns the entry of a handle, or 0 when it is stale or foreign.
func (s *slab) resolve(h Handle) uint32 {
	i := uint32(h & indexMask)
	if int(i>>chunkBits) >= len(s.nodes) || s.nodes[i>>chunkBits] == nil {
		return 0
	}
	seq := s.node(i).seq
	if seq == 0 || seq&genMask != uint64(h>>indexBits) {
		return 0
	}
	return i
}

// after returns the first entry whose sequence number is above sequence number, the slow way.
func (s *slab) after(seq uint64) uint32 {
	i := s.nodes[0][0].next
	for i != 0 && s.node(i).seq <= seq {
		i = s.node(i).next
	}
	return i
}

// walk yields the entries that exist now in order. Anything may be removed
// or added meanwhile; added entries are not visited.
func (s *slab) walk() iter.Seq[uint32] {
	return func(yield func(uint32) bool) {
		end := s.seq
		i := s.nodes[0][0].next
		for i != 0 && s.node(i).seq < end {
			seq, next := s.node(i).seq, s.node(i).next
			nextSeq := s.node(next).seq
			if !yield(i) {
				return
			}
			i = s.resume(i, seq, next, nextSeq)
		}
	}
}

// resume finds the entry to visit after entry i. The loop's body may have
// removed i, its neighbour or both, and their chunks with them.
func (s *slab) resume(i uint32, seq uint64, next uint32, nextSeq uint64) uint32 {
	switch {
	case s.is(i, seq):
		return s.node(i).next
	case next == 0 || s.is(next, nextSeq):
		return next
	default:
		return s.after(seq)
	}
}

// is reports whether entry i still has this sequence number.
func (s *slab) is(i uint32, seq uint64) bool {
	c := s.nodes[i>>chunkBits]
	return c != nil && c[i&chunkMask].seq == seq
}

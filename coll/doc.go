// Package coll has collective operations over package p2p: all members of a Group call them, and
// each has its part of the result.
//
//	func sum(ctx context.Context, w *p2p.World, gradients []float32) error {
//		g, err := coll.New(ctx, w.Comm()) // once, for all later calls
//		if err != nil {
//			return err
//		}
//		defer g.Close()
//		return coll.AllReduce(ctx, g, coll.Sum[float32](), gradients)
//	}
//
// # Calls
//
// All members of a Group make the same calls in the same order, with the same root, Op, type of
// elements and, but for the V calls, the same lengths. A length that differs is p2p.ErrInvalid
// where it is seen; else calls may wait until their contexts end, or Close or Shrink. With
// TAGMATCH_COLL=check, and in builds with -tags invariants, calls that differ fail on all members,
// with an error that shows both; that costs a message exchange before each.
//
// Elements are of any type without pointers, which all ranks hold in the same way: numbers, arrays,
// and structs of such. Another type is p2p.ErrInvalid.
//
// A blocking call runs on the caller's goroutine. A call whose name begins with Start goes on while
// the program computes, on a goroutine of its own, and returns a Pending that is done when the
// call has ended. Any number of calls may be under way, of both kinds.
//
// # Buffers
//
// Slices are the Group's until a call returns, or its Pending is done: those that are written may
// be neither read nor written meanwhile, others may be read. They must not overlap each other.
// After an error they are free, and what the call would have written is undefined.
//
// # Results
//
// The same input gives the same bits on all members, and in each run with as many ranks on as many
// hosts over the same devices: the order in which operands are combined depends on the number of
// members, on which of them share a host, on whether all share memory, and on the algorithm, never
// on which message came first. Operations that do not commute combine in the order of ranks.
//
// # Errors and losses
//
// An error of one member ends the calls of all, whichever member it is: nobody waits for one that
// has given up. That is so for contexts that end, wrong arguments and lost ranks alike. The member
// that has the error returns it. What the others are in, be it an earlier call that has succeeded
// here, is p2p.ErrRevoked, with the rank and the text of that error, or the same loss. The Group is
// broken then: later calls are p2p.ErrRevoked at once. A call whose context ends may still wait for
// a member that is stopped while it reads from this one.
//
// A program that goes on without lost members calls Shrink on all others, whatever error they had:
//
//	g, step, err = g.Shrink(ctx, lastStep)
//
// # Algorithms
//
// The algorithm is chosen by operation, length, number of members, hosts, and whether all members
// share memory. TAGMATCH_COLL sets others, for tests and measurements:
// TAGMATCH_COLL=allreduce:direct,bcast:tree. It must be the same on all ranks.
package coll

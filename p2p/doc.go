// Package p2p exchanges tagged messages between the ranks of a job.
//
//	func greet(ctx context.Context) error {
//		w, err := p2p.Init(ctx, p2p.Config{}) // the launcher's job, or a World of one rank
//		if err != nil {
//			return err
//		}
//		defer w.Close() // after an error: the other ranks see that this one has gone
//		c, buf := w.Comm(), make([]byte, 64)
//		next := (c.Rank() + 1) % c.Size()
//		st, err := c.Sendrecv(ctx, next, 7, []byte("hello"), p2p.AnySource, 7, buf)
//		if err != nil {
//			return err
//		}
//		fmt.Printf("rank %d says %s\n", st.Source, buf[:st.Len])
//		return w.Shutdown(ctx) // waits for the other ranks
//	}
//
// # Concurrency
//
// Every method may be called from any goroutine, also concurrently on one value, unless it says
// otherwise. Messages from one goroutine to one rank are matched there in the order of the calls.
// Calls of two goroutines are ordered only if the program orders them (a channel, a mutex). If two
// posted receives match a message, the one posted first gets it.
//
// # Buffers
//
//  1. A blocking call owns the buffer until it returns, with success or an error.
//  2. A nonblocking call owns it until a Wait, Test, WaitAll... or Queue reports the request
//     complete, with success or an error. A Wait that its context ends reports no completion.
//  3. While the library owns a send buffer, the program may read it but not write to it; a receive
//     buffer may be neither read nor written.
//  4. After an error the content of a receive buffer is undefined, except after ErrTruncated: it
//     holds the first bytes of the message.
//  5. A nil or empty buffer is a zero-length message. Buffers may be any Go or mapped memory. The
//     library holds the slice (never only its address) until completion, and pins it where a
//     device or a peer accesses it by address. ErrFault is memory that vanishes before that.
//  6. After a completion was reported the library holds no reference to the operation's buffer,
//     context, error or Message. The same holds after Free, once the operation has ended, and for
//     all after Shutdown or Close. Only the cause of a loss, which later errors name, stays.
//
// # Contexts
//
// A context must not be nil. One that has ended fails the call before anything is posted. Blocking
// calls CANCEL the operation when their context ends. They return once the buffer is free:
// World.Send and World.Recv say when. Contexts of the Wait family (Request, Queue, slices) bound
// only the waiting. context.Background costs nothing, a cancellable one about 10 ns a call.
//
// # Progress
//
// In ProgressAuto, the default, each World has one goroutine that completes operations while the
// program computes. It sleeps while an application goroutine waits in the library or nothing
// arrives. In ProgressManual only calls of this package make progress, also those that do not wait
// (Test, Iprobe, Poll). A loop of these lets other goroutines run at times. With Config.Async the
// device moves large messages by itself.
//
// # Errors
//
// Errors of operations are *OpError. Test the condition with errors.Is (ErrTruncated,
// context.DeadlineExceeded...), and get the facts with errors.As (*OpError, *PeerError). Wrong
// arguments are ErrInvalid, from Wait for nonblocking calls; they never panic. Methods of a nil or
// zero World, Comm, Queue, Message, Persistent or Region may. Calls without a peer (Init, Dup,
// Split, Barrier, Alloc, Shutdown...) and those that wait for several requests name the call in
// their text instead, and wrap the same conditions.
//
// # World and Comm
//
// A World's own calls, the raw calls, have tags of 63 bits and compare those that a mask names. A
// raw tag names no sender: a receive takes messages of any rank, unless the program puts the sender
// into its tags. Raw calls are for the program that owns the World.
//
// A Comm is a group of ranks with a space of messages of its own, as in MPI. Its receives name a
// source and a tag of 32 bits. No receive of another Comm, and no raw one, can match its messages,
// whatever the tags and masks. A library makes a Comm of its own. World.Comm has all ranks;
// Comm.Dup and Comm.Split make others, and World.NewComm makes one of any ranks by these alone.
//
// Dup, Split and Barrier are collective: all ranks of the Comm make these calls, in the same order.
// The error of one whose context ends names the ranks that have not made it. After an error other
// than ErrFull, further collective calls on that Comm fail on that rank; its messages go on.
// Comm.Close is not collective; when all ranks have closed a Comm its resources are used again.
//
// # Requests
//
// Isend, Irecv and the like never block and have no context. They return a Request, which tells the
// outcome once: to Wait or Test, or to WaitAll, WaitAny, WaitSome, TestAll, TestAny or TestSome for
// many. A Queue drives thousands, and Comm.IsendAll and IrecvAll post many with one call. Errors,
// also of wrong arguments, are those of the request. Request.Cancel asks for its end.
//
// A request is active until its outcome was reported, also where its call has ended at once, as
// with ProcNull. Inactive are those that were consumed, and the zero Request. The functions on
// slices skip inactive requests, and set those that they consume, or find consumed, to Request{}.
//
// # Flow control
//
// A rank keeps unexpected messages in at most Config.UnexpectedLimit bytes. A message without
// credit is held up by its sender, in the user's buffer. So are all later ones to that rank, in
// order; others are not. A Send then waits, an Isend takes a record within Config.SendLimit.
//
// The limit yields to a receive or probe that waits: a held-up message that it matches is sent.
// So a program of nonblocking sends that ends with unlimited memory ends with any limit. As in MPI,
// a program must not count on a Send to return before its message is received: whether the receiver
// has memory for it depends on the limit and on other senders.
//
// # Losses
//
// A rank whose process has ended is lost at once for ranks connected to it. The others learn it
// through the launcher's store, within a second. Both ends detect the loss of a host or network
// within Config.PeerTimeout, with or without traffic, also where one direction alone is cut. An
// interruption of half that time is survived; before Linux 6.15, of a third. A process that is
// stopped, starved of its processor, or does not receive, is not lost: its host answers.
//
// Operations with a lost rank end with a *PeerError, on both sides; others go on with both.
// Receives and probes from any source end so too, until AckFailures is told of the rank. Dup, Split
// and Barrier succeed, or end so within half a second once a rank knows of it. Who gives up after
// a loss ends the calls of those that wait for it by Revoke of their Comm, and Shrink makes a Comm
// of the survivors. After a loss Shutdown returns a *PeerError with those of World.Failed.
//
// Rank 0 serves the store. A rank that it cannot reach is lost for all. Without the store each rank
// finds losses by itself, where it waits for messages or makes collective calls (World.Failed).
//
// # Security
//
// Both ends of a connection prove that they know the job's secret (Config.Secret) when it is made.
// All that a rank receives is checked before it is used as a length or place. Only with Config.TLS
// is what goes over TCP encrypted and authenticated; otherwise the network between hosts must be
// private, or tunnelled. SECURITY.md has what each participant can do at worst.
//
// # Finding mistakes
//
// A build with -tags invariants (go test -tags invariants ./...) detects mistakes in the use of
// this package, at a price of microseconds a message, and checks the library itself. It panics, and
// names the call that posted the operation, if the buffer of a send changes before its completion
// is reported. It does so too if that of a nonblocking receive changes between the arrival of the
// message and that report, or is unmapped, as by Region.Close.
//
// In every build Shutdown and Close log once, at level Warn to Config.Logger, how many requests
// have ended that no Wait, Test or Queue has completed. With -tags invariants they log those under
// way too, by the line of the program that has posted them, and messages that were never received.
package p2p

// Package p2p exchanges tagged messages between the ranks of a job.
//
// # Concurrency
//
// Every method may be called from any goroutine, also concurrently on one value, unless it says
// otherwise. Messages from one goroutine to one rank are matched there in the order of the calls;
// calls of two goroutines are ordered only if the program orders them (a channel, a mutex). If two
// posted receives match a message, the one posted first gets it.
//
// # Buffers
//
//  1. A blocking call owns the buffer until it returns, with success or an error.
//  2. A nonblocking call owns it until a Wait, Test, WaitAll... or Queue reports the request
//     complete, with success or an error. A Wait that ends because of its context reports no
//     completion: see Request.Wait.
//  3. While the library owns a send buffer, the program may read it but not write to it; a receive
//     buffer may be neither read nor written.
//  4. After an error the content of a receive buffer is undefined, except after ErrTruncated: it
//     holds the first bytes of the message.
//  5. A nil or empty buffer is a zero-length message. Buffers may be any Go or mapped memory; the
//     library holds the slice (never only its address) until completion, and pins it where a device
//     or a peer accesses it by address.
//  6. Once a completion has been reported the library holds no reference to the buffer, context,
//     error or Message of the operation: the garbage collector can have them. The same holds for an
//     operation that was given up by Free, once it has ended, and for all after Shutdown or Close.
//     Only a cause that later errors name too, as that of a loss, stays with the World.
//
// Of messages above EagerLimit, a send whose buffer was unmapped or protected before its end is
// ErrFault, and so is the receive of its message. A receive whose buffer cannot be written is
// ErrFault too; it has taken the message, and the send succeeds. The two ranks go on. A shorter
// message is copied as by the program itself: without the memory its process ends. Where a send
// buffer vanishes while a packet of it is on its way into a socket, the connection ends; while it
// is copied into shared memory, the process.
//
// # Contexts
//
// A context must not be nil. One that has ended already fails the call before anything is posted.
// Send, Recv and the other blocking calls CANCEL the operation when their context ends, and return
// once the buffer is free. Contexts of the Wait family (Request, Queue, slices) bound only the
// waiting. context.Background costs nothing; a cancellable context about 10 ns a call.
//
// A cancelled Recv returns at once, except while a chunk (at most 256 KiB) is being copied. A
// sender that is stopped while it copies one to the buffer is waited for. A message that was being
// received stays available to the next receive. Recv returns later, with the message and no error,
// where another posted receive matches that message, or where the device's tag list has matched it
// already (on a NIC, or with transport tmsrq); or, if the sender is lost meanwhile, with an error:
// the context's or a *PeerError.
//
// A cancelled Send of a large message, whose receiver knows of it, first asks the receiver. One
// that is receiving the message finishes, and the Send waits for that. One that does not answer
// within 50 ms, as it is stopped, or is in ProgressManual and does not call this package, finds the
// message withdrawn (ErrWithdrawn) or, mostly over TCP, may have all bytes already: the Send's
// error is ErrWithdrawn too then. (On a NIC only the receiver's answer frees the buffer.)
//
// # Progress
//
// In ProgressAuto, the default, each World has one goroutine that completes operations while the
// program computes; it sleeps while an application goroutine waits in the library or nothing
// arrives. In ProgressManual there is none: without a goroutine inside a call of this package
// nothing progresses, not even Done channels or the detection of failures; the last messages that
// were sent over TCP may leave this process only in the next call. A loop of calls that do not wait
// (Test, Iprobe, Poll) makes progress, and lets other goroutines run at times.
//
// Config.Async lets the device itself make progress while the program computes: by default with
// Transport auto in ProgressAuto where GOMAXPROCS is 2 or more, on request in any case. It matches
// receives of a Comm and moves their bytes, over shared memory with the sender's processor alone.
// Over TCP a processor of the receiver must copy out of the socket: one that the program leaves
// free, or that of the computation. All else (raw messages, receives kept in software, completing
// requests) needs calls or the progress goroutine. It begins where a call returns while a message
// of 1 MiB or more is under way, in a receive of the device whose buffer has room for one, or as a
// rendezvous at either end: what is shorter takes less time than to wake the device.
//
// # Errors
//
// Errors of operations are *OpError: test the condition with errors.Is (ErrTruncated,
// context.DeadlineExceeded...), and get the facts with errors.As (*OpError, *PeerError). Wrong
// arguments are ErrInvalid, from Wait for nonblocking calls; they never panic. Methods of a nil or
// zero World, Comm, Queue, Message, Persistent or Region may. Calls without a peer (Init, Dup,
// Split, Alloc, Shutdown...) and those that wait for several requests name the call in their text
// instead, and wrap the same conditions.
//
// # World and Comm
//
// A World's own calls, the raw calls, have tags of 63 bits and compare those that a mask names. A
// raw tag names no sender: a receive takes messages of any rank, unless the program puts the sender
// into its tags. Raw calls are for the program that owns the World.
//
// A Comm is a group of ranks with a space of messages of its own, as in MPI: its receives name a
// source and a tag of 32 bits, and no receive of another Comm, and no raw one, can match its
// messages, whatever the tags and masks. A library makes a Comm of its own. World.Comm has all
// ranks; Comm.Dup and Comm.Split make others. Both are collective calls: all ranks of the Comm make
// them, in the same order. Comm.Close is not; when all ranks have closed a Comm its resources are
// used again.
//
// # Requests
//
// Isend, Irecv and the like never block and have no context. They return a Request, which tells the
// outcome once: to Wait or Test, to WaitAll, WaitAny, WaitSome, TestAll, TestAny or TestSome for
// many, or by a Queue, the way to drive thousands. Errors, also of wrong arguments, are those of
// the request. Request.Cancel asks for its end. Comm.IsendAll and IrecvAll post many with one call.
// After thousands of messages had to wait for room an Isend may poll for some, as a Test does, for
// about 50 microseconds, while other goroutines of the World sleep in it.
//
// A request is active until its outcome was reported, also where its call has ended at once, with
// ProcNull for example. Inactive are those that were consumed, and the zero Request.
//
// The functions on slices skip inactive requests, and set those that they consume, or find consumed
// by another call, to Request{}, so that loops end. A slice must not be used by two calls at once;
// the same requests in two slices may.
//
// # Probes
//
// Probes find out what a receive would get. They see a message that no posted receive has matched,
// and that the device has not matched to one. Those that block take their place in the order of
// posting. Mprobe and Improbe take the message for their caller, and so can be used by any number
// of goroutines at once; with Probe and Iprobe another goroutine's receive may be faster than the
// caller's.
//
// # Flow control
//
// Unexpected messages are kept by the receiving rank, in at most Config.UnexpectedLimit bytes: each
// is charged with a record of 256 bytes and, up to Config.EagerLimit, with its bytes; a larger one
// stays in its sender's buffer until it is received. A message without credit for that is held up
// by its sender, in the user's buffer, and so are all later ones to that rank, in order; other
// ranks are not affected. A Send then waits; an Isend takes a record of 420 bytes at the sender
// (Config.SendLimit bounds these: ErrFull, Room).
//
// The limit yields to a waiting receive or probe: a held-up message that it matches is sent, with
// all earlier ones of the same rank, beyond the limit; where more than 16 receives wait that one
// rank could satisfy, all messages of that rank are sent. So a program of nonblocking sends that
// ends with unlimited memory ends with any UnexpectedLimit, and a rank that waits for one tag while
// other ranks flood it with another stays within its limit. As in MPI, a program must not count on
// a Send to return before its message is received: whether the receiver has memory for it depends
// on the limit and on other senders.
//
// A mask that few receives use may cost 40 bytes more for each unexpected message. A message above
// EagerLimit takes a memory region of the device until it is received; beyond 450,000 to one rank
// further ones wait, in order.
//
// # Memory
//
// Messages are sent from and received into any memory. That of World.Alloc is registered with the
// devices until its Region is closed, and mapped by the other ranks of the host, which then copy
// large messages from it without the kernel, also where that lets no process read another's memory.
// A message of 32 to 64 KiB takes half to four fifths of the time, a longer one whose sender
// computes two thirds. All others take as long as from other memory, since both ends copy those.
// Over TCP nothing is gained.
//
// # Losses
//
// A rank whose process has ended is lost at once for ranks connected to it, and within a second for
// the others, which learn of it through the launcher's store. The loss of a host or network is
// detected within Config.PeerTimeout by both ends, with or without traffic, also where one
// direction alone is cut; an interruption of half that time is survived. A process that is stopped,
// starved of its processor, or does not receive, is not lost, nor loses others, also while a
// connection is made: its host answers. Connecting to a rank ends when its host is silent for
// PeerTimeout, or refuses: for 1 second where nobody listens, or where a seccomp filter refuses the
// system calls, for PeerTimeout where an end lacks descriptors or memory, which the error names.
// Where TCP can replace shared memory it does so instead, and at once where the kernel refuses.
//
// A rank that gives up another one reports that to it through the launcher's store. Both end their
// operations with each other with a *PeerError, whose Cause is what the first of them detected;
// messages that have arrived can still be received, but none behind one of the same Comm, or a raw
// one, whose bytes were still at its sender. Other ranks continue with both.
//
// Rank 0 serves the store. A rank that it cannot reach any more is lost for all. When the store is
// lost, its news ends, and each rank looks for itself: a receive or a probe connects to the ranks
// that its message may come from, one from any source to all of them, Dup and Split to all ranks of
// the Comm, and so hears of their end: within 2 seconds, or of that of a host within PeerTimeout.
// What it cannot know then is the end of a rank that it neither was connected to nor waits for:
// Failed does not list it until an operation with it fails. The same holds with a Bootstrap that
// reports no losses.
//
// A loss ends each receive and probe from any source that waits, with a *PeerError: the raw ones,
// and those of Comms that the lost rank is a member of. A new one gets a message that is here, or
// fails in the same way, until AckFailures is told of the rank: that of the World for raw receives
// and World.Comm, that of the Comm for any other. A program that goes on without the rank posts
// each of them again after that:
//
//	if loss, ok := errors.AsType[*p2p.PeerError](err); ok {
//		takeBack(loss.Ranks)         // what these ranks had to do
//		w.AckFailures(loss.Ranks...) // and then receive again
//	}
//
// The error names ranks of which nothing that matches is left to receive. Failed may list others by
// then, whose last messages are still to be received: the next error names those. What an error has
// named, Failed lists and AckFailures acknowledges at once.
//
// Dup and Split succeed, or end with a *PeerError: on each rank within half a second once it knows
// that a member of the Comm is lost. Some ranks may have the new Comm then, see Comm.Dup.
//
// After a loss Shutdown returns a *PeerError that names all that Failed lists, also where the lost
// rank lives and calls Shutdown too. What the caller had sent to the others is delivered by then,
// and they can still receive it, unless the error begins with "p2p: shutdown: messages are not all
// delivered". Ranks that give each other up while they wait in Shutdown for the others have no more
// messages for each other: it ends in order.
//
// # Security
//
// Both ends of a connection prove that they know the job's secret (Config.Secret) when it is made.
// All that a rank receives is checked before it is used as a length or place. Unless Config.TLS is
// set nothing is encrypted, nor are messages authenticated one by one: the network between hosts
// must be private, or tunnelled.
//
// With Config.TLS what goes over TCP, to rank 0's rendezvous and between ranks, is encrypted and
// authenticated; shared memory is as before. "secret" needs no files: the sessions of TLS 1.3 are
// bound to the job's secret. With CERTIFICATE,KEY,ROOTS each end also checks that the other's
// certificate is of these roots, for servers and clients, and for the address or host of that rank,
// or the name by which rank 0 was dialled. A rank says itself which host it is on. Who has the
// secret and any certificate of these roots passes: use roots that are this job's own. All ranks
// have one kind, or Init fails and names those that differ. What was changed on its way ends the
// connection, see Losses. Sizes and times can still be seen. SECURITY.md has what each can do at
// worst.
//
// # Finding mistakes
//
// A build with -tags invariants (go test -tags invariants ./...) detects mistakes in the use of
// this package, at a price of microseconds a message. It panics, and names the call that posted the
// operation, if the buffer of a send changes before its completion is reported, or that of a
// nonblocking receive between the arrival of the message and that report, for example by another
// receive into the same memory, or is unmapped, as by Region.Close. ErrInactive then names the
// calls that posted and completed the request. Dump lists the operations in progress and the
// requests that have ended and were never waited for, with the stacks of their posts; Shutdown and
// Close log such requests, and messages that were never received, at level Warn to Config.Logger.
// The library also checks itself.
package p2p

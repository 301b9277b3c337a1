// Package p2p exchanges tagged messages between the ranks of a job.
//
// # Concurrency
//
// Every method may be called from any goroutine, also at once on one value, unless it says
// otherwise. Messages that one goroutine sends to one rank are matched there in the order of the
// calls; calls of two goroutines are ordered only if the program orders them (a channel, a mutex).
// Two receives that could take one message are served in the order of posting.
//
// # Buffers
//
//  1. A blocking call owns the buffer until it returns, with success or an error.
//  2. A nonblocking call owns it until a Wait, Test or WaitAll reports the request complete, with
//     success or an error. A Wait that ends because of its context reports no completion: see
//     Request.Wait.
//  3. While the library owns a send buffer, the program may read it but not write to it; a receive
//     buffer may be neither read nor written.
//  4. After an error the content of a receive buffer is undefined, except after ErrTruncated: it
//     holds the first bytes of the message.
//  5. A nil or empty buffer is a zero-length message. Buffers may be any Go or mapped memory; the
//     library holds the slice (never only its address) until completion, and pins it where a device
//     or a peer accesses it by address.
//
// # Contexts
//
// A context must not be nil. One that has ended already fails the call before anything is posted.
// Send, Recv and the other blocking calls CANCEL the operation when their context ends and return
// once the buffer is free again. A Recv returns at once, but for a chunk that is just being copied
// (at most 256 KiB); a message whose data was on its way is there for the next receive. (Where
// another receive is posted that matches this message, or where the device's tag list has matched
// it, on a NIC or with transport tmsrq, the Recv goes on until the message is there, and returns it
// without an error, or until its sender is lost.) A Send that has offered a large buffer asks its
// receiver first whether it has the message. One that is receiving it goes on, and the Send waits;
// one that does not answer within 50 ms, because it is stopped or in ProgressManual does not call
// this package, finds the message withdrawn (ErrWithdrawn) or, over TCP above all, may have all of
// its bytes already: the Send's error is ErrWithdrawn too then. (On a NIC only the receiver's
// answer frees the buffer.) Contexts of Wait and WaitAll bound only the waiting. context.Background
// costs nothing; a cancellable context about 10 ns a call.
//
// # Progress
//
// One goroutine a World, asleep while an application goroutine waits in the library or nothing
// arrives, completes operations while the program computes. Config.Progress = ProgressManual leaves
// it out: then nothing moves, also no Done channel or failure detector, unless some goroutine is
// inside a call of this package.
//
// Config.Async has the device itself work while the program computes, in either mode: with
// Transport "tmsrq" it matches receives of a Comm and moves their bytes, on shared memory by the
// sender's processor alone. Over TCP somebody on the receiver's side must copy out of the socket:
// with Config.AsyncCPUs the device does it on processors that the program leaves free, as a
// progress thread would. Everything else, raw messages, receives kept in software, completing
// requests, is left to the calls and to the progress goroutine. It costs a tick a millisecond while
// the program polls, and some latency where a message arrives between two calls.
//
// # Flow control
//
// Messages that come before their receive are kept by the receiving rank, in at most
// Config.UnexpectedLimit bytes: each is counted with a record of 256 bytes and, up to
// Config.EagerLimit, with its bytes; a larger one stays in its sender's buffer until it is
// received. What does not fit is held up by its sender, in the user's buffer, and with it all that
// the sender has for that rank, in order; other ranks are not affected. A Send then waits, an Isend
// costs its sender a record of 450 bytes (Config.SendLimit bounds them all: ErrFull, Room). The
// bound yields to a receive that waits: its message comes, and before it, beyond the bound, all
// that the same rank has sent earlier; where more than 16 receives wait that one rank could
// satisfy, all that it has. So a program of nonblocking sends that ends with unlimited memory ends
// with any UnexpectedLimit, and a rank that waits for one tag while other ranks flood it with
// another stays within its bound. As in MPI, a program must not count on a Send to return before
// its message is received: whether there is room for it at the receiver depends on the limit, and
// on what others send. A receive that matches tags by a mask which few others use may cost 40 bytes
// more for each message that is kept. Messages above EagerLimit take a memory region of the device
// each until they are received: 450,000 to one rank, beyond that they wait, in order.
//
// # Losses
//
// A rank whose process has ended is lost at once for those that it is connected to, and within a
// second for the others, whom the launcher's store tells. A host that is down, or that the network
// does not reach, is noticed within Config.PeerTimeout, whether something waits to be sent to it or
// nothing does; a cut of half that time is survived. A process that is stopped, or does not
// receive, is not lost: its host answers. A connection that cannot be made is tried for PeerTimeout
// (1 second where nobody listens, or a seccomp filter refuses this process what it takes). A lack
// of descriptors or memory at one end is tried again for as long, and then the error names the lack
// and the rank that has it. Where TCP can take over from shared memory it does so instead, and at
// once where it is the kernel that refuses.
//
// A rank that gives another one up tells it so through the launcher's store. Both end their
// operations with each other with a *PeerError, whose Cause is what the first of them saw; messages
// that have arrived can still be received. Others, which reach both, go on with both. The exception
// is a rank that rank 0 cannot reach any more: rank 0 serves the store, and it is lost for all.
// Where a Bootstrap cannot tell a rank so (its Part fails) the other end finds out by itself; if
// there never was a connection it does not.
//
// # Finding mistakes
//
// A build with -tags invariants (go test -tags invariants ./...) looks for mistakes in the use of
// this package, at a price of microseconds a message. It panics, and says where the operation was
// posted, if the buffer of a send changes between the call and the report of its completion, or
// that of a nonblocking receive between the message's arrival and that report, be it by another
// receive into the same memory. ErrInactive says where the request was posted and where it was
// completed. Dump lists the operations under way and the requests that have ended and were never
// waited for, with the stacks of their posts; Shutdown and Close log such requests, and messages
// that nobody received, at level Warn to Config.Logger. The library checks itself in such a build
// too.
//
// # Errors
//
// Errors of operations are *OpError; test the condition with errors.Is (ErrTruncated,
// context.DeadlineExceeded...), read the facts with errors.As (*OpError, *PeerError). Wrong
// arguments are ErrInvalid, from Wait for nonblocking calls; never a panic.
package p2p

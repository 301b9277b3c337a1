package verbs

// Two devices have a line when one of them has told the other something (Device.Tell). It carries
// short messages in both directions, by which programs connect queue pairs. It is made in the
// background at the first message, one even if both devices begin, and both ends prove that they
// are of the job. A device finds at once that the process at the other end has ended, and in
// bounded time that its host is silent.
//
// A line exists for a device from its first Tell to the other one, or from the first message of
// that, to its end. It ends by a fault on the way, when a device is closed, and when a device has
// found a violation of the protocol. Then the queue pairs that are connected to the device at its
// other end go to ERR, with EventQPFatal and the cause: on a NIC nothing else tells of the end of a
// peer.

// MaxTell is the most bytes of a message of Device.Tell.
const MaxTell = 256

// Told is a message of another device, or the end of the line to it.
type Told struct {
	// From is the Address of the other device: of a message, as the handshake of the line has
	// proven it; of the end of a line that has carried nothing, as Tell was given it. The caller
	// may keep it but not change it.
	From []byte
	// Msg is the message, 1 to MaxTell bytes, which belong to the caller. Nil: the line has ended,
	// and nothing comes from that device any more, unless one of the two begins another line.
	Msg []byte
	// Err is why the line has ended, with ErrPeerClosed, ErrPeerEnded, ErrUnreachable or another
	// of those errors in its chain where the device knows. Nil with a message.
	Err error
}

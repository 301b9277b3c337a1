package p2p

import "context"

// RecvFrom is Recv for messages of rank src, or of any rank where src is AnySource. A raw tag names
// no source, so that src takes no part in matching: THE PROGRAM must choose tag and mask so that
// only messages of src match, for example by putting the rank of the sender into its tags. What src
// is good for: the receive ends with the loss of src and of no other rank, its errors name src, and
// where only some ranks send by the device with the tag list it can be given to that device. A
// message of another rank that matches is received all the same, and Status.Source names its
// sender.
func (w *World) RecvFrom(ctx context.Context, src int, tag Tag, mask Mask, buf []byte) (Status, error) {
	if uint(src) >= uint(w.size) && src != AnySource || tag > MaxTag || ctx == nil {
		return nothing, w.refuseRecv(ctx, src, tag)
	}
	st, err := w.eng.Recv(ctx, src, uint64(tag), uint64(mask)|namespace, buf)
	if err != nil {
		return failedStatus(st, nil, err), opError(opRecv, src, tag, nil, err)
	}
	return status(st, nil), nil
}

// IrecvFrom is the nonblocking RecvFrom.
func (w *World) IrecvFrom(src int, tag Tag, mask Mask, buf []byte) Request {
	if uint(src) >= uint(w.size) && src != AnySource || tag > MaxTag {
		return failedRequest(opRecv, src, tag, w.refuseRecv(context.Background(), src, tag))
	}
	return ofRecv(w.eng.Irecv(src, uint64(tag), uint64(mask)|namespace, buf), nil, src, tag)
}

// refuseRecv returns the error of a receive with invalid arguments.
func (w *World) refuseRecv(ctx context.Context, src int, tag Tag) error {
	err := errRawTag
	switch {
	case ctx == nil:
		err = errNoContext
	case tag <= MaxTag:
		err = invalidf("rank %d is out of range: sources go from 0 to %d, or AnySource", src, w.size-1)
	}
	return &OpError{opRecv, src, tag, err, nil}
}

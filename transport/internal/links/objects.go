package links

import (
	"errors"

	"github.com/tagmatch/tagmatch/verbs"
)

// objects are what a transport has of its device beside queue pairs and memory, nil until they are
// made; and how queue pairs are made of them.
type objects struct {
	channel verbs.CompChannel
	pd      verbs.PD
	cq      verbs.CQ // of all completions
	srq     verbs.SRQ

	sends  verbs.QPCap // of the queue pairs that messages are posted to
	recvQP bool        // Config.RecvQP
	// readFaults: a read can fail alone (verbs.QPInitAttr.ReadFaults), as is asked for each queue
	// pair, and was granted for all.
	readFaults bool
}

// open makes all of them. With an error close what was made.
func (o *objects) open(c *Config, inline int) (err error) {
	o.sends = verbs.QPCap{MaxSendWR: uint32(c.SendDepth), MaxSendSGE: 2, MaxInlineData: uint32(inline)}
	o.recvQP, o.readFaults = c.RecvQP, c.Device.Attr().ReadFaults
	if o.channel, err = c.Device.CreateCompChannel(); err != nil {
		return err
	}
	if o.pd, err = c.Device.AllocPD(); err != nil {
		return err
	}
	cq, srq := verbs.CQInitAttr{CQE: c.CQE() + c.MoreCQE, Channel: o.channel}, verbs.SRQInitAttr{SRQAttr: verbs.SRQAttr{MaxWR: uint32(c.SRQDepth), MaxSGE: 1}}
	if c.TM.MaxNumTags > 0 {
		cq.WCFlags = verbs.WCExWithTMInfo
	}
	if o.cq, err = c.Device.CreateCQ(cq); err != nil {
		return err
	}
	if c.TM.MaxNumTags > 0 {
		srq.Mask = verbs.SRQInitType | verbs.SRQInitPD | verbs.SRQInitCQ | verbs.SRQInitTM
		srq.Type, srq.CQ, srq.TM = verbs.SRQTypeTM, o.cq, c.TM
	}
	o.srq, err = o.pd.CreateSRQ(&srq)
	return err
}

// closeQueues destroys the SRQ and the completion queue. All queue pairs are destroyed before.
func (o *objects) closeQueues() error {
	var errs []error
	if o.srq != nil {
		errs = append(errs, o.srq.Destroy())
	}
	if o.cq != nil {
		errs = append(errs, o.cq.Destroy())
	}
	return errors.Join(errs...)
}

// closeDomain frees the rest. All memory is deregistered before.
func (o *objects) closeDomain() error {
	var errs []error
	if o.pd != nil {
		errs = append(errs, o.pd.Dealloc())
	}
	if o.channel != nil {
		errs = append(errs, o.channel.Close())
	}
	return errors.Join(errs...)
}

// PD returns the protection domain, SRQ the shared receive queue; both are the transport's.
func (o *objects) PD() verbs.PD   { return o.pd }
func (o *objects) SRQ() verbs.SRQ { return o.srq }

// Disarm cancels Arm.
func (o *objects) Disarm() { o.cq.Disarm() }

// Wait blocks until an event, Wake or Close. Any goroutine, one at a time.
func (o *objects) Wait() error { return o.channel.Wait() }

// Wake ends the Wait in progress or the next one. Any goroutine.
func (o *objects) Wake() { o.channel.Wake() }

package p2p

import (
	"errors"

	"github.com/tagmatch/tagmatch/progress"
	"github.com/tagmatch/tagmatch/verbs/soft"
	"github.com/tagmatch/tagmatch/verbs/soft/softtest"
)

// ContextOf is the context of a Comm.
func ContextOf(c *Comm) int { return c.comm.Context }

// BePatient has collective calls of a rank that fail wait a minute for the answers of others.
func BePatient(w *World) { w.patient = true }

// IsEnding reports whether a Shutdown is under way.
func IsEnding(w *World) bool {
	if w.ending.tryLock() {
		w.ending.unlock()
		return false
	}
	return true
}

// InnerMessage is the engine's part of a Message.
func InnerMessage(m *Message) *progress.Message { return m.m }

// IsendAs is Isend of a rank that writes another rank's number into the tag.
func IsendAs(c *Comm, name, dst int, tag Tag, buf []byte) Request {
	return ofSend(c.w.eng.Isend(dst, c.base|uint64(name)<<sourceShift|uint64(tag), buf), c.group, dst, tag)
}

// CardAddress is the part of a rank's card that is its address.
func CardAddress(value []byte) []byte {
	c, _ := decodeCard(value)
	return c.address
}

// Made is how many queue pairs and lines the devices of a World have.
func Made(w *World) (qps, lines int) {
	owner := w.eng.Owner()
	owner.Lock()
	defer owner.Unlock()
	for _, dev := range w.parts.devs {
		qps += softtest.QueuePairs(dev.(*soft.Device))
		lines += softtest.Lines(dev.(*soft.Device))
	}
	return qps, lines
}

// GiveUpRank has a rank lose another one that lives.
func GiveUpRank(w *World, rank int) { w.eng.PeerLost(rank, errors.New("a test gives it up")) }

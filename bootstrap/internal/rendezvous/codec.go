package rendezvous

import (
	"encoding/binary"
	"fmt"
	"net/netip"
)

var be = binary.BigEndian

// messages are the kinds of messages: their names, and what makes an empty one.
var messages = [...]struct {
	name string
	make func() message
}{
	kindHello:       {"HELLO", func() message { return new(helloMsg) }},
	kindChallenge:   {"CHALLENGE", func() message { return new(challengeMsg) }},
	kindProof:       {"PROOF", func() message { return new(proofMsg) }},
	kindWelcome:     {"WELCOME", func() message { return new(welcomeMsg) }},
	kindReject:      {"REJECT", func() message { return new(rejectMsg) }},
	kindFence:       {"FENCE", func() message { return new(fenceMsg) }},
	kindRelease:     {"RELEASE", func() message { return new(releaseMsg) }},
	kindAbort:       {"ABORT", func() message { return new(abortMsg) }},
	kindFail:        {"FAIL", func() message { return new(failMsg) }},
	kindGiveUp:      {"GIVEUP", func() message { return new(giveUpMsg) }},
	kindBye:         {"BYE", func() message { return new(byeMsg) }},
	kindGone:        {"GONE", func() message { return new(goneMsg) }},
	kindPeerGivenUp: {"PEERGIVENUP", func() message { return new(peerGivenUpMsg) }},
	kindWant:        {"WANT", func() message { return new(wantMsg) }},
	kindAccept:      {"ACCEPT", func() message { return new(acceptMsg) }},
	kindAsk:         {"ASK", func() message { return new(askMsg) }},
	kindReply:       {"REPLY", func() message { return new(replyMsg) }},
}

func (k kind) known() bool { return k > 0 && int(k) < len(messages) }

func (k kind) String() string {
	if k.known() {
		return messages[k].name
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// encode appends the body of m to b.
func encode(b []byte, m message) []byte {
	c := codec{b: b}
	m.fields(&c)
	return c.b
}

// decode decodes the body of a frame. Values in the result are slices of body.
func decode(k kind, body []byte) (message, error) {
	if !k.known() {
		return nil, Errorf(ErrProtocol, "unknown frame kind %d", k)
	}
	c, m := codec{b: body, reads: true}, messages[k].make()
	m.fields(&c)
	if c.bad || len(c.b) != 0 {
		return nil, Errorf(ErrProtocol, "malformed frame of kind %d, %d bytes", k, len(body))
	}
	return m, nil
}

// codec goes over the fields of a message, so that one list of them serves both directions: it
// appends them to b, or takes them from the front of b. A value that is missing there, or may not
// be, sets bad and reads as zero.
type codec struct {
	b     []byte
	reads bool
	bad   bool
}

// require is for what a message must have; only reading looks at it.
func (c *codec) require(ok bool) { c.bad = c.bad || !ok }

func (c *codec) take(n int) []byte {
	if c.bad || len(c.b) < n {
		c.bad = true
		return nil
	}
	v := c.b[:n:n]
	c.b = c.b[n:]
	return v
}

// number is a number of size bytes.
func number[N ~uint8 | ~uint16 | ~uint32 | ~int32](c *codec, v *N, size int) {
	var b [8]byte
	if c.reads {
		copy(b[8-size:], c.take(size))
		*v = N(be.Uint64(b[:]))
		return
	}
	be.PutUint64(b[:], uint64(*v))
	c.b = append(c.b, b[8-size:]...)
}

func (c *codec) flag(v *bool) {
	var n uint8
	if *v {
		n = 1
	}
	number(c, &n, 1)
	c.require(n <= 1)
	if c.reads {
		*v = n == 1
	}
}

// fixed is an array.
func (c *codec) fixed(v []byte) {
	if c.reads {
		copy(v, c.take(len(v)))
	} else {
		c.b = append(c.b, v...)
	}
}

// bytes is n bytes, whose number both ends know.
func (c *codec) bytes(v *[]byte, n int) {
	if c.reads {
		*v = c.take(n)
	} else {
		c.b = append(c.b, *v...)
	}
}

// text is a string of at most most bytes, which its number precedes.
func (c *codec) text(s *string, most int) {
	n := uint16(len(*s))
	number(c, &n, 2)
	c.require(int(n) <= most)
	if c.reads {
		*s = string(c.take(int(n)))
	} else {
		c.b = append(c.b, *s...)
	}
}

// reason is a number with a text about it.
func (c *codec) reason(n *uint32, text *string) {
	number(c, n, 4)
	c.text(text, maxReason)
}

// addr is an address, which may be missing.
func (c *codec) addr(a *netip.Addr) {
	ip := string(a.AsSlice())
	c.text(&ip, 16)
	if c.reads {
		var ok bool
		*a, ok = netip.AddrFromSlice([]byte(ip))
		c.require(ok || ip == "")
	}
}

// bare is a RELEASE without what only its first receiver needs.
func (m *releaseMsg) bare() *releaseMsg { return &releaseMsg{seq: m.seq, encoded: m.encoded} }

// entries are all that is left of a message; those of RELEASE have their rank.
func (c *codec) entries(list *[]entry, ranked bool) {
	if !c.reads {
		for i := range *list {
			c.entry(&(*list)[i], "", ranked)
		}
		return
	}
	key := "" // mostly all have the same
	for !c.bad && len(c.b) > 0 {
		var e entry
		c.entry(&e, key, ranked)
		*list, key = append(*list, e), e.key
	}
}

// entry is one of them; where its key is last the string is that one too.
func (c *codec) entry(e *entry, last string, ranked bool) {
	if ranked {
		number(c, &e.rank, 4)
	}
	n := uint16(len(e.key))
	number(c, &n, 2)
	c.require(n > 0 && n <= MaxKey)
	if !c.reads {
		c.b = append(c.b, e.key...)
	} else if b := c.take(int(n)); string(b) == last {
		e.key = last
	} else {
		e.key = string(b)
	}
	size := uint32(len(e.value))
	number(c, &size, 4)
	c.require(size <= MaxValue)
	c.bytes(&e.value, int(size))
}

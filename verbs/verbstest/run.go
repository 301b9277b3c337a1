package verbstest

import (
	"bytes"
	"testing"

	"github.com/tagmatch/tagmatch/verbs"
)

// Run runs the suite. open must open devices that reach each other.
func Run(t *testing.T, open func(t *testing.T, n int) []verbs.Device) {
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) { c.run(t, open) })
	}
}

type testCase struct {
	name string
	run  func(t *testing.T, open Opener)
}

var cases = []testCase{
	{"SendRecv", testSendRecv},
}

func testSendRecv(t *testing.T, open Opener) {
	e, a, b, qa, qb := pair(t, open)
	mr, buf := b.mem(4096)
	for i := range 200 {
		b.recv(qb, uint64(i), sge(mr, buf))
		msg := bytes.Repeat([]byte{byte(i)}, i)
		wr := verbs.SendWR{WRID: 7, Opcode: verbs.WRSend, Flags: verbs.SendInline | verbs.SendSignaled, SGList: []verbs.SGE{{Data: msg}}}
		a.send(qa, wr)
		w := b.want(uint64(i), verbs.WCSuccess)
		if !bytes.Equal(received(w, buf), msg) {
			e.t.Fatalf("message %d: wrong data", i)
		}
		a.want(7, verbs.WCSuccess)
	}
}

package soft

const (
	fewVain  = 3 // wake-ups in vain, in a row, that cost nothing yet
	mostVain = 3 // after more: of 2^mostVain calls of PollingEnded one is heard
)

// judge decides which calls of PollingEnded arm the wires. For a program that soon polls again a
// wake-up is a loss: both ends pay for it, and it takes the processor. So judge counts what a
// wake-up brings before the program's next poll. Moving a large message takes two passes at least,
// of which PollingEnded may make the first: with fewer the wake-up was in vain. After fewVain and k
// of those in a row the next 2^k-1 calls are not heard. This needs no clock, and so holds on any
// machine. The owner of the device owns it.
type judge struct {
	open   bool // a call was heard whose wake-up is not judged yet
	woken  bool // the goroutine has come to its turn since that call
	passes int  // that have moved something since that call, other than in polls
	vain   int  // wake-ups in vain, in a row
	deaf   int  // calls that are still not to be heard
}

// hears takes a call of PollingEnded and reports whether it is heard.
func (j *judge) hears() bool {
	if j.deaf > 0 {
		j.deaf--
		return false
	}
	j.open, j.woken, j.passes = true, false, 0
	return true
}

// wakes records that the goroutine makes a pass.
func (j *judge) wakes() { j.woken = true }

// moves records that a pass other than a poll has moved something.
func (j *judge) moves() { j.passes++ }

// polled records that the program polls. A wake-up whose turn may still come is judged then.
func (j *judge) polled() {
	if j.woken {
		j.end()
	}
}

// late records that the goroutine was woken for a program that has polled before.
func (j *judge) late() { j.end() }

// sleeps drops the case: the program sleeps in the device, which says nothing about its calls.
func (j *judge) sleeps() { j.open = false }

// end judges the wake-up of the last call that was heard, once.
func (j *judge) end() {
	switch {
	case !j.open:
		return
	case j.passes >= 2:
		j.vain, j.deaf = 0, 0
	default:
		j.vain = min(j.vain+1, fewVain+mostVain)
		j.deaf = 1<<max(j.vain-fewVain, 0) - 1
	}
	j.open = false
}

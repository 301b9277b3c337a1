// Package soak exchanges random messages among all ranks of a World by every kind of call at once,
// and checks each: that it arrives once, as it was sent, and not before one that was sent earlier
// and matches the same receives.
//
// A round is made of exchanges, which run side by side. Who sends what to whom follows from the
// round's seed, so that receivers know what must come; the timing, and by which calls it is
// received, is different each time. In half of the rounds one rank pauses, so that messages come
// long before their receives, and receives long before their messages.
package soak

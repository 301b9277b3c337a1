// Package format is what transports over RC queue pairs say to each other, byte by byte: the
// addresses that ranks exchange before they connect, what they tell each other to connect, and the
// headers of messages.
//
// Bytes from a peer are checked before they are used as a length or an index: a decoder returns an
// error that names the fault. Everything here is a pure function of its arguments. Nothing retains
// the bytes that it is given, except that a decoded header refers to them where it says so.
//
// "TMO 2.3" is section 2.3 of docs/tag-matching-offload.md.
package format

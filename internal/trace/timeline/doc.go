// Package timeline puts the records of the ranks of a job together: messages with both their ends,
// calls, sleeps and reads. It writes them in the JSON format of Chrome's tracing, which Perfetto
// loads.
//
// Nothing on the wire says which record of the receiver belongs to which of the sender. Messages
// between two ranks arrive in the order in which they were sent, and each costs credit, which both
// ends add up from the start: that sum is the same for a message at both ends, and names it.
//
// Calls that overlap are on tracks of their own, as many as there are at the same time. They are
// not goroutines: to know which one has called would cost more than to send a message.
package timeline

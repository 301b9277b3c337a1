// Package taglist is the tag list of a tag-matching SRQ, as a device and its driver keep it:
// entries and their phases (TMO 5.1 and 5.2), the command queue, and the accounting of slots (TMO
// 3.4). "TMO 5.2" is section 5.2 of docs/tag-matching-offload.md; V11 is a rule of its section 7.1.
//
// A List is a machine without queue pairs, wires and completion queues. Its owner posts operations
// and executes them, offers it messages, and tells it what the program polls. It hands completions
// to its owner, who queues them.
//
// Concurrency: a List has one owner at a time. No call blocks. After Init nothing allocates but
// package matching, as the list grows.
package taglist

package meters

// Kind is what a number is.
type Kind string

// Kinds, in the words of Prometheus.
const (
	Counter Kind = "counter"
	Gauge   Kind = "gauge"
)

// Family is numbers of one name. Units are seconds, bytes, messages and the like.
type Family struct {
	Name, Help string
	Kind       Kind
	Label      string // what tells Samples apart; empty where there is one
	Samples    []Sample
}

// Sample is where a number is found.
type Sample struct {
	Field string // of p2p.Metrics, by its path, see Parse; or one of those below
	Value string // of the label
}

// Fields that are not in p2p.Metrics.
const (
	Up      = "Up"      // 1 where the rank has answered, else 0
	Started = "Started" // when its World began, in seconds since 1970
)

// Labels that all samples have.
var Labels = [...]string{"job", "rank", "program"}

func one(kind Kind, name, field, help string) Family {
	return Family{Name: "tagmatch_" + name, Help: help, Kind: kind, Samples: []Sample{{Field: field}}}
}

// protocols is a counter of both protocols.
func protocols(name, field, unit, help string) Family {
	return Family{Name: "tagmatch_" + name, Help: help, Kind: Counter, Label: "protocol",
		Samples: []Sample{{"Eager" + field + unit, "eager"}, {"Rndv" + field + unit, "rendezvous"}}}
}

// Families is all there is.
var Families = []Family{
	one(Gauge, "up", Up, "Whether the rank has answered."),
	one(Gauge, "start_time_seconds", Started, "When Init returned, in seconds since 1970."),
	protocols("sent_messages_total", "Sent", "", "Messages that were sent."),
	protocols("received_messages_total", "Received", "", "Messages that were received."),
	protocols("sent_bytes_total", "Sent", "Bytes", "Bytes of messages that were sent; of rendezvous once they are received."),
	protocols("received_bytes_total", "Received", "Bytes", "Bytes of messages that were received."),
	one(Counter, "waited_seconds_total", "Waited", "Time that goroutines have waited for messages, all of them added up."),
	one(Gauge, "oldest_wait_seconds", "OldestWait", "Age of the oldest wait that goes on; 0: nobody waits."),
	one(Gauge, "operations", "OperationsNow", "Operations under way, and requests that have ended and were not reported."),
	one(Gauge, "unreported_requests", "UnreportedNow", "Requests that have ended and were never completed by Wait, Test or a Queue."),
	one(Gauge, "posted_receives", "PostedNow", "Receives that wait for a message."),
	one(Gauge, "unexpected_queue_messages", "UnexpectedNow", "Messages that wait for a receive."),
	one(Gauge, "unexpected_queue_bytes", "UnexpectedBytes", "Memory of messages that wait for a receive."),
	one(Gauge, "unexpected_queue_peak_bytes", "UnexpectedPeak", "The most memory that messages which wait for a receive have had."),
	{Name: "tagmatch_unexpected_messages_total", Help: "Messages that arrived before their receive was posted, by size: up to so many bytes, and more than the size before.",
		Kind: Counter, Label: "size", Samples: []Sample{{"UnexpectedBySize.0", "64"}, {"UnexpectedBySize.1", "1024"}, {"UnexpectedBySize.2", "16384"},
			{"UnexpectedBySize.3", "262144"}, {"UnexpectedBySize.4", "4194304"}, {"UnexpectedBySize.5", "+Inf"}}},
	one(Counter, "truncated_receives_total", "Truncated", "Receives whose buffer was too short for the message."),
	one(Counter, "canceled_operations_total", "Canceled", "Operations that were ended by Cancel or a context."),
	one(Counter, "queued_sends_total", "Queued", "Sends that were queued before they were sent."),
	one(Gauge, "send_queue_bytes", "QueuedBytes", "Memory of queued sends."),
	one(Counter, "held_up_total", "HeldUp", "Times that sends to a rank ran out of its credit."),
	one(Gauge, "held_up_ranks", "HeldNow", "Ranks that have no memory for the sends of this rank."),
	one(Counter, "sent_wants_total", "WantsSent", "Waiting receives that were told to senders out of credit."),
	one(Counter, "received_wants_total", "WantsReceived", "Waiting receives that this rank was told of while out of credit."),
	one(Counter, "released_messages_total", "Released", "Messages sent without credit for a waiting receive."),
	one(Counter, "lost_ranks_total", "PeersLost", "Ranks that were lost."),
	one(Counter, "parked_waits_total", "Parks", "Waits that slept, after polling in vain."),
	one(Counter, "offloaded_receives_total", "Offload.Offloaded", "Receives added to the tag list of a device."),
	one(Counter, "offload_promoted_receives_total", "Offload.Promoted", "Receives added to the tag list that software kept at first."),
	one(Counter, "offload_matched_receives_total", "Offload.Matched", "Receives that a device has matched."),
	{Name: "tagmatch_kept_receives_total", Help: "Receives that are kept in software, where a device matches, by reason.", Kind: Counter, Label: "reason",
		Samples: []Sample{{"Offload.KeptSmall", "small"}, {"Offload.KeptOverlap", "overlap"}, {"Offload.KeptPath", "path"},
			{"Offload.KeptFull", "full"}, {"Offload.KeptOff", "suspended"}}},
	one(Counter, "offload_suspensions_total", "Offload.Rests", "Suspensions of offloading, as most messages were unexpected in the device."),
	one(Counter, "tag_list_deletes_total", "Offload.Dels", "Receives deleted from the tag list."),
	one(Counter, "tag_list_lost_deletes_total", "Offload.DelsLost", "Receives to be deleted from the tag list that the device had matched before."),
	one(Counter, "tag_list_forced_deletes_total", "Offload.ForcedDels", "Receives in the tag list that matched an unexpected message in software."),
	one(Counter, "tag_list_syncs_total", "Offload.Syncs", "Standalone SYNC operations."),
	one(Gauge, "tag_list_entries", "Offload.InDevice", "Receives in the tag list."),
	one(Gauge, "tag_list_dormant_entries", "Offload.Dormant", "Receives in the tag list that the device cannot match yet; an estimate."),
}

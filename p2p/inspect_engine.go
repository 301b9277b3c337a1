package p2p

import (
	"time"

	"github.com/tagmatch/tagmatch/internal/inspect"
	"github.com/tagmatch/tagmatch/progress"
)

// addLook adds what a look at the engine has found.
func addLook(s *inspect.State, look *progress.Look) {
	s.At, s.Moved, s.Still, s.Leaked = look.At, look.Moved, ageOf(look.Still), uint64(look.Open)
	s.Waiting += look.Waiting
	s.Timed += look.Timed
	if s.Phase == inspect.PhaseShutdown { // all sends are listed that Flush waits for, and count as awaited
		s.Waiting += look.Flushing
	}
	if look.Broken != nil {
		s.Broken = look.Broken.Error()
	}
	s.Losses, s.Failed = look.Losses, map[int]string{}
	for _, l := range look.Lost {
		s.Failed[l.Rank] = l.Cause.Error()
	}
	for _, u := range look.Unacked {
		if s.Unacked == nil {
			s.Unacked = map[string][]int{}
		}
		s.Unacked[commOf(u)] = u.Ranks
	}
	for _, p := range look.Peers {
		s.Peers = append(s.Peers, peerState(p))
	}
	for _, g := range look.Groups {
		if !isFence(&g, s.Rank) {
			addGroup(s, &g)
		}
	}
	s.MoreReceives = look.Rest[progress.UnfinishedRecv] + look.Rest[progress.UnfinishedAlloc] + look.Rest[progress.UnfinishedProbe]
	s.MoreMessages, s.MoreSends = look.Rest[progress.UnfinishedMessage], look.Rest[progress.UnfinishedSend]
}

// isFence reports whether it is the receive of progressUntil, for which nobody waits.
func isFence(g *progress.Group, rank int) bool {
	return g.Kind == progress.UnfinishedRecv && g.Peer == rank && g.Tag == fenceTag(rank)
}

// commOf is the name of the Comm whose receives from any source a loss ends.
func commOf(u progress.Unacked) string {
	if u.Context == 0 { // AnySource, of raw receives too
		return inspect.CommWorld
	}
	return inspect.KeyOf(u.Context, uint64(MaskExact)).Comm
}

func ageOf(d time.Duration) inspect.Age { return inspect.Age(d.Milliseconds()) }

func peerState(p progress.PeerLook) inspect.Peer {
	s := inspect.Peer{Rank: p.Rank, Connected: p.Connected, Queued: p.Queued, Wants: p.Wants, HoldsUp: p.HoldsUp, Charged: p.Charged, Window: p.Window,
		Sent: p.Sent, Came: p.Came, Episode: p.Episode, Seen: p.Seen, Allowed: p.Allowed, Granted: p.Granted, Asked: p.Asked, Heard: p.Heard}
	if p.HeldUp {
		s.HeldUp = p.Queued
	}
	return s
}

// receiveKinds are the words for receives and probes.
var receiveKinds = map[progress.UnfinishedKind]string{
	progress.UnfinishedRecv: "receive", progress.UnfinishedAlloc: "alloc", progress.UnfinishedProbe: "probe",
}

// stageWords are those of receives and sends.
var stageWords = map[progress.Stage]string{
	progress.StagePosted: "software", progress.StageOffloaded: "device", progress.StageLeaving: inspect.WhereRead, progress.StageReceiving: inspect.WhereRead,
	progress.StageQueued: inspect.StageRoom, progress.StageHeld: inspect.StageHeld,
	progress.StageRequested: inspect.StageRequested, progress.StageWithdrawn: inspect.StageWithdrawn,
}

func addGroup(s *inspect.State, g *progress.Group) {
	key, age := inspect.KeyOf(g.Tag, g.Mask), ageOf(g.Age)
	switch g.Kind {
	case progress.UnfinishedMessage:
		s.Messages = append(s.Messages, inspect.Message{Key: key, Peer: g.Peer, Bytes: g.Bytes, N: g.N, Eager: g.Stage == progress.StageHere, Age: age})
	case progress.UnfinishedSend:
		s.Sends = append(s.Sends, inspect.Send{Key: key, Peer: g.Peer, Bytes: g.Bytes, N: g.N, Awaited: g.Awaited, Stage: stageWords[g.Stage], Age: age})
	default:
		s.Receives = append(s.Receives, inspect.Receive{Key: key, Peer: g.Peer, Bytes: g.Bytes, N: g.N, Awaited: g.Awaited,
			Kind: receiveKinds[g.Kind], Where: stageWords[g.Stage], Age: age, From: listed(g.From)})
	}
}

// listed is the ranks that a receive from any source can come from, where these are not all ranks,
// nor too many.
func listed(from progress.Members) []int {
	m, ok := from.(members)
	if !ok || m.group == nil || m.size > mostMembers {
		return nil
	}
	return m.group.members
}

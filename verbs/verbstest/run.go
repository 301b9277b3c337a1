package verbstest

import (
	"strings"
	"testing"

	"github.com/tagmatch/tagmatch/verbs"
)

// Run runs the suite: with or without tag matching, as the devices are. open must open n devices that reach each other and see
// to their closing when the test ends; a test may have closed one already.
func Run(t *testing.T, open func(t *testing.T, n int) []verbs.Device, opts TagOptions) {
	tags := matchesTags(t, open)
	run := func(cases []testCase) {
		for _, c := range cases {
			t.Run(c.name, func(t *testing.T) {
				broken(t, c.rules)
				c.run(t, open)
			})
		}
	}
	run(cases)
	if tags {
		RunTags(t, open, opts)
	} else {
		run(plainCases)
	}
}

// matchesTags asks a device of its own, which it closes again.
func matchesTags(t *testing.T, open Opener) bool {
	t.Helper()
	d := open(t, 1)[0]
	flags := d.Attr().TM.Flags
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	return flags&verbs.TMCapRC != 0
}

// RunTags runs the tag-matching part of the suite, for devices in more configurations than the usual one.
func RunTags(t *testing.T, open func(t *testing.T, n int) []verbs.Device, opts TagOptions) {
	for _, c := range tagCases {
		t.Run(c.name, func(t *testing.T) {
			broken(t, c.rules)
			c.run(t, open, opts)
		})
	}
}

// broken makes a test that fails tell which rules it is about.
func broken(t *testing.T, ids string) {
	t.Cleanup(func() {
		if !t.Failed() {
			return
		}
		for _, id := range strings.Fields(ids) {
			for _, r := range rules {
				if r.id == id {
					t.Logf("TMO %s: %s", r.id, r.says)
				}
			}
		}
	})
}

type testCase struct {
	name  string
	run   func(t *testing.T, open Opener)
	rules string // that it proves, by their ids
}

type tagCase struct {
	name  string
	run   func(t *testing.T, open Opener, opts TagOptions)
	rules string
}

var cases = []testCase{
	{"Attributes", testAttributes, "api/attributes"},
	{"Transitions", testTransitions, "8.1/transitions 8.1/masks 8.1/any"},
	{"BadAttributes", testBadAttributes, "8.1/unchanged 8.1/values"},
	{"PostStates", testPostStates, "8.1/recv-init 8.1/send-rts 8.3/flush"},
	{"AcceptFromRTR", testAcceptFromRTR, "8.1/recv-init 8.1/accept-rtr 8.1/send-rts"},
	{"DestroyOrder", testDestroyOrder, "1.2/destroy api/busy"},
	{"MRRules", testMRRules, "api/mr"},
	{"SendRecv", testSendRecv, "8.2/opcodes"},
	{"SendSelf", testSendSelf, "8.2/opcodes"},
	{"SendImm", testSendImm, "8.2/opcodes"},
	{"SendInv", testSendInv, "8.2/opcodes"},
	{"ZeroLength", testZeroLength, "8.2/opcodes"},
	{"MultiPacket", testMultiPacket, "8.2/opcodes"},
	{"Gather", testGather, "1.4/sge 8.2/lists"},
	{"Inline", testInline, "8.2/inline"},
	{"OpcodeTable", testOpcodeTable, "8.2/opcodes"},
	{"Opcodes", testOpcodes, "8.2/flags"},
	{"SendFlags", testSendFlags, "8.2/flags"},
	{"Solicited", testSolicited, "8.2/solicited"},
	{"ChainFails", testChainFails, "8.2/lists"},
	{"SelectiveSignalling", testSelectiveSignalling, "8.2/signaled 8.2/implies"},
	{"UnsignaledReclaim", testUnsignaledReclaim, "8.2/reclaim"},
	{"Backlog", testBacklog, "8.2/lists"},
	{"SmallPoll", testSmallPoll, "api/poll"},
	{"CQOverrun", testCQOverrun, "1.4/overrun"},
	{"SRQPost", testSRQPost, "1.4/sge 1.4/full 8.4/resize"},
	{"SRQChainFails", testSRQChainFails, "1.4/chain 1.4/full"},
	{"SRQIgnoresRecvCaps", testSRQIgnoresRecvCaps, "1.3/recv-caps"},
	{"SRQLimit", testSRQLimit, "8.4/limit 8.4/once"},
	{"SRQOrder", testSRQOrder, "api/srq"},
	{"RNRForever", testRNRForever, "8.1/rnr-forever 8.1/head-of-line"},
	{"RNRFinite", testRNRFinite, "8.1/rnr-finite 8.2/errors-complete 8.3/no-receive"},
	{"RNRTimer", testRNRTimer, "8.1/rnr-timer 8.1/rnr-finite"},
	{"TooLong", testTooLong, "8.3/too-long 8.3/first-error 8.3/flush"},
	{"TooLongMultiPacket", testTooLongMultiPacket, "8.3/too-long"},
	{"BadLKey", testBadLKey, "8.3/lkey"},
	{"BadRecvLKey", testBadRecvLKey, "8.3/lkey"},
	{"ErrorFields", testErrorFields, "8.3/fields 4.4/error"},
	{"Flush", testFlush, "8.3/flush"},
	{"FlushOnlyOwn", testFlushOnlyOwn, "8.3/srq-stays 8.3/last-wqe"},
	{"Reset", testReset, "8.1/any"},
	{"Write", testWrite, "8.2/opcodes"},
	{"WriteImm", testWriteImm, "8.2/opcodes"},
	{"ReadSizes", testReadSizes, "8.2/opcodes"},
	{"ReadOrder", testReadOrder, "8.2/implies"},
	{"ReadAfterWrite", testReadAfterWrite, "8.2/opcodes"},
	{"ReadNotBlocking", testReadNotBlocking, "8.2/fence"},
	{"ReadWithdrawn", testReadWithdrawn, "8.3/rkey"},
	{"ReadFaults", testReadFaults, "api/read-faults"},
	{"ReadIntoWithdrawn", testReadIntoWithdrawn, "api/read-faults"},
	{"RemoteAccess", testRemoteAccess, "8.1/access 8.3/rkey"},
	{"Fence", testFence, "8.2/fence"},
	{"Atomics", testAtomics, "8.2/opcodes"},
	{"ArmWait", testArmWait, "api/arm"},
	{"ChannelClose", testChannelClose, "api/arm"},
	{"PeerDestroysQP", testPeerDestroysQP, "8.1/retry 8.3/peer-gone"},
	{"PeerCloses", testPeerCloses, "8.1/retry 8.3/peer-gone"},
}

// plainCases are what a device without tag matching answers.
var plainCases = []testCase{
	{"TagMatchingUnsupported", testTagMatchingUnsupported, "1.1/flag 1.2/unsupported 3.3/unsupported"},
}

// tagCases are the rows of TMO 7.2 that a device can show by itself, and the rules of sections 1 to 5 that they rest on.
var tagCases = []tagCase{
	{"TagCreate", testTagCreate, "1.1/flag 1.1/values 1.2/mask 1.2/needs 1.2/ecq 1.2/limits 1.2/destroy 1.3/send-queue 3.3/not-tm"},
	{"TagGranted", testTagGranted, "1.2/granted 1.4/full"},
	{"TagRecvCQ", testTagRecvCQ, "1.3/recv-cq"},
	{"TagGlobalOrder", testTagGlobalOrder, "1.3/one-list 5.2/5 7.2/42"},
	{"TagHeaderBytes", testTagHeaderBytes, "2.1/tmh 2.2/rvh 2.5/order"},
	{"TagEager", testTagEager, "1.4/tagged 2.3/eager 3.1/empty-list 4.2/eager 4.4/match 7.2/1 7.2/2 7.2/35"},
	{"TagTwoCompletions", testTagTwoCompletions, "4.2/eager 4.2/eager-long 4.2/rndv 4.2/incomplete 4.4/match 4.4/data-valid 7.2/1 7.2/2 7.2/36"},
	{"TagImm", testTagImm, "2.3/imm 4.4/imm"},
	{"TagRndvImm", testTagRndvImm, "2.3/imm 4.4/imm"},
	{"TagInfo", testTagInfo, "4.4/untagged 4.4/list-op"},
	{"TagUnexpected", testTagUnexpected, "1.4/untagged 4.2/unexpected 5.2/5 5.2/live-stay 7.2/4 7.2/8"},
	{"TagCounts", testTagCounts, "2.3/counted 5.1/H 5.2/5 5.2/6 5.2/4"},
	{"TagCountLow16", testTagCountLow16, "3.2/sync 5.1/S"},
	{"TagDormant", testTagDormant, "3.2/add 4.2/add-succeeds 5.2/1 5.2/2 5.2/3 5.2/4 7.2/5 7.2/6 7.2/7 7.2/9 7.2/10 7.2/11 7.2/18"},
	{"TagStaleSync", testTagStaleSync, "3.1/count-flag 5.2/3 5.2/4 7.2/12"},
	{"TagAddWithoutSync", testTagAddWithoutSync, "3.1/count-flag 5.2/1"},
	{"TagDelActivates", testTagDelActivates, "5.2/2 5.2/4 7.2/7"},
	{"TagAddActivates", testTagAddActivates, "5.2/1 5.2/4"},
	{"TagOlderCount", testTagOlderCount, "5.4/older 5.2/4"},
	{"TagForcedDel", testTagForcedDel, "3.4/forced 5.3/forced 7.2/5"},
	{"TagForcedDelOfLive", testTagForcedDelOfLive, "3.4/forced 7.2/22"},
	{"TagSyncReq", testTagSyncReq, "4.6/list-op 4.6/never"},
	{"TagWrap", testTagWrap, "4.6/unexpected 5.1/H 5.5/wrap 7.2/13 7.2/14"},
	{"TagWildcards", testTagWildcards, "3.1/formula 5.2/5 7.2/37 7.2/38 7.2/39"},
	{"TagNoTag", testTagNoTag, "2.3/no-tag 2.4/any-length 4.2/no-tag 5.2/6 7.2/37 7.2/53"},
	{"TagTooLong", testTagTooLong, "7.2/32 7.2/35"},
	{"TagMalformed", testTagMalformed, "2.3/rndv-size"},
	{"TagBadKey", testTagBadKey, "8.3/lkey"},
	{"TagDel", testTagDel, "3.2/del 4.2/del-lost 5.2/2 7.2/15 7.2/16"},
	{"TagDelStale", testTagDelStale, "3.3/stale 7.2/19"},
	{"TagListFull", testTagListFull, "3.3/list-full 3.4/exactly 7.2/23"},
	{"TagOpsFull", testTagOpsFull, "3.3/ops-full 3.4/tail 3.4/wedge 7.2/25 7.2/26"},
	{"TagFullTold", testTagFullTold, "3.3/told 3.3/list-full 3.3/ops-full 3.4/tail 3.4/exactly"},
	{"TagSlotDebt", testTagSlotDebt, "3.4/debt 4.5/del"},
	{"TagUnsignaled", testTagUnsignaled, "3.1/unsignaled"},
	{"TagOrder", testTagOrder, "1.2/in-order 3.1/wr-id 3.2/add 4.2/list-op 4.5/list-op"},
	{"TagCQOrder", testTagCQOrder, "4.5/order"},
	{"TagChain", testTagChain, "3.3/opcode 3.3/sges 3.3/chain 7.2/27"},
	{"TagHandleReuse", testTagHandleReuse, "3.4/debt 7.2/54"},
	{"TagRNR", testTagRNR, "7.2/28 7.2/30"},
	{"TagRNROrder", testTagRNROrder, "7.2/28 8.1/head-of-line"},
	{"TagRNRGivesUp", testTagRNRGivesUp, "7.2/29"},
	{"TagLimit", testTagLimit, "1.2/num 8.4/once 8.4/tm 7.2/56"},
	{"TagSources", testTagSources, "7.2/42"},
	{"TagModel", testTagModel, "5.2/1 5.2/2 5.2/3 5.2/4 5.2/5"},
	{"TagRndv", testTagRndv, "1.3/plain-peer 2.4/after-read 4.2/rndv 7.2/3"},
	{"TagFIN", testTagFIN, "2.4/content 2.4/app-ctx"},
	{"TagRndvLargest", testTagRndvLargest, "1.1/max-hdr 2.3/rndv-size"},
	{"TagRndvRights", testTagRndvRights, "2.3/rights 7.2/49"},
	{"TagRndvBurst", testTagRndvBurst, "4.5/order 2.4/app-ctx"},
	{"TagRndvEmpty", testTagRndvEmpty, "7.2/36"},
	{"TagRndvUnexpected", testTagRndvUnexpected, "1.4/untagged 2.4/none"},
	{"TagRndvIncomplete", testTagRndvIncomplete, "2.4/none 4.2/incomplete 7.2/33 7.2/34"},
	{"TagRndvDel", testTagRndvDel, "4.2/del-lost 7.2/17 7.2/48"},
	{"TagRndvBadKey", testTagRndvBadKey, "7.2/49"},
	{"TagRndvPeerGone", testTagRndvPeerGone, "7.2/47"},
	{"TagRndvReceiverGone", testTagRndvReceiverGone, "7.2/44 7.2/46"},
	{"TagRndvFINWaits", testTagRndvFINWaits, "7.2/31"},
	{"TagBothSides", testTagBothSides, "1.3/two-pairs 2.4/buffer 2.4/from-tm 4.2/no-tag"},
	{"TagOwnSendQueue", testTagOwnSendQueue, "1.3/own-send-queue"},
	{"TagTeardown", testTagTeardown, "7.2/55"},
}

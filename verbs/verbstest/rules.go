package verbstest

import (
	"reflect"
	"runtime"
	"slices"
)

// testCase is a rule and the test that proves it, or a scenario beyond the rules. The name of a
// rule is the section of TMO and, after the slash, a word or the number of the rule there; or "api"
// for the documentation of package verbs. One test may prove several rules.
type testCase struct {
	name string
	on   devices
	test any // a function, of a type that prove knows
	says string
}

// testName is the name of the function that is the test.
func (c testCase) testName() string {
	return runtime.FuncForPC(reflect.ValueOf(c.test).Pointer()).Name()
}

// devices are those that a case applies to.
type devices int

const (
	anyDevice devices = iota
	withTags
	withoutTags
)

// rules are those of TMO and of package verbs, each with a test (TestRules).
var rules = slices.Concat(rcRules, lineRules, tmRules, rowRules)

// scenarios are mistakes that a device can make although it keeps each rule by itself.
var scenarios = []testCase{
	{"scenario/send", anyDevice, testSendRecv, "short messages, with all fields of their completions"},
	{"scenario/send-self", anyDevice, testSendSelf, "a queue pair that is connected to itself"},
	{"scenario/send-imm", anyDevice, testSendImm, "immediate data of SENDs of all sizes"},
	{"scenario/reset", anyDevice, testReset, "a queue pair that is reset forgets all, and can be used again"},
	{"scenario/gather", anyDevice, testGather, "lists of entries into lists of entries, cut anywhere"},
	{"scenario/zero-length", anyDevice, testZeroLength, "messages and lists of length 0"},
	{"scenario/multi-packet", anyDevice, testMultiPacket, "sizes around the path MTU, from lists cut anywhere"},
	{"scenario/backlog", anyDevice, testBacklog, "more requests than the wire takes at once"},
	{"scenario/write", anyDevice, testWrite, "writes of all sizes"},
	{"scenario/write-imm", anyDevice, testWriteImm, "writes that take a receive"},
	{"scenario/read-sizes", anyDevice, testReadSizes, "reads of all sizes"},
	{"scenario/read-after-write", anyDevice, testReadAfterWrite, "a read sees what was written before it"},
	{"scenario/read-into-deregistered", anyDevice, testReadIntoDeregistered, "a read into a region that was deregistered"},
	{"scenario/read-not-blocking", anyDevice, testReadNotBlocking, "a send behind a long read does not wait for it"},
	{"scenario/read-order", anyDevice, testReadOrder, "completions of a mix of reads and sends, in the order of posting"},
	{"scenario/read-deregistered", anyDevice, testReadDeregistered, "a read from a region that was deregistered, before it or under it"},
	{"scenario/tag-model", withTags, testTagModel, "random operations and messages against the model of TMO 5.2"},
	{"scenario/tag-rndv-full", withTags, testTagRndvFull, "more rendezvous at once than the device has room for reads and FINs"},
	{"scenario/tag-fin-forgotten", withTags, testTagFINForgotten, "a queue pair that is reset before it could send a FIN"},
	{"scenario/tag-deregistered", withTags, testTagDeregistered, "a tagged buffer whose region is deregistered under a long message"},
}

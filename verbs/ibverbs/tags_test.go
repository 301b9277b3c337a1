package ibverbs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/verbs"
	"github.com/tagmatch/tagmatch/verbs/ibverbs/internal/abi"
	"github.com/tagmatch/tagmatch/verbs/ibverbs/internal/ccall"
)

// fake is testdata/tags.c as a library: a device with tag matching, as far as it is made
// and called.
type fake struct {
	t   *testing.T
	lib *ccall.Library
	d   *device
	pd  *domain
}

// tagsLibrary compiles and loads it once. Its symbols are its own, whatever is loaded beside it.
var tagsLibrary = sync.OnceValues(func() (*ccall.Library, error) {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		return nil, err
	}
	file := filepath.Join(dir, "libtags.so")
	out, err := compileLibrary(file, "tags.c", "-Wl,-Bsymbolic")
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%w\n%s", err, out), os.RemoveAll(dir))
	}
	lib, err := ccall.Load(file)
	return lib, errors.Join(err, os.RemoveAll(dir))
})

// newFake has one device, as new.
func newFake(t *testing.T) *fake {
	NeedHeader(t)
	lib, err := tagsLibrary()
	require.NoError(t, err)
	m, err := newMapping()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, m.free()) })
	f := &fake{t: t, lib: lib}
	p := &port{name: "mlx5_0", num: 1, mem: m, ctx: f.call("open_context"), lib: &library{
		allocPD: f.symbol("ibv_alloc_pd"), deallocPD: f.symbol("ibv_dealloc_pd"),
		destroyCQ: f.symbol("ibv_destroy_cq"), destroySRQ: f.symbol("ibv_destroy_srq")}}
	m.port.LinkLayer = abi.LinkLayerInfiniBand
	f.d = &device{port: p, lines: &lines{}, async: &asyncEvents{srqs: map[uintptr]uint32{}, cqs: map[uintptr]*atomic.Bool{}}}
	f.d.attr = verbs.DeviceAttr{MaxCQE: 1000, MaxSRQWR: 100, MaxSGE: 2,
		TM: verbs.TMCaps{Flags: verbs.TMCapRC, MaxNumTags: 63, MaxOps: 100, MaxSGE: 1}}
	pd, err := f.d.AllocPD()
	require.NoError(t, err)
	f.pd = pd.(*domain)
	t.Cleanup(func() { require.Zero(t, *f.int("misuse"), "calls in a wrong order") })
	return f
}

func (f *fake) symbol(name string) uintptr {
	p, err := f.lib.Symbol(name)
	require.NoError(f.t, err)
	return p
}

func (f *fake) call(name string) uintptr {
	c := ccall.Call{Fn: f.symbol(name)}
	c.Do()
	return c.Ret
}

func (f *fake) int(name string) *int32 { return at[int32](f.symbol(name)) }

// queued is a completion as the test writes it.
type queued struct {
	wrID, tag                                                   uint64
	status, opcode, vendorErr, byteLen, qpNum, flags, imm, priv uint32
}

// add adds completions to the queue.
func (f *fake) add(list ...queued) {
	queue, tail := at[[256]queued](f.symbol("queue")), f.int("tail")
	for _, w := range list {
		queue[*tail%256] = w
		*tail++
	}
}

func (f *fake) newCQ() *compQueue {
	cq, err := f.d.CreateCQ(verbs.CQInitAttr{CQE: 500, WCFlags: verbs.WCExWithTMInfo})
	require.NoError(f.t, err)
	return cq.(*compQueue)
}

func tagAttr(cq verbs.CQ) *verbs.SRQInitAttr {
	return &verbs.SRQInitAttr{Mask: verbs.SRQInitType | verbs.SRQInitCQ | verbs.SRQInitTM, Type: verbs.SRQTypeTM, CQ: cq,
		SRQAttr: verbs.SRQAttr{MaxWR: 50, MaxSGE: 1}, TM: verbs.TMCap{MaxNumTags: 63, MaxOps: 100}}
}

func (f *fake) newSRQ(cq verbs.CQ) *sharedQueue {
	srq, err := f.pd.CreateSRQ(tagAttr(cq))
	require.NoError(f.t, err)
	return srq.(*sharedQueue)
}

// TestTagMatching: tag matching is announced where the device has it for RC, the port is
// InfiniBand, and a list can be made; else the reason is told. Nothing is left behind.
func TestTagMatching(t *testing.T) {
	all := abi.TMCaps{MaxRndvHdrSize: 64, MaxNumTags: 127, Flags: 1, MaxOps: 1000, MaxSGE: 1}
	for name, c := range map[string]struct {
		caps abi.TMCaps
		set  func(f *fake)
		says []string
	}{
		"all":      {all, func(*fake) {}, nil},
		"nothing":  {abi.TMCaps{}, func(*fake) {}, []string{"announces none"}},
		"flags 0":  {abi.TMCaps{MaxNumTags: 127, MaxOps: 1000, MaxSGE: 1}, func(*fake) {}, []string{"127 tags", "no rendezvous"}},
		"Ethernet": {all, func(f *fake) { f.d.mem.port.LinkLayer = abi.LinkLayerEthernet }, []string{"mlx5_0:1 is Ethernet", "GRH"}},
		"old":      {all, func(f *fake) { f.call("forget_post_srq_ops") }, []string{"mlx5_0 has no post_srq_ops", "rdma-core"}},
		"no CQ": {all, func(f *fake) { *f.int("refuse_cq") = int32(syscall.ENOMEM) },
			[]string{"announces it, and refuses it", "create_cq_ex", "a queue of 1 completions", "ulimit -l", "cannot allocate memory"}},
		"no SRQ": {all, func(f *fake) { *f.int("refuse_srq") = int32(syscall.EINVAL) },
			[]string{"announces it, and refuses it", "create_srq_ex", "15 tags and 32 operations", "invalid argument"}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t)
			require.NoError(t, f.pd.Dealloc())
			c.set(f)
			tm, why, err := f.d.tagMatching(&c.caps)
			require.NoError(t, err)
			if c.says == nil {
				require.Equal(t, verbs.TMCaps{MaxRndvHdrSize: 64, MaxNumTags: 127, Flags: verbs.TMCapRC, MaxOps: 1000, MaxSGE: 1}, tm)
				require.Empty(t, why)
			} else {
				require.Zero(t, tm)
				for _, s := range c.says {
					require.Contains(t, why, s)
				}
			}
			require.Zero(t, *f.int("live"))

			f.d.attr.TM, f.d.attr.NoTM = verbs.TMCaps{}, "its reason"
			pd, err := f.d.AllocPD()
			require.NoError(t, err)
			_, err = f.d.CreateCQ(verbs.CQInitAttr{CQE: 1, WCFlags: verbs.WCExWithTMInfo})
			require.ErrorIs(t, err, syscall.EOPNOTSUPP)
			require.ErrorContains(t, err, "its reason")
			_, err = pd.CreateSRQ(tagAttr(nil))
			require.ErrorIs(t, err, syscall.EOPNOTSUPP)
			require.ErrorContains(t, err, "its reason")
		})
	}
}

// TestTagSRQ: what is asked for comes to the device, what it grants comes back, and a queue that an
// SRQ uses is not destroyed.
func TestTagSRQ(t *testing.T) {
	f := newFake(t)
	cq := f.newCQ()
	asked := at[abi.CQInitAttrEx](f.symbol("cq_asked"))
	require.Equal(t, abi.CQInitAttrEx{CQE: 500, WCFlags: 1<<0 | 1<<1 | 1<<2 | 1<<10}, *asked)
	attr := tagAttr(cq)
	s, err := f.pd.CreateSRQ(attr)
	require.NoError(t, err)
	require.Equal(t, verbs.SRQAttr{MaxWR: 60, MaxSGE: 1}, attr.SRQAttr)
	require.Equal(t, abi.SRQInitAttrEx{Attr: abi.SRQAttr{MaxWR: 50, MaxSGE: 1}, CompMask: 0x1b, SRQType: 2, PD: f.pd.obj, CQ: cq.obj,
		TMCap: abi.TMCap{MaxNumTags: 63, MaxOps: 100}}, *at[abi.SRQInitAttrEx](f.symbol("srq_asked")))
	require.EqualValues(t, 0x123456, s.Num())
	require.ErrorIs(t, cq.Destroy(), syscall.EBUSY)
	require.NoError(t, s.Destroy())
	f.call("forget_get_srq_num")
	require.EqualValues(t, 1<<24+1, f.newSRQ(cq).Num(), "one of the device's own, which has more than 24 bits")

	*f.int("refuse_srq") = int32(syscall.ENOMEM)
	_, err = f.pd.CreateSRQ(tagAttr(cq))
	require.ErrorIs(t, err, syscall.ENOMEM)
	require.ErrorContains(t, err, "63 tags and 100 operations, with 50 receives: the limit of locked memory is")
	*f.int("refuse_cq") = int32(syscall.ENOMEM)
	_, err = f.d.CreateCQ(verbs.CQInitAttr{CQE: 500, WCFlags: verbs.WCExWithTMInfo})
	require.ErrorContains(t, err, "500 completions with tag information: the limit of locked memory is")
	_, err = f.d.CreateCQ(verbs.CQInitAttr{CQE: 500, WCFlags: 1 << 3})
	require.ErrorIs(t, err, syscall.EOPNOTSUPP)
}

// recorder is a Handler that keeps what it is given, and stops after so many.
type recorder struct {
	got  []verbs.WC
	cq   verbs.CQ
	stop int
}

func (r *recorder) Complete(wc *verbs.WC) bool {
	r.got = append(r.got, *wc)
	if len(r.got) == r.stop {
		r.cq.Stop()
	}
	return false
}

// TestExtendedPoll: any number of completions is polled with all fields that are valid, and each
// poll that has begun, and no other, is ended.
func TestExtendedPoll(t *testing.T) {
	f := newFake(t)
	cq := f.newCQ()
	next := uint64(0)
	for _, c := range []struct{ there, most, want int }{{0, 5, 0}, {1, 5, 1}, {5, 5, 5}, {0, 5, 0}, {6, 5, 5}, {0, 5, 1}, {31, 100, 31},
		{32, 100, 32}, {33, 100, 33}, {64, 100, 64}, {70, 70, 70}, {0, 0, 0}, {3, 1, 1}, {0, 100, 2}} {
		tail := uint32(*f.int("tail"))
		for i := range uint32(c.there) {
			f.add(queued{wrID: uint64(tail + i), tag: 1<<63 | uint64(tail+i), opcode: uint32(verbs.WCTMRecv), byteLen: 7,
				flags: uint32(verbs.WCFlagTMMatch), qpNum: 9, priv: ^(tail + i)})
		}
		r := &recorder{}
		n, err := cq.Drain(r, c.most)
		require.NoError(t, err)
		require.Equal(t, c.want, n, "%+v", c)
		require.Len(t, r.got, n)
		for _, w := range r.got {
			require.Equal(t, verbs.WC{WRID: next, Tag: 1<<63 | next, Priv: ^uint32(next), Opcode: verbs.WCTMRecv, ByteLen: 7,
				Flags: verbs.WCFlagTMMatch, QPNum: 9}, w)
			next++
		}
		require.Zero(t, *f.int("misuse"), "%+v", c)
	}
}

// TestExtendedFields: which fields of a completion are handed over.
func TestExtendedFields(t *testing.T) {
	f := newFake(t)
	cq := f.newCQ()
	raw := queued{wrID: 1, tag: 2, vendorErr: 3, byteLen: 4, qpNum: 5, imm: 0x06000000, priv: 7, opcode: uint32(verbs.WCTMRecv)}
	with := func(status verbs.WCStatus, opcode verbs.WCOpcode, flags verbs.WCFlags) queued {
		w := raw
		w.status, w.opcode, w.flags = uint32(status), uint32(opcode), uint32(flags)
		return w
	}
	const match, data = verbs.WCFlagTMMatch, verbs.WCFlagTMDataValid
	for name, c := range map[string]struct {
		in   queued
		want verbs.WC
	}{
		"match": {with(0, verbs.WCTMRecv, match), verbs.WC{Opcode: verbs.WCTMRecv, Flags: match, ByteLen: 4, Tag: 2, Priv: 7}},
		"data, without a tag": {with(0, verbs.WCTMRecv, data|verbs.WCFlagWithImm),
			verbs.WC{Opcode: verbs.WCTMRecv, Flags: data | verbs.WCFlagWithImm, ByteLen: 4, Imm: 6}},
		"unexpected":     {with(0, verbs.WCTMRecv, verbs.WCFlagTMSyncReq), verbs.WC{Opcode: verbs.WCTMRecv, Flags: verbs.WCFlagTMSyncReq, ByteLen: 4}},
		"list operation": {with(0, verbs.WCTMAdd, 0), verbs.WC{Opcode: verbs.WCTMAdd, ByteLen: 4}},
		"send":           {with(0, verbs.WCSend, verbs.WCFlagGRH), verbs.WC{Opcode: verbs.WCSend, ByteLen: 4}},
		"error":          {with(verbs.WCTMErr, 99, match|data), verbs.WC{Status: verbs.WCTMErr}},
		"flushed":        {with(verbs.WCWRFlushErr, verbs.WCTMRecv, match), verbs.WC{Status: verbs.WCWRFlushErr}},
		"incomplete": {with(verbs.WCTMRndvIncomplete, verbs.WCTMRecv, match|data),
			verbs.WC{Status: verbs.WCTMRndvIncomplete, Opcode: verbs.WCTMRecv, Flags: match | data, ByteLen: 4, Tag: 2, Priv: 7}},
		"given up": {with(verbs.WCTMRndvIncomplete, 99, data),
			verbs.WC{Status: verbs.WCTMRndvIncomplete, Opcode: verbs.WCTMRecv, Flags: data, ByteLen: 4}},
	} {
		f.add(c.in)
		r := &recorder{}
		_, err := cq.Drain(r, 1)
		require.NoError(t, err, name)
		c.want.WRID, c.want.VendorErr, c.want.QPNum = 1, 3, 5
		require.Equal(t, []verbs.WC{c.want}, r.got, name)
	}
}

// TestExtendedFaults: a poll that fails comes after what it has found, one of an opcode that nobody
// knows after those before it, and what a handler has stopped before is kept.
func TestExtendedFaults(t *testing.T) {
	f := newFake(t)
	cq := f.newCQ()
	ok := func(id uint64) queued {
		return queued{wrID: id, tag: id + 10, opcode: uint32(verbs.WCTMRecv), flags: uint32(verbs.WCFlagTMMatch)}
	}
	f.add(ok(0), ok(1), ok(2), ok(3))
	r := &recorder{cq: cq, stop: 2}
	for _, want := range []int{2, 1, 1, 0} {
		n, err := cq.Drain(r, max(1, want))
		require.NoError(t, err)
		require.Equal(t, want, n)
	}
	for i, w := range r.got {
		require.Equal(t, [2]uint64{uint64(i), uint64(i) + 10}, [2]uint64{w.WRID, w.Tag})
	}

	*f.int("next_fails") = -2
	f.add(ok(0), ok(1))
	n, err := cq.Drain(&recorder{}, 100)
	require.ErrorIs(t, err, syscall.EOVERFLOW)
	require.Equal(t, 2, n)
	*f.int("next_fails"), *f.int("start_fails") = int32(syscall.ENOENT), -2
	for _, cq := range []verbs.CQ{cq, f.newCQ()} { // a fault remains
		n, err = cq.Drain(&recorder{}, 100)
		require.ErrorIs(t, err, syscall.EOVERFLOW)
		require.Zero(t, n)
	}

	*f.int("start_fails") = int32(syscall.ENOENT)
	cq = f.newCQ()
	unknown := ok(2)
	unknown.opcode = 135
	f.add(ok(0), ok(1), unknown, ok(3))
	r = &recorder{cq: cq, stop: 1}
	n, err = cq.Drain(r, 100)
	require.ErrorIs(t, err, syscall.EPROTO)
	require.Equal(t, 1, n)
	n, err = cq.Drain(r, 100)
	require.ErrorIs(t, err, syscall.EPROTO)
	require.Equal(t, 1, n)
	require.Len(t, r.got, 2)
	require.EqualValues(t, 1, r.got[1].WRID)
}

// opsChain makes n ADDs in a row.
func opsChain(n int) []*verbs.OpsWR {
	var list []*verbs.OpsWR
	for i := range n {
		wr := &verbs.OpsWR{WRID: uint64(i), Opcode: verbs.WRTagAdd, Flags: verbs.OpsTMSync, UnexpectedCnt: uint32(i) << 16,
			Add: verbs.TagAdd{RecvWRID: 1<<60 | uint64(i), Tag: 1<<63 | uint64(i), Mask: ^uint64(i), SGList: []verbs.SGE{{Data: make([]byte, 8), LKey: 77}}}}
		if i > 0 {
			list[i-1].Next = wr
		}
		list = append(list, wr)
	}
	return list
}

// TestPostSRQOps: operations come to the device as they are posted, 32 a call, and their handles
// back.
func TestPostSRQOps(t *testing.T) {
	f := newFake(t)
	s := f.newSRQ(f.newCQ())
	list := opsChain(70)
	bad, err := s.PostSRQOps(list[0])
	require.NoError(t, err)
	require.Nil(t, bad)
	require.EqualValues(t, 3, *f.int("calls"))
	require.EqualValues(t, 70, *f.int("posted"))
	ops, sges := at[[128]abi.OpsWR](f.symbol("ops")), at[[128]abi.SGE](f.symbol("sges"))
	for i, wr := range list {
		got := ops[i]
		got.Next, got.SGList = 0, 0
		require.Equal(t, abi.OpsWR{WRID: wr.WRID, Flags: 2, UnexpectedCnt: wr.UnexpectedCnt, RecvWRID: wr.Add.RecvWRID, NumSGE: 1,
			Tag: wr.Add.Tag, Mask: wr.Add.Mask}, got)
		require.Equal(t, abi.SGE{Addr: uint64(start(wr.Add.SGList[0].Data)), Length: 8, LKey: 77}, sges[i])
		require.EqualValues(t, 100+i, wr.Handle)
	}
	empty := &verbs.OpsWR{Opcode: verbs.WRTagAdd, Flags: verbs.OpsSignaled, Add: verbs.TagAdd{SGList: []verbs.SGE{{Data: []byte{}}}}}
	del := &verbs.OpsWR{Opcode: verbs.WRTagDel, Handle: 169, Next: &verbs.OpsWR{Opcode: verbs.WRTagSync, Next: empty}}
	_, err = s.PostSRQOps(del)
	require.NoError(t, err)
	require.Equal(t, [3]uint32{1, 169, 0}, [3]uint32{ops[70].Opcode, ops[70].Handle, uint32(ops[70].Flags)})
	require.EqualValues(t, 2, ops[71].Opcode)
	require.Equal(t, [2]int32{1, 0}, [2]int32{ops[72].Flags, ops[72].NumSGE}, "an empty buffer has no entry")
	require.NoError(t, s.Destroy())
	bad, err = s.PostSRQOps(del)
	require.ErrorIs(t, err, syscall.EINVAL)
	require.Equal(t, del, bad)
}

// TestPostSRQOpsFails: those before the first that fails are posted, and have their handles.
func TestPostSRQOpsFails(t *testing.T) {
	for name, c := range map[string]struct {
		spoil  func(f *fake, wr *verbs.OpsWR)
		errno  syscall.Errno
		posted int
	}{
		"full":              {func(f *fake, _ *verbs.OpsWR) { *f.int("room") = 40 }, syscall.ENOMEM, 40},
		"opcode":            {func(_ *fake, wr *verbs.OpsWR) { wr.Opcode = 3 }, syscall.EINVAL, 40},
		"flags":             {func(_ *fake, wr *verbs.OpsWR) { wr.Flags = 4 }, syscall.EINVAL, 40},
		"entries":           {func(_ *fake, wr *verbs.OpsWR) { wr.Add.SGList = make([]verbs.SGE, 2) }, syscall.EINVAL, 40},
		"unknown handle":    {func(_ *fake, wr *verbs.OpsWR) { wr.Opcode, wr.Handle = verbs.WRTagDel, 140 }, syscall.EINVAL, 40},
		"which is not said": {func(f *fake, _ *verbs.OpsWR) { *f.int("room"), *f.int("silent") = 40, 1 }, syscall.ENOMEM, 32},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t)
			s := f.newSRQ(f.newCQ())
			list := opsChain(50)
			c.spoil(f, list[40])
			bad, err := s.PostSRQOps(list[0])
			require.ErrorIs(t, err, c.errno)
			require.Equal(t, list[c.posted], bad)
			require.EqualValues(t, 40, *f.int("posted"))
			for i, wr := range list[:c.posted] {
				require.EqualValues(t, 100+i, wr.Handle)
			}
		})
	}
}

// TestTagAllocs: neither posts nor polls allocate.
func TestTagAllocs(t *testing.T) {
	f := newFake(t)
	cq := f.newCQ()
	s := f.newSRQ(cq)
	list := opsChain(3)
	for range 20 {
		f.add(queued{opcode: uint32(verbs.WCTMRecv), flags: uint32(verbs.WCFlagTMMatch)})
	}
	h, room, posted, head, tail := &counter{}, f.int("room"), f.int("posted"), f.int("head"), f.int("tail")
	require.Zero(t, testing.AllocsPerRun(10, func() {
		*room, *posted, *head = 128, 0, *tail-20
		if _, err := s.PostSRQOps(list[0]); err != nil {
			panic(err)
		}
		if n, err := cq.Drain(h, 100); n != 20 || err != nil {
			panic(fmt.Sprint(n, err))
		}
	}))
	require.Equal(t, 11*20, h.n)
}

// counter is a Handler that counts.
type counter struct{ n int }

func (c *counter) Complete(*verbs.WC) bool { c.n++; return false }

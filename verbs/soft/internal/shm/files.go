//go:build linux

package shm

import (
	"math"
	"os"
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/tagmatch/tagmatch/verbs/soft/internal/mem"
)

// A copy from or to another process waits in the kernel for pages that it does not have, and
// without end where a file system hangs (NFS, FUSE) or nobody serves them (userfaultfd). With it
// would wait the device that makes the copy, and its traffic with all. So peers do not copy from
// and to such memory.

// span is memory of this process.
type span struct {
	lo, hi uint64 // addresses; hi is behind it
	waits  bool   // a copy may wait: it is of a file that is not in memory, or served by a process
}

// spans is all memory of this process, by address, as it was when somebody last met memory that was
// not in it. What is mapped, or comes to be served, later where something else was is taken for
// that: a file may be copied from then, and memory go as packets.
var spans atomic.Pointer[[]span]

var lookMu sync.Mutex // held by who reads spans anew

// mayWait reports whether a copy from or to b, which is not empty, may wait without end.
func mayWait(b []byte) bool {
	lo := mem.AddrOf(b)
	hi := lo + uint64(len(b))
	if waits, known := findNow(lo, hi); known {
		return waits
	}
	lookMu.Lock()
	defer lookMu.Unlock()
	if waits, known := findNow(lo, hi); known { // another device has met it
		return waits
	}
	list := look()
	spans.Store(&list)
	waits, _ := find(list, lo, hi)
	return waits
}

func findNow(lo, hi uint64) (waits, known bool) {
	if list := spans.Load(); list != nil {
		return find(*list, lo, hi)
	}
	return false, false
}

// find reports whether a copy may wait for some of the memory from lo to hi, and whether list has
// all of it up to there.
func find(list []span, lo, hi uint64) (waits, known bool) {
	for i := sort.Search(len(list), func(i int) bool { return list[i].hi > lo }); i < len(list) && list[i].lo <= lo; i++ {
		if list[i].waits {
			return true, true
		}
		if lo = list[i].hi; lo >= hi {
			return false, true
		}
	}
	return false, false
}

// look reads what memory this process has. Without /proc none is known to be of a file. What is
// served by userfaultfd only smaps tells, for which the kernel goes through all pages: it is read
// where this process has such a descriptor.
func look() []span {
	mounts, _ := os.ReadFile("/proc/self/mountinfo")
	table := "/proc/self/maps"
	if servesPages() {
		table = "/proc/self/smaps"
	}
	maps, err := os.ReadFile(table)
	if err != nil {
		return []span{{hi: math.MaxUint64}}
	}
	return parseMaps(string(maps), parseMounts(string(mounts)))
}

// servesPages reports whether this process has a descriptor of userfaultfd(2).
func servesPages() bool {
	const dir = "/proc/self/fd/"
	list, _ := os.ReadDir(dir)
	return slices.ContainsFunc(list, func(e os.DirEntry) bool {
		what, _ := os.Readlink(dir + e.Name())
		return what == "anon_inode:[userfaultfd]"
	})
}

// inMemory are the file systems whose files are in memory.
var inMemory = []string{"tmpfs", "ramfs", "rootfs", "devtmpfs", "hugetlbfs"}

// ofKernel begin the names of files in memory whose file systems are the kernel's own, and are not
// mounted: memfds, shared anonymous memory, huge pages.
var ofKernel = []string{"/memfd:", "/dev/zero", "/SYSV", "/anon_hugepage"}

// parseMounts returns the device numbers of the file systems that are in memory.
func parseMounts(text string) map[string]bool {
	found := make(map[string]bool)
	for line := range strings.Lines(text) {
		what, kind, _ := strings.Cut(line, " - ")
		f := strings.Fields(what)
		if len(f) < 3 || !slices.Contains(inMemory, strings.SplitN(kind, " ", 2)[0]) {
			continue
		}
		major, minor, _ := strings.Cut(f[2], ":")
		found[hexadecimal(major)+":"+hexadecimal(minor)] = true
	}
	return found
}

// hexadecimal is a number of mountinfo as maps writes it.
func hexadecimal(n string) string {
	k, _ := strconv.ParseUint(n, 10, 32)
	if s := strconv.FormatUint(k, 16); len(s) > 1 {
		return s
	}
	return "0" + strconv.FormatUint(k, 16)
}

// parseMaps returns the memory that /proc/self/maps or smaps lists. A file is on a disk or a
// network unless its device is known to be in memory: one that was unmounted is still mapped.
func parseMaps(text string, memory map[string]bool) (list []span) {
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) != 0 && f[0] == "VmFlags:" && len(list) != 0 { // of the mapping that was told last
			list[len(list)-1].waits = list[len(list)-1].waits || slices.ContainsFunc(f, served)
		}
		if len(f) < 5 || strings.HasSuffix(f[0], ":") {
			continue
		}
		s := span{waits: f[4] != "0" && !memory[f[3]] && !kernels(f[5:])}
		lo, hi, _ := strings.Cut(f[0], "-")
		s.lo, _ = strconv.ParseUint(lo, 16, 64)
		s.hi, _ = strconv.ParseUint(hi, 16, 64)
		list = append(list, s)
	}
	return joined(list)
}

// served reports whether a flag of smaps is that of memory that userfaultfd serves: missing pages,
// those that are written to, or those that are in a file only.
func served(flag string) bool { return flag == "um" || flag == "uw" || flag == "ui" }

// joined makes one of neighbours that are alike.
func joined(list []span) (all []span) {
	for _, s := range list {
		if n := len(all) - 1; n >= 0 && all[n].hi == s.lo && all[n].waits == s.waits {
			all[n].hi = s.hi
		} else {
			all = append(all, s)
		}
	}
	return all
}

func kernels(name []string) bool {
	return len(name) > 0 && slices.ContainsFunc(ofKernel, func(begin string) bool { return strings.HasPrefix(name[0], begin) })
}

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

// A copy from or to another process waits in the kernel for pages of files, and without end where
// their file system hangs (NFS, FUSE). With it would wait the device that makes the copy, and its
// traffic with all. So peers do not copy from and to memory of files, but for those in memory.

// span is memory of this process.
type span struct {
	lo, hi uint64 // addresses; hi is behind it
	file   bool   // it is of a file that is not in memory
}

// spans is all memory of this process, by address, as it was when somebody last met memory that was
// not in it. What is mapped later where something else was is taken for that: a file may be copied
// from then, and memory go as packets.
var spans atomic.Pointer[[]span]

var lookMu sync.Mutex // held by who reads spans anew

// ofFile reports whether some of b, which is not empty, is of a file that is not in memory.
func ofFile(b []byte) bool {
	lo := mem.AddrOf(b)
	hi := lo + uint64(len(b))
	if file, known := findNow(lo, hi); known {
		return file
	}
	lookMu.Lock()
	defer lookMu.Unlock()
	if file, known := findNow(lo, hi); known { // another device has met it
		return file
	}
	list := look()
	spans.Store(&list)
	file, _ := find(list, lo, hi)
	return file
}

func findNow(lo, hi uint64) (file, known bool) {
	if list := spans.Load(); list != nil {
		return find(*list, lo, hi)
	}
	return false, false
}

// find reports whether memory of a file is among that from lo to hi, and whether list has all of it
// up to there.
func find(list []span, lo, hi uint64) (file, known bool) {
	for i := sort.Search(len(list), func(i int) bool { return list[i].hi > lo }); i < len(list) && list[i].lo <= lo; i++ {
		if list[i].file {
			return true, true
		}
		if lo = list[i].hi; lo >= hi {
			return false, true
		}
	}
	return false, false
}

// look reads what memory this process has. Without /proc none is known to be of a file.
func look() []span {
	mounts, _ := os.ReadFile("/proc/self/mountinfo")
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return []span{{hi: math.MaxUint64}}
	}
	return parseMaps(string(maps), parseMounts(string(mounts)))
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

// parseMaps returns the memory that /proc/self/maps lists. A file is on a disk or a network unless
// its device is known to be in memory: one that was unmounted is still mapped.
func parseMaps(text string, memory map[string]bool) (list []span) {
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) < 5 {
			continue
		}
		s := span{file: f[4] != "0" && !memory[f[3]] && !kernels(f[5:])}
		lo, hi, _ := strings.Cut(f[0], "-")
		s.lo, _ = strconv.ParseUint(lo, 16, 64)
		s.hi, _ = strconv.ParseUint(hi, 16, 64)
		if n := len(list) - 1; n >= 0 && list[n].hi == s.lo && list[n].file == s.file {
			list[n].hi = s.hi
			continue
		}
		list = append(list, s)
	}
	return list
}

func kernels(name []string) bool {
	return len(name) > 0 && slices.ContainsFunc(ofKernel, func(begin string) bool { return strings.HasPrefix(name[0], begin) })
}

//go:build linux

package shm

import (
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
	if list := spans.Load(); list != nil {
		if file, known := find(*list, lo, hi); known {
			return file
		}
	}
	lookMu.Lock()
	defer lookMu.Unlock()
	list := look()
	spans.Store(&list)
	file, _ := find(list, lo, hi)
	return file
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
	maps, _ := os.ReadFile("/proc/self/maps")
	return parseMaps(string(maps), parseMounts(string(mounts)))
}

// inMemory are the file systems whose files are in memory.
var inMemory = []string{"tmpfs", "ramfs", "rootfs", "devtmpfs", "hugetlbfs"}

// parseMounts returns the device numbers of all file systems that are not in memory. Those that the
// kernel has for itself (memfds, shared anonymous memory, huge pages) are not mounted.
func parseMounts(text string) map[string]bool {
	files := make(map[string]bool)
	for line := range strings.Lines(text) {
		what, kind, _ := strings.Cut(line, " - ")
		f := strings.Fields(what)
		if len(f) < 3 || slices.Contains(inMemory, strings.SplitN(kind, " ", 2)[0]) {
			continue
		}
		major, minor, _ := strings.Cut(f[2], ":")
		files[hexadecimal(major)+":"+hexadecimal(minor)] = true
	}
	return files
}

// hexadecimal is a number of mountinfo as maps writes it.
func hexadecimal(n string) string {
	k, _ := strconv.ParseUint(n, 10, 32)
	if s := strconv.FormatUint(k, 16); len(s) > 1 {
		return s
	}
	return "0" + strconv.FormatUint(k, 16)
}

// parseMaps returns the memory that /proc/self/maps lists; files are of parseMounts.
func parseMaps(text string, files map[string]bool) (list []span) {
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) < 5 {
			continue
		}
		lo, hi, _ := strings.Cut(f[0], "-")
		s := span{file: f[4] != "0" && files[f[3]]}
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

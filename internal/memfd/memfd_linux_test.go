package memfd

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/tagmatch/tagmatch/internal/refuse"
)

// errnoVar has this binary be a process to which the kernel refuses madvise with that number. Its
// descriptor 3 is a sparse segment of pagesHere pages.
const (
	errnoVar  = "MEMFD_TEST_ERRNO"
	pagesHere = 4
)

func TestMain(m *testing.M) {
	errno, err := strconv.Atoi(os.Getenv(errnoVar))
	if err != nil {
		os.Exit(m.Run())
	}
	if err := adoptWithout(unix.Errno(errno)); err != nil {
		fmt.Println(err)
	}
}

// adoptWithout adopts the segment, and prints how many of its pages are allocated then.
func adoptWithout(errno unix.Errno) error {
	if err := refuse.Calls(errno, unix.SYS_MADVISE); err != nil {
		return err
	}
	fmt.Println("can reserve:", CanReserve())
	s, err := Adopt(3, pagesHere*os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, Sparse)
	if err != nil {
		return err
	}
	var st unix.Stat_t
	if err := unix.Fstat(3, &st); err != nil {
		return err
	}
	fmt.Println("pages:", int(st.Blocks)*512/os.Getpagesize())
	s.Close()
	return nil
}

// TestAdoptWithoutReserve: a process that cannot reserve pages allocates those of a peer that can.
// That there is no memory for a page now does not say that they cannot be reserved.
func TestAdoptWithoutReserve(t *testing.T) {
	before := 0
	if !CanReserve() { // before Linux 5.14
		before = pagesHere
	}
	for errno, want := range map[unix.Errno]string{
		unix.EINVAL: "can reserve: false\npages: 4\n",
		unix.ENOSYS: "can reserve: false\npages: 4\n",
		unix.EPERM:  "can reserve: false\npages: 4\n",
		unix.ENOMEM: fmt.Sprintf("can reserve: true\npages: %d\n", before),
	} {
		s, err := New("memfd-test", pagesHere*os.Getpagesize(), Sparse)
		require.NoError(t, err)
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), errnoVar+"="+strconv.Itoa(int(errno)))
		cmd.ExtraFiles = []*os.File{os.NewFile(uintptr(s.FD), "segment")}
		s.FD = -1 // the file's
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		require.Equal(t, want, string(out), errno.Error())
		require.NoError(t, cmd.ExtraFiles[0].Close())
		s.Close()
	}
}

// TestAdoptHugePages: a memfd of huge pages is refused, as a hole in it is a SIGBUS to all who
// touch it. One of tmpfs may have a hole: what is read there is zero.
func TestAdoptHugePages(t *testing.T) {
	const huge = 2 << 20
	for name, c := range map[string]struct {
		flags int
		want  string
	}{
		"tmpfs": {0, ""},
		"huge":  {unix.MFD_HUGETLB | unix.MFD_HUGE_2MB, "want tmpfs"},
	} {
		t.Run(name, func(t *testing.T) {
			fd, err := unix.MemfdCreate("memfd-test", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING|c.flags)
			require.NoError(t, err)
			defer func() { _ = unix.Close(fd) }()
			require.NoError(t, unix.Ftruncate(fd, huge))
			_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, Seals)
			require.NoError(t, err)
			s, err := Adopt(fd, huge, unix.PROT_READ|unix.PROT_WRITE, Sparse)
			if c.want != "" {
				require.ErrorContains(t, err, c.want)
				return
			}
			require.NoError(t, err)
			defer s.Close()
			s.Mem[5] = 1
			require.NoError(t, unix.Fallocate(fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, huge))
			require.Zero(t, s.Mem[5])
			s.Mem[5] = 2
		})
	}
}

// Package tracefile has a rank record into a file that it maps, so that the records are there when
// its process has ended, however it has.
//
// A file has a page with a mark, the count of records and the rank's trace.Answer as JSON, then the
// records as this processor has them in memory. It is read where it was written, by the same
// release.
package tracefile

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/tagmatch/tagmatch/internal/trace"
)

// Layout, in bytes.
const (
	mark    = "tagmatch trace 2"
	countAt = len(mark)
	headAt  = countAt + 8
	ringAt  = 4 << 10
)

// Records is how many of the newest records a file keeps: 4 MiB.
const Records = 1 << 16

const size = ringAt + Records*trace.Size // of a file

// File is a file that a rank records into.
type File struct {
	Ring trace.Ring
	path string
	mem  []byte // the mapping
}

// Create makes the file of a rank in a directory; "" is that for temporary files. Memory is
// reserved for all of it, so that no later write fails.
func Create(dir, job string, rank int) (f *File, err error) {
	if dir == "" {
		dir = os.TempDir()
	}
	path, err := filepath.Abs(filepath.Join(dir, fmt.Sprintf("tagmatch-%s-%d-%d.trace", job, rank, os.Getpid())))
	if err != nil {
		return nil, err
	}
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	_, err = file.Write(make([]byte, size))
	f = &File{path: path}
	if err == nil {
		f.mem, err = unix.Mmap(int(file.Fd()), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return nil, errors.Join(err, f.Close(false))
	}
	f.Ring = ringIn(f.mem)
	return f, nil
}

// Head says whose records these are, and when they began.
func (f *File) Head(a *trace.Answer) error {
	text, err := json.Marshal(a)
	if err == nil && len(text) > ringAt-headAt {
		err = fmt.Errorf("%d bytes about a rank are too many", len(text))
	}
	if err != nil {
		return err
	}
	copy(f.mem[headAt:ringAt], text)
	copy(f.mem, mark) // it is one now
	return nil
}

// Path is where the file is.
func (f *File) Path() string { return f.path }

// Close ends the recording: nobody writes to Ring any more. Where it is not to be kept it removes
// the file.
func (f *File) Close(keep bool) error {
	f.Ring = trace.Ring{}
	var errs []error
	if f.mem != nil {
		errs = append(errs, unix.Munmap(f.mem))
		f.mem = nil
	}
	if !keep {
		errs = append(errs, os.Remove(f.path))
	}
	return errors.Join(errs...)
}

// Read reads a file, also while a rank records into it: then the last record may be damaged. Tags
// are the engine's.
func Read(path string) (a trace.Answer, list []trace.Record, err error) {
	file, err := os.Open(path)
	if err != nil {
		return a, nil, err
	}
	defer func() { _ = file.Close() }()
	for range mostTries {
		if a, list, err = read(file); err != nil {
			return a, nil, fmt.Errorf("%s: %w", path, err)
		}
		if len(list) >= Records/2 || a.Lost == 0 {
			break // else the rank was much faster than this process
		}
	}
	return a, list, nil
}

// mostTries is how often a file is read of which most records were overwritten meanwhile.
const mostTries = 10

func read(file *os.File) (a trace.Answer, list []trace.Record, err error) {
	info, err := file.Stat()
	if err != nil {
		return a, nil, err
	}
	if info.Size() != size { // nor is there more memory for it
		return a, nil, errForeign
	}
	b := make([]byte, size)
	if _, err := file.ReadAt(b, 0); err != nil {
		return a, nil, err
	}
	var count [8]byte
	if _, err := file.ReadAt(count[:], int64(countAt)); err != nil {
		return a, nil, err
	}
	return parse(b, binary.NativeEndian.Uint64(count[:]))
}

var errForeign = errors.New("it is no recording of a rank, or that of another release: read it with the release that the program was built with")

// parse reads what a file has held. After is the count of records when all of it was read: the
// newest ones have replaced the oldest.
func parse(b []byte, after uint64) (a trace.Answer, list []trace.Record, err error) {
	if !bytes.HasPrefix(b, []byte(mark)) {
		return a, nil, errForeign
	}
	head, _, _ := bytes.Cut(b[headAt:ringAt], []byte{0})
	if err := json.Unmarshal(head, &a); err != nil || a.Version != trace.Version || a.Rank < 0 || a.Rank >= a.Size {
		return a, nil, errForeign
	}
	records := b[ringAt:]
	for i := 0; i < len(records); i += trace.Size {
		if !sound(records[i : i+trace.Size]) {
			return a, nil, fmt.Errorf("record %d is damaged", i/trace.Size)
		}
	}
	ring := ringIn(b)
	before := *ring.Count
	if most := max(before, after); most > 1<<62 {
		return a, nil, fmt.Errorf("it cannot have %d records", most)
	}
	list, a.Lost = ring.Newest()
	if first := after + 1; after > before && first > a.Lost+Records { // in the place of the one before it a record may be half written
		replaced := min(first-a.Lost-Records, uint64(len(list)))
		list, a.Lost = list[replaced:], a.Lost+replaced
	}
	a.Records = len(list)
	return a, list, nil
}

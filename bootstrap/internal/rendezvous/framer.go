package rendezvous

import (
	"bufio"
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"fmt"
	"hash"
	"io"
	"net"
	"strconv"
	"sync"
	"time"
)

// writeTimeout bounds one write. Both sides read all the time, so only a hanging peer exceeds it.
const writeTimeout = 30 * time.Second

// framer reads and writes frames on one connection. One goroutine may read while others write.
// After seal every frame carries a MAC over its number and content, so that a relay of the
// handshake cannot change or inject anything.
type framer struct {
	conn net.Conn // deadlines, addresses and its end are those of this one, also with TLS
	r    *bufio.Reader
	w    io.Writer

	in    hash.Hash // nil before seal; owned by the reader
	inSeq uint64

	mu     sync.Mutex // writers
	out    hash.Hash
	outSeq uint64
	buf    []byte
}

func newFramer(conn net.Conn) *framer {
	return &framer{conn: conn, r: bufio.NewReader(conn), w: conn}
}

// seal authenticates all later frames, with one key for each direction.
func (f *framer) seal(in, out []byte) {
	f.in = hmac.New(sha256.New, in)
	f.mu.Lock()
	f.out = hmac.New(sha256.New, out)
	f.mu.Unlock()
}

// preface is this version's.
var preface = be.AppendUint32([]byte(magic), protocolVersion)

func (f *framer) writePreface() error {
	_, err := f.w.Write(preface)
	return err
}

// greet writes preface and HELLO at once, so that both are there when the connection is accepted.
func (f *framer) greet(hello *helloMsg) error {
	body := encode(nil, hello)
	b := be.AppendUint32(bytes.Clone(preface), uint32(1+len(body)))
	b = append(b, byte(kindHello))
	_, err := f.w.Write(append(b, body...))
	return err
}

// readPreface returns the peer's version, or ErrProtocol without the magic.
func (f *framer) readPreface() (uint32, error) {
	var b [prefaceSize]byte
	if _, err := io.ReadFull(f.r, b[:]); err != nil {
		return 0, err
	}
	if string(b[:len(magic)]) != magic {
		return 0, Errorf(ErrProtocol, "not the rendezvous protocol: it begins with %q", b[:])
	}
	return be.Uint32(b[len(magic):]), nil
}

func (f *framer) write(m message) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	b := append(f.buf[:0], 0, 0, 0, 0, byte(m.kind()))
	body := shared(m)
	if body == nil {
		b = encode(b, m)
	}
	head := len(b)
	n := head - 4 + len(body)
	if f.out != nil {
		n += macSize
	}
	be.PutUint32(b, uint32(n))
	if f.out != nil {
		b = appendMAC(b, f.out, f.outSeq, b, body)
		f.outSeq++
	}
	f.conn.SetWriteDeadline(time.Now().Add(writeTimeout))
	var err error
	if body == nil {
		_, err = f.w.Write(b)
	} else {
		_, err = (&net.Buffers{b[:head], body, b[head:]}).WriteTo(f.w)
	}
	if cap(b) <= 64<<10 {
		f.buf = b
	}
	return err
}

// shared is the body of a message that goes to many, and is not copied for each; nil: it is none.
func shared(m message) []byte {
	if r, ok := m.(*releaseMsg); ok {
		return r.encoded
	}
	return nil
}

// appendMAC appends the MAC over a frame, which is number seq of its direction, to b.
func appendMAC(b []byte, h hash.Hash, seq uint64, frame ...[]byte) []byte {
	var s [8]byte
	be.PutUint64(s[:], seq)
	h.Reset()
	h.Write(s[:])
	for _, part := range frame {
		h.Write(part)
	}
	return h.Sum(b)
}

// read returns the next message; its frame may have at most limit bytes.
func (f *framer) read(limit int) (message, error) {
	var h [headerSize]byte
	if _, err := io.ReadFull(f.r, h[:]); err != nil {
		return nil, err
	}
	n, overhead := int64(be.Uint32(h[:])), int64(1)
	if f.in != nil {
		overhead += macSize
	}
	if n < overhead || n > int64(limit)+overhead {
		return nil, Errorf(ErrProtocol, "%v frame of %d bytes, at most %d are allowed", kind(h[4]), n, limit)
	}
	// Memory follows the bytes that have arrived, not the claimed length, unless a rank claims it.
	var frame bytes.Buffer
	if f.in != nil {
		frame.Grow(headerSize + int(n) + bytes.MinRead) // which ReadFrom has behind the last byte, too
	}
	frame.Write(h[:])
	if _, err := io.CopyN(&frame, f.r, n-1); err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return nil, err
	}
	b := frame.Bytes()
	if f.in != nil {
		end := len(b) - macSize
		want := appendMAC(nil, f.in, f.inSeq, b[:end])
		if !hmac.Equal(want, b[end:]) {
			return nil, Errorf(ErrProtocol, "%v frame with a wrong MAC", kind(h[4]))
		}
		f.inSeq++
		b = b[:end]
	}
	m, err := decode(kind(h[4]), b[headerSize:])
	if r, ok := m.(*releaseMsg); ok {
		r.encoded = b[headerSize:]
	}
	return m, err
}

// expect reads a message of type M, or fails with the peer's REJECT or, once both ends have proved
// who they are, its FAIL or ABORT.
func expect[M message](f *framer, limit int) (M, error) {
	var none M
	m, err := f.read(limit)
	if err != nil {
		return none, err
	}
	switch m := m.(type) {
	case M:
		return m, nil
	case *rejectMsg: // quoted: a stranger may have written it
		return none, &rejection{m.code, "refused: " + strconv.Quote(m.reason)}
	case *failMsg:
		if f.in != nil {
			return none, &rejection{rejectEnded, fmt.Sprintf("rank %d %s", m.rank, m.reason)}
		}
	case *abortMsg:
		if f.in != nil {
			return none, m.err()
		}
	}
	return none, Errorf(ErrProtocol, "%v frame where %v belongs", m.kind(), none.kind())
}

// rejection is a received REJECT.
type rejection struct {
	code rejectCode
	text string
}

func (e *rejection) Error() string { return "bootstrap: " + e.text }
func (e *rejection) Unwrap() error { return e.code.cond() }

func (m *abortMsg) err() error {
	return &AbortError{AbortInfo{int(m.rank), int(m.code), m.reason}}
}

package doors

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"

	"github.com/tagmatch/tagmatch/internal/inspect"
)

// Why a rank does not answer.
const (
	Stopped = "its process is stopped"
	Blocked = "its process is in an uninterruptible system call"
	Gone    = "its process has ended"
	Left    = "it has closed its World"
	Busy    = "its process is there, and has not answered in time"
)

var errUnsupported = fmt.Errorf("ranks on %s cannot be looked into: only Linux has the sockets for it", runtime.GOOS)

// Bounds of what is read of an answer, in bytes. Many ranks are asked at once, and those whom root
// asks may be of users who are not trusted.
const (
	mostAnswer    = 4 << 20
	mostJobAnswer = 256 << 20 // of all ranks of a job
)

// Ask asks one question at a door, and returns the lines of the answer. pid is the process that has
// opened it, as this one sees it; 0: not known. An error of ctx says that nobody has answered.
func Ask(ctx context.Context, n Name, request string) (lines [][]byte, pid int, err error) {
	if !supported {
		return nil, 0, errUnsupported
	}
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", n.String())
	if err != nil {
		return nil, 0, err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	uid, pid, err := peer(conn.(*net.UnixConn))
	if err == nil && uid != n.UID && uid != 0 {
		err = fmt.Errorf("the door of rank %d is of user %d, and its name says %d: somebody has put another one in its place", n.Rank, uid, n.UID)
	}
	if err != nil {
		return nil, 0, err
	}
	answer, err := exchange(conn, request)
	if ctx.Err() != nil {
		return nil, pid, ctx.Err()
	}
	if err != nil {
		return nil, pid, err
	}
	return answer, pid, nil
}

func exchange(conn net.Conn, request string) (lines [][]byte, err error) {
	if _, err := io.WriteString(conn, request+"\n"); err != nil {
		return nil, err
	}
	most := mostAnswer
	if strings.HasPrefix(request, inspect.RequestJob+" ") {
		most = mostJobAnswer
	}
	all, err := io.ReadAll(io.LimitReader(conn, int64(most)+1))
	if err != nil {
		return nil, err
	}
	if len(all) > most {
		return nil, fmt.Errorf("its answer is longer than %d bytes", most)
	}
	if len(all) == 0 || all[len(all)-1] != '\n' {
		return nil, errors.New("the answer was broken off: others ask there too, or the rank is ending")
	}
	lines = bytes.Split(all[:len(all)-1], []byte("\n"))
	if Refusal(lines[0]) != "" {
		return nil, &refused{lines[0]}
	}
	return lines, nil
}

// refused is the error of a request that a rank has refused.
type refused struct{ line []byte }

func (r *refused) Error() string { return "the rank answers: " + Refusal(r.line) }

// Refusal is why a request was refused; "" where this line answers it.
func Refusal(line []byte) string {
	var r refusal
	if json.Unmarshal(line, &r) != nil {
		return ""
	}
	return r.Error
}

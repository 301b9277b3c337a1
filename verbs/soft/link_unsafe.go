package soft

import (
	"unsafe"

	"github.com/tagmatch/tagmatch/verbs/soft/internal/wire"
)

// sameLink is a == b for links, which are pointers: it compares those alone, where == calls the
// runtime for each packet.
func sameLink(a, b wire.Link) bool { return pointerOf(a) == pointerOf(b) }

func pointerOf(l wire.Link) unsafe.Pointer { return (*[2]unsafe.Pointer)(unsafe.Pointer(&l))[1] }

//go:build !linux || !(amd64 || arm64)

package pmix

import (
	"context"
	"fmt"
	"runtime"

	"github.com/tagmatch/tagmatch/bootstrap/internal/space"
)

func open(context.Context, string) (space.Space, error) {
	return nil, fmt.Errorf("PMIx is not supported on %s/%s: set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT for each process", runtime.GOOS, runtime.GOARCH)
}

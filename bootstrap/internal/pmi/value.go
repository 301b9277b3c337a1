package pmi

import (
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"

	"github.com/tagmatch/tagmatch/bootstrap/internal/space"
)

// maxChunk is the most characters of a value, so that a whole line of PMI-1 stays below the 1024
// bytes that Slurm reads. Hydra cuts longer values without a word.
const maxChunk = 512

// maxChunks is how many a Broadcast of space.MaxValue bytes takes.
const maxChunks = (space.MaxValue*4/3 + 4 + maxChunk) / maxChunk

func key(chunk int) string { return "tagmatch-" + strconv.Itoa(chunk) }

// put puts value in chunks, as text, since raw bytes cannot travel. The first says how many there
// are.
func (c *Client) put(value []byte) error {
	if len(value) == 0 || len(value) > space.MaxValue {
		return fmt.Errorf("a value of %d bytes: 1 to %d can be handed to all ranks", len(value), space.MaxValue)
	}
	text := base64.RawURLEncoding.EncodeToString(value)
	n := (len(text) + maxChunk - 1) / maxChunk
	for i := range n {
		chunk := text[i*maxChunk : min((i+1)*maxChunk, len(text))]
		if i == 0 {
			chunk = strconv.Itoa(n) + "." + chunk
		}
		if err := c.pmi.put(key(i), chunk); err != nil {
			return err
		}
	}
	return nil
}

// get gets what put has put.
func (c *Client) get() ([]byte, error) {
	first, err := c.pmi.get(key(0))
	if err != nil {
		return nil, err
	}
	count, rest, _ := strings.Cut(first, ".")
	n, err := strconv.Atoi(count)
	if err != nil || n < 1 || n > maxChunks {
		return nil, fmt.Errorf("the process manager says that %s is %q, which rank 0 has not put", key(0), first)
	}
	var text strings.Builder
	text.WriteString(rest)
	for i := 1; i < n; i++ {
		chunk, err := c.pmi.get(key(i))
		if err != nil {
			return nil, err
		}
		text.WriteString(chunk)
	}
	value, err := base64.RawURLEncoding.DecodeString(text.String())
	if err != nil {
		return nil, fmt.Errorf("the value of %s and %d more has changed on its way: %w", key(0), n-1, err)
	}
	return value, nil
}

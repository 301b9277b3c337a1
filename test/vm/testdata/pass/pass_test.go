package pass

import (
	"os"
	"strings"
	"testing"
)

func TestDevices(t *testing.T) {
	entries, err := os.ReadDir("/sys/class/infiniband")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	if told := os.Getenv("TAGMATCH_TEST_RDMA"); told != strings.Join(names, ",") || told == "" {
		t.Fatalf("TAGMATCH_TEST_RDMA is %q, the devices are %q", told, names)
	}
}

func TestListed(t *testing.T) {
	t.Skip("test/vm/skips lists it")
}

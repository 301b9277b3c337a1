package benchkit

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestEchoIsCompared(t *testing.T) {
	answers := []string{"as sent", "otherwise", "as sent and more"}
	i := -1
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { i++; _, _ = io.WriteString(w, answers[i]) }))
	defer server.Close()
	for i := range answers {
		err := request(server.Client(), server.URL, []byte("as sent"))
		require.Equal(t, i > 0, err != nil, err)
	}
}

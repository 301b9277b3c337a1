package meters

import (
	"encoding/json"
	"fmt"
	"strconv"
)

// Values is numbers of a rank by Sample.Field.
type Values map[string]float64

// durations are the fields that are a time.Duration.
var durations = [...]string{"Waited", "OldestWait"}

// Parse reads p2p.Metrics from JSON. What is in a field of a field, or in an array, has a path as
// name: "Offload.Matched", "UnexpectedBySize.0". Durations become seconds.
func Parse(metrics []byte) (Values, error) {
	var tree map[string]any
	if err := json.Unmarshal(metrics, &tree); err != nil {
		return nil, fmt.Errorf("the metrics of a rank: %w", err)
	}
	v := Values{}
	v.add("", tree)
	for _, field := range durations {
		if ns, ok := v[field]; ok {
			v[field] = ns / 1e9
		}
	}
	return v, nil
}

// add adds what is below a node; texts are none of our numbers.
func (v Values) add(path string, node any) {
	if path != "" {
		path += "."
	}
	switch n := node.(type) {
	case map[string]any:
		for name, child := range n {
			v.child(path+name, child)
		}
	case []any:
		for i, child := range n {
			v.child(path+strconv.Itoa(i), child)
		}
	}
}

func (v Values) child(path string, node any) {
	if number, ok := node.(float64); ok {
		v[path] = number
		return
	}
	v.add(path, node)
}

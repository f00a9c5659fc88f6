// Command oracle answers what the kubelet's own device manager would do: the kubelet's packages, linked as they are and
// driven by JSON lines on standard input, one answer a line on standard output.
//
// It decides nothing itself. Device plugins are whoever registers on kubelet.sock; the kubelet's directory is a constant,
// so whoever starts this program mounts a folder of its own over it first.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
)

// Request is one line of input. Only what `do` needs is set.
type Request struct {
	Do       string     `json:"do"`
	Policy   string     `json:"policy"`
	Scope    string     `json:"scope"`
	NUMA     []int      `json:"numa"`
	Ready    bool       `json:"ready"`
	Running  [][]string `json:"running"`
	Pod      *Pod       `json:"pod"`
	UID      string     `json:"uid"`
	Resource string     `json:"resource"`
	Event    string     `json:"event"`
	Count    int        `json:"count"`
	Path     string     `json:"path"`
}

// Answer is one line of output: a value, or the reason why there is none.
type Answer struct {
	Value any    `json:"value,omitempty"`
	Error string `json:"error,omitempty"`
}

func main() {
	ctx := context.Background()
	oracle := newOracle()
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 64<<20)
	answers := json.NewEncoder(os.Stdout)
	for lines.Scan() {
		var request Request
		answer := Answer{}
		err := json.Unmarshal(lines.Bytes(), &request)
		if err == nil {
			answer.Value, err = oracle.do(ctx, &request)
		}
		if err != nil {
			answer.Error = err.Error()
		}
		if err := answers.Encode(answer); err != nil {
			fmt.Fprintln(os.Stderr, "answer cannot be written:", err)
			os.Exit(1)
		}
	}
}

func (o *oracle) do(ctx context.Context, r *Request) (any, error) {
	switch r.Do {
	case "start":
		return nil, o.start(r)
	case "wait":
		o.events.wait(r.Event, r.Resource, r.Count)
		return nil, nil
	case "verify":
		return verify(r.Path)
	}
	if o.devices == nil {
		return nil, fmt.Errorf("%q needs a started manager", r.Do)
	}
	switch r.Do {
	case "stop":
		return nil, o.stop()
	case "ready":
		o.sources.ready = true
		return nil, nil
	case "admit":
		return o.admit(ctx, r.Pod), nil
	case "end":
		o.end(r.UID)
		return nil, nil
	case "capacity":
		return o.capacity(), nil
	case "held":
		return o.held(), nil
	case "hints":
		return o.hints(r.Pod), nil
	case "health":
		return o.health(r.UID)
	}
	return nil, fmt.Errorf("nothing is known of %q", r.Do)
}

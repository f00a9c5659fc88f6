// Command nri-library is a container runtime reduced to its NRI: the library that containerd and CRI-O embed, unmodified, which
// serves a socket for plugins and is driven by JSON lines on standard input, one response a line on standard output.
//
// It decides nothing itself. It is built once for each release of the library that is tested.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/containerd/nri/pkg/adaptation"
	"github.com/containerd/nri/pkg/api"
	validator "github.com/containerd/nri/plugins/default-validator"
)

// Request is one line of input. Containers are those that exist already, by number, when a plugin connects.
type Request struct {
	Do        string            `json:"do"`
	Count     int               `json:"count"`
	Env       int               `json:"env"`
	Pods      int               `json:"pods"`
	Container string            `json:"container"`
	Notes     map[string]string `json:"annotations"`
}

// Response has the devices of a created container, or the library's error.
type Response struct {
	Devices []string `json:"devices"`
	Error   string   `json:"error"`
}

// Runtime is what a plugin is connected to.
type Runtime struct {
	sync.Mutex
	*adaptation.Adaptation
	pods       []*api.PodSandbox
	containers []*api.Container
	// the number of plugins, and the error of the last synchronization
	plugins int
	problem error
	changed *sync.Cond
}

func main() {
	socket := flag.String("socket", "", "path of the socket for plugins")
	validates := flag.Bool("validator", false, "enable the default validator")
	timeout := flag.Duration("timeout", 2*time.Second, "how long a plugin has for each request")
	flag.Parse()
	adaptation.SetPluginRequestTimeout(*timeout)
	runtime, err := start(*socket, *validates)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	lines := bufio.NewScanner(os.Stdin)
	responses := json.NewEncoder(os.Stdout)
	for lines.Scan() {
		var request Request
		response := Response{}
		err := json.Unmarshal(lines.Bytes(), &request)
		if err == nil {
			response.Devices, err = runtime.do(&request)
		}
		if err != nil {
			response.Error = err.Error()
		}
		if err := responses.Encode(response); err != nil {
			fmt.Fprintln(os.Stderr, "response cannot be written:", err)
			os.Exit(1)
		}
	}
}

func start(socket string, validates bool) (*Runtime, error) {
	runtime := &Runtime{}
	runtime.changed = sync.NewCond(runtime)
	made, err := adaptation.New("containerd", "v2.4.2", runtime.synchronize, runtime.update,
		adaptation.WithSocketPath(socket), adaptation.WithPluginPath(socket+".plugins"), adaptation.WithMetrics(runtime),
		adaptation.WithDefaultValidator(&validator.DefaultValidatorConfig{Enable: validates}))
	if err != nil {
		return nil, err
	}
	runtime.Adaptation = made
	return runtime, made.Start()
}

func (r *Runtime) do(request *Request) ([]string, error) {
	switch request.Do {
	case "state":
		r.setState(request.Count, request.Env, request.Pods)
		return nil, nil
	case "plugins":
		return nil, r.await(request.Count)
	case "create":
		return r.create(request.Container, request.Notes)
	}
	return nil, fmt.Errorf("%q is no request", request.Do)
}

// setState makes containers that run with so many bytes of environment each.
func (r *Runtime) setState(count, env, pods int) {
	r.pods, r.containers = nil, nil
	for n := range pods {
		r.pods = append(r.pods, pod(fmt.Sprintf("running-%d", n), nil))
	}
	value := strings.Repeat("x", env)
	for n := range count {
		name := fmt.Sprintf("c%d", n)
		r.containers = append(r.containers, &api.Container{
			Id: name, PodSandboxId: "sandbox-running-0", Name: name, State: api.ContainerState_CONTAINER_RUNNING,
			Env: []string{"VALUE=" + value}, Linux: &api.LinuxContainer{},
		})
	}
}

// await waits until so many plugins are connected, or one could not be synchronized.
func (r *Runtime) await(count int) error {
	r.Lock()
	defer r.Unlock()
	for r.plugins != count && r.problem == nil {
		r.changed.Wait()
	}
	problem := r.problem
	r.problem = nil
	return problem
}

func (r *Runtime) create(name string, annotations map[string]string) ([]string, error) {
	// as containerd: no plugin is synchronized meanwhile
	defer r.BlockPluginSync().Unblock()
	made, err := r.CreateContainer(context.Background(), &api.CreateContainerRequest{
		Pod:       pod(name, annotations),
		Container: &api.Container{Id: name, PodSandboxId: "sandbox-" + name, Name: "main", Linux: &api.LinuxContainer{}},
	})
	if err != nil {
		return nil, err
	}
	devices := []string{}
	for _, device := range made.GetAdjust().GetLinux().GetDevices() {
		devices = append(devices, device.GetPath())
	}
	return devices, nil
}

func pod(name string, annotations map[string]string) *api.PodSandbox {
	return &api.PodSandbox{
		Id: "sandbox-" + name, Name: name, Uid: name, Namespace: "default", Annotations: annotations, Linux: &api.LinuxPodSandbox{},
	}
}

func (r *Runtime) synchronize(ctx context.Context, plugin adaptation.SyncCB) error {
	_, err := plugin(ctx, r.pods, r.containers)
	r.note(func() { r.problem = err })
	return err
}

func (r *Runtime) update(context.Context, []*api.ContainerUpdate) ([]*api.ContainerUpdate, error) {
	return nil, nil
}

func (r *Runtime) note(change func()) {
	r.Lock()
	defer r.Unlock()
	change()
	r.changed.Broadcast()
}

// UpdatePluginCount, with the other three, makes the runtime an observer of the library.
func (r *Runtime) UpdatePluginCount(count int) { r.note(func() { r.plugins = count }) }

func (r *Runtime) RecordPluginInvocation(string, string, error) {}

func (r *Runtime) RecordPluginLatency(string, string, time.Duration) {}

func (r *Runtime) RecordPluginAdjustments(string, string, *api.ContainerAdjustment, int, int) {}

package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	cadvisor "github.com/google/cadvisor/lib/model"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/kubelet/checkpointmanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/containermap"
	"k8s.io/kubernetes/pkg/kubelet/cm/devicemanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/devicemanager/checkpoint"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager"
	"k8s.io/kubernetes/pkg/kubelet/lifecycle"
)

// oracle holds one kubelet's managers and the pods that are active there.
type oracle struct {
	events   *events
	logger   klog.Logger
	devices  *devicemanager.ManagerImpl
	topology topologymanager.Manager
	sources  *sources
	active   map[string]*v1.Pod
}

// sources answers the kubelet whether it has heard of all its pods yet: false while it restarts.
type sources struct{ ready bool }

func (s *sources) AddSource(string) {}
func (s *sources) AllReady() bool   { return s.ready }

func newOracle() *oracle {
	events := newEvents()
	return &oracle{events: events, logger: events.install()}
}

// start ends the managers of before and makes new ones, as a kubelet that (re)starts: on what the directory holds.
func (o *oracle) start(r *Request) error {
	if o.devices != nil {
		if err := o.stop(); err != nil {
			return err
		}
	}
	o.events.reset()
	o.active = map[string]*v1.Pod{}
	o.sources = &sources{ready: r.Ready}
	var nodes []cadvisor.Node
	for _, id := range r.NUMA {
		nodes = append(nodes, cadvisor.Node{Id: id})
	}
	topology, err := topologymanager.NewManager(o.logger, nodes, r.Policy, r.Scope, nil)
	if err != nil {
		return err
	}
	devices, err := devicemanager.NewManagerImpl(o.logger, nodes, topology)
	if err != nil {
		return err
	}
	topology.AddHintProvider(o.logger, devices)
	containers, running := containermap.NewContainerMap(), sets.New[string]()
	for _, names := range r.Running {
		if len(names) != 2 {
			return errors.New("a running container is [pod uid, container name]")
		}
		id := names[0] + "/" + names[1]
		containers.Add(names[0], names[1], id)
		running.Insert(id)
	}
	if err := devices.Start(o.logger, o.activePods, o.sources, containers, running); err != nil {
		return err
	}
	o.devices, o.topology = devices, topology
	return nil
}

func (o *oracle) stop() error {
	devices := o.devices
	o.devices = nil
	return devices.Stop(o.logger)
}

func (o *oracle) activePods() []*v1.Pod {
	pods := make([]*v1.Pod, 0, len(o.active))
	for _, pod := range o.active {
		pods = append(pods, pod)
	}
	return pods
}

// Verdict is what becomes of a pod at admission.
type Verdict struct {
	Admitted bool   `json:"admitted"`
	Reason   string `json:"reason"`
	Message  string `json:"message"`
}

// admit is the kubelet's own admission. A refused pod is Failed from then on, and so no longer among the active ones.
func (o *oracle) admit(ctx context.Context, asked *Pod) Verdict {
	pod := asked.toAPI()
	o.active[asked.UID] = pod
	result := o.topology.Admit(ctx, &lifecycle.PodAdmitAttributes{Pod: pod, Operation: lifecycle.AddOperation})
	if !result.Admit {
		delete(o.active, asked.UID)
	}
	return Verdict{Admitted: result.Admit, Reason: result.Reason, Message: result.Message}
}

// end takes a pod from the active ones and lets the kubelet collect its garbage, which it does by itself only when the
// next pod asks for a device.
func (o *oracle) end(uid string) {
	delete(o.active, uid)
	o.devices.UpdateAllocatedDevices(o.logger)
}

// Capacity is what the kubelet puts into Node.status.
type Capacity struct {
	Capacity    map[string]int64 `json:"capacity"`
	Allocatable map[string]int64 `json:"allocatable"`
	Removed     []string         `json:"removed"`
}

func (o *oracle) capacity() Capacity {
	capacity, allocatable, removed := o.devices.GetCapacity(o.logger)
	return Capacity{Capacity: numbers(capacity), Allocatable: numbers(allocatable), Removed: removed}
}

func numbers(list v1.ResourceList) map[string]int64 {
	found := map[string]int64{}
	for name, quantity := range list {
		found[string(name)] = quantity.Value()
	}
	return found
}

// Held is what one container has of one resource: device ID to NUMA nodes.
type Held struct {
	UID       string             `json:"uid"`
	Container string             `json:"container"`
	Resource  string             `json:"resource"`
	Devices   map[string][]int64 `json:"devices"`
}

func (o *oracle) held() []Held {
	found := []Held{}
	for uid, pod := range o.active {
		for _, container := range containers(pod) {
			for resource, devices := range o.devices.GetDevices(uid, container.Name) {
				ids := map[string][]int64{}
				for id, device := range devices {
					ids[id] = []int64{}
					for _, node := range device.GetTopology().GetNodes() {
						ids[id] = append(ids[id], node.ID)
					}
				}
				found = append(found, Held{UID: uid, Container: container.Name, Resource: resource, Devices: ids})
			}
		}
	}
	return found
}

// health is what the kubelet reports of a pod's devices in its status.
func (o *oracle) health(uid string) (any, error) {
	pod, ok := o.active[uid]
	if !ok {
		return nil, fmt.Errorf("pod %q is not active", uid)
	}
	status := v1.PodStatus{}
	for _, container := range containers(pod) {
		status.ContainerStatuses = append(status.ContainerStatuses, v1.ContainerStatus{Name: container.Name})
	}
	o.devices.UpdateAllocatedResourcesStatus(o.logger, pod, &status)
	found := map[string]string{}
	for _, container := range status.ContainerStatuses {
		for _, resource := range container.AllocatedResourcesStatus {
			for _, device := range resource.Resources {
				found[container.Name+" "+string(resource.Name)+" "+string(device.ResourceID)] = string(device.Health)
			}
		}
	}
	return found, nil
}

// verify reads a checkpoint as the kubelet would at its start, checksum included.
func verify(path string) (any, error) {
	manager, err := checkpointmanager.NewCheckpointManager(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	found := checkpoint.New(nil, nil)
	if err := manager.GetCheckpoint(filepath.Base(path), found); err != nil {
		return nil, err
	}
	entries, registered := found.GetData()
	return map[string]any{"entries": entries, "registered": registered}, nil
}

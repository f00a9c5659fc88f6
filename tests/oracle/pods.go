package main

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager"
	"k8s.io/kubernetes/pkg/kubelet/lifecycle"
)

// Pod is as much of a pod as a device manager reads.
type Pod struct {
	UID        string      `json:"uid"`
	Containers []Container `json:"containers"`
}

// Container is of kind `init`, `sidecar` (an init container that restarts always) or `app`.
type Container struct {
	Name   string           `json:"name"`
	Kind   string           `json:"kind"`
	Limits map[string]int64 `json:"limits"`
}

func (p *Pod) toAPI() *v1.Pod {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: p.UID, Namespace: "default", UID: types.UID(p.UID)}}
	for _, asked := range p.Containers {
		limits := v1.ResourceList{}
		for name, count := range asked.Limits {
			limits[v1.ResourceName(name)] = *resource.NewQuantity(count, resource.DecimalSI)
		}
		container := v1.Container{
			Name:      asked.Name,
			Resources: v1.ResourceRequirements{Limits: limits, Requests: limits},
		}
		switch asked.Kind {
		case "app":
			pod.Spec.Containers = append(pod.Spec.Containers, container)
		case "sidecar":
			always := v1.ContainerRestartPolicyAlways
			container.RestartPolicy = &always
			fallthrough
		default:
			pod.Spec.InitContainers = append(pod.Spec.InitContainers, container)
		}
	}
	return pod
}

func containers(pod *v1.Pod) []v1.Container {
	return append(append([]v1.Container{}, pod.Spec.InitContainers...), pod.Spec.Containers...)
}

// Hint is one way to place a request on NUMA nodes.
type Hint struct {
	Nodes     []int `json:"nodes"`
	Preferred bool  `json:"preferred"`
}

// Hints are a pod's: what the device manager proposes for each container and resource, and for the pod as a whole.
type Hints struct {
	Containers map[string]map[string][]Hint `json:"containers"`
	Pod        map[string][]Hint            `json:"pod"`
}

// hints asks for a pod that need not be there, and changes nothing for it.
func (o *oracle) hints(asked *Pod) Hints {
	pod := asked.toAPI()
	found := Hints{Containers: map[string]map[string][]Hint{}}
	for _, container := range containers(pod) {
		proposed := o.devices.GetTopologyHints(o.logger, pod, &container, lifecycle.AddOperation)
		found.Containers[container.Name] = hintsOf(proposed)
	}
	found.Pod = hintsOf(o.devices.GetPodTopologyHints(o.logger, pod, lifecycle.AddOperation))
	return found
}

func hintsOf(proposed map[string][]topologymanager.TopologyHint) map[string][]Hint {
	found := map[string][]Hint{}
	for name, hints := range proposed {
		if hints == nil {
			found[name] = nil // no preference, which is not the same as no way
			continue
		}
		found[name] = []Hint{}
		for _, hint := range hints {
			bits := hint.NUMANodeAffinity.GetBits()
			found[name] = append(found[name], Hint{Nodes: bits, Preferred: hint.Preferred})
		}
	}
	return found
}

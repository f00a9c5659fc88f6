"""Objects of a small cluster, as its API server has them: a broken device, a held one, a cordon, a pod that waits."""

from typing import Any

from tests.unit.cli.api_server import CRDS, DAEMON_SETS, LEASES, NODES, OURS, PODS

Object = dict[str, Any]
THEN = "2026-11-28T10:00:00Z"
GPU = "example.com/gpu"
NODE_DEVICES, POD_DEVICES = f"{OURS}/nodedevices", f"{OURS}/poddevices"


def condition(kind: str, state: str = "True", reason: str = "", message: str = "") -> Object:
    return {"type": kind, "status": state, "reason": reason or kind, "message": message, "lastTransitionTime": THEN}


def device(device_id: str, health: str = "Healthy", **more: Any) -> Object:
    return {"id": device_id, "health": health, "presence": "Present", "since": THEN, **more}


def node_device(node: str, resource: str = GPU, devices: list[Object] | None = None, **status: Any) -> Object:
    """Of healthy, free devices, unless the status says otherwise."""
    devices = [device("gpu-0"), device("gpu-1")] if devices is None else devices
    healthy = sum(each["health"] == "Healthy" for each in devices)
    counted = {"total": len(devices), "healthy": healthy, "cordoned": 0, "allocated": 0, "available": healthy}
    shown = {
        **counted,
        "devices": devices,
        "endpoint": {"state": "Running", "since": THEN},
        "agent": {"version": "0.1.0", "delivery": "nri", "servedBy": "nodedevice"},
        "conditions": [condition("Ready"), condition("AgentReady", reason="LeaseRenewed")],
    }
    name = f"{node}.{resource.replace('/', '.')}"
    metadata = {"name": name, "resourceVersion": "1", "uid": f"uid-{node}", "creationTimestamp": THEN}
    spec = {"nodeName": node, "resourceName": resource}
    return {"metadata": metadata, "spec": spec, "status": {**shown, **status}}


def allocation(pod: str = "try", ids: tuple[str, ...] = ("gpu-0",), **more: Any) -> Object:
    holder = {"namespace": "default", "name": pod, "podUID": f"uid-{pod}", "container": "main"}
    return {**holder, "deviceIDs": list(ids), "since": THEN, **more}


def pod(name: str = "try", node: str = "node-a", phase: str = "Running", resource: str = GPU, **labels: str) -> Object:
    container = {"name": "main", "image": "x", "resources": {"limits": {resource: "1"}, "requests": {resource: "1"}}}
    metadata = {"name": name, "namespace": "default", "uid": f"uid-{name}", "creationTimestamp": THEN}
    conditions = [condition("PodScheduled", "True" if node else "False", "Unschedulable")]
    return {
        "metadata": {**metadata, "labels": labels},
        "spec": {"containers": [container], **({"nodeName": node} if node else {})},
        "status": {"phase": phase, "conditions": conditions},
    }


def labels_of(component: str) -> dict[str, str]:
    """Of a pod of this project."""
    return {"app.kubernetes.io/name": "nodedevice", "app.kubernetes.io/component": component}


def pod_device(name: str = "try", node: str = "node-a", ids: tuple[str, ...] = ("gpu-0",)) -> Object:
    held = [{"id": each, "health": "Healthy"} for each in ids]
    containers = [{"name": "main", "resources": [{"resourceName": GPU, "devices": held}]}]
    summary = {"resources": f"{GPU}={len(ids)}", "devices": ",".join(ids), "health": "Healthy"}
    metadata = {"name": name, "namespace": "default", "creationTimestamp": THEN, "resourceVersion": "1"}
    spec = {"nodeName": node, "podUID": f"uid-{name}"}
    return {"metadata": metadata, "spec": spec, "status": {**summary, "containers": containers}}


def lease(name: str, namespace: str, renewed: str) -> Object:
    spec = {"holderIdentity": f"{name}_1", "renewTime": renewed, "leaseDurationSeconds": 60}
    return {"metadata": {"name": name, "namespace": namespace}, "spec": spec}


def event(
    reason: str, message: str, kind: str, name: str, uid: str = "", at: str = THEN, namespace: str = "default"
) -> Object:
    about = {"kind": kind, "name": name, "uid": uid or f"uid-{name}"}
    metadata = {"name": f"{name}.{about['uid']}.{at}".lower(), "namespace": namespace}
    words = {"reason": reason, "message": message, "lastTimestamp": at}
    return {"metadata": metadata, "involvedObject": about, **words}


def node(name: str) -> Object:
    status = {"capacity": {GPU: "2"}, "allocatable": {GPU: "2"}, "conditions": [condition("Ready")]}
    return {"metadata": {"name": name, "creationTimestamp": THEN}, "status": status}


def crd(plural: str) -> Object:
    metadata = {"name": f"{plural}.nodedevice.io", "annotations": {"nodedevice.io/release": "0.1.0"}}
    return {"metadata": metadata, "status": {"conditions": [condition("Established")]}}


def small_cluster(now: str) -> dict[str, list[Object]]:
    """now: when Leases were renewed."""
    broken = device("gpu-2", "Unhealthy", reason="Xid79", message="Xid 79: the GPU has fallen off the bus")
    gpus = [device("gpu-0"), device("gpu-1", cordonedSince=THEN, cordonedBy="bob"), broken]
    first = node_device("node-a", devices=gpus, allocated=1, available=0, cordoned=1, allocations=[allocation()])
    first["spec"]["cordonedDevices"] = [{"id": "gpu-1", "by": "bob", "reason": "ecc", "at": THEN}]
    accepted = {"nodes": {"selected": 1, "accepted": 1}}
    return {
        NODE_DEVICES: [first, node_device("node-b")],
        POD_DEVICES: [pod_device()],
        f"{OURS}/nodedeviceconfigs": [{"metadata": {"name": "cameras"}, "spec": {"priority": 0}, "status": accepted}],
        PODS: [pod(), pod("late", node="", phase="Pending")],
        NODES: [node("node-a"), node("node-b")],
        LEASES: [
            lease("nodedevice-operator", "nodedevice-system", now),
            *(lease(name, "nodedevice-agents", now) for name in ("node-a", "node-b")),
        ],
        CRDS: [crd(each) for each in ("nodedevices", "poddevices", "nodedeviceconfigs")],
        DAEMON_SETS: [],
    }

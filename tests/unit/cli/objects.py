"""Objects of a small cluster, as its API server has them: a broken device, a held one, a cordon, a pod that waits."""

from typing import Any

from tests.unit.cli.api_server import CRDS, DAEMON_SETS, LEASES, NODES, OURS, PODS

Object = dict[str, Any]
THEN = "2026-11-28T10:00:00Z"
GPU = "example.com/gpu"


def condition(kind: str, state: str = "True", reason: str = "", message: str = "") -> Object:
    return {"type": kind, "status": state, "reason": reason or kind, "message": message, "lastTransitionTime": THEN}


def device(device_id: str, health: str = "Healthy", **more: Any) -> Object:
    return {"id": device_id, "health": health, "presence": "Present", "since": THEN, **more}


def node_device(node: str, resource: str = GPU, devices: list[Object] | None = None, **status: Any) -> Object:
    """Of healthy, free devices, unless the status says otherwise."""
    devices = [device("gpu-0"), device("gpu-1")] if devices is None else devices
    healthy = sum(each["health"] == "Healthy" for each in devices)
    counted = {"total": len(devices), "healthy": healthy, "cordoned": 0, "allocated": 0, "available": healthy}
    conditions = [condition("Ready"), condition("AgentReady", reason="LeaseRenewed")]
    return {
        "metadata": {
            "name": f"{node}.{resource.replace('/', '.')}",
            "resourceVersion": "1",
            "uid": f"uid-{node}",
            "creationTimestamp": THEN,
        },
        "spec": {"nodeName": node, "resourceName": resource},
        "status": {
            **counted,
            "devices": devices,
            "endpoint": {"state": "Running", "since": THEN},
            "agent": {"version": "0.1.0", "delivery": "nri", "servedBy": "nodedevice"},
            "conditions": conditions,
            **status,
        },
    }


def allocation(pod: str = "try", ids: tuple[str, ...] = ("gpu-0",), **more: Any) -> Object:
    return {
        "namespace": "default",
        "name": pod,
        "podUID": f"uid-{pod}",
        "container": "main",
        "deviceIDs": list(ids),
        "since": THEN,
        **more,
    }


def pod(name: str = "try", node: str = "node-a", phase: str = "Running", resource: str = GPU, **labels: str) -> Object:
    container = {"name": "main", "image": "x", "resources": {"limits": {resource: "1"}, "requests": {resource: "1"}}}
    return {
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": f"uid-{name}",
            "creationTimestamp": THEN,
            "labels": labels,
        },
        "spec": {"containers": [container], **({"nodeName": node} if node else {})},
        "status": {
            "phase": phase,
            "conditions": [condition("PodScheduled", "True" if node else "False", "Unschedulable")],
        },
    }


def labels_of(component: str) -> dict[str, str]:
    """Of a pod of this project."""
    return {"app.kubernetes.io/name": "nodedevice", "app.kubernetes.io/component": component}


def pod_device(name: str = "try", node: str = "node-a", ids: tuple[str, ...] = ("gpu-0",)) -> Object:
    held = [{"id": each, "health": "Healthy"} for each in ids]
    resources = [{"resourceName": GPU, "devices": held}]
    return {
        "metadata": {"name": name, "namespace": "default", "creationTimestamp": THEN, "resourceVersion": "1"},
        "spec": {"nodeName": node, "podUID": f"uid-{name}"},
        "status": {
            "resources": f"{GPU}={len(ids)}",
            "devices": ",".join(ids),
            "health": "Healthy",
            "containers": [{"name": "main", "resources": resources}],
        },
    }


def lease(name: str, namespace: str, renewed: str) -> Object:
    return {
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"holderIdentity": f"{name}_1", "renewTime": renewed, "leaseDurationSeconds": 60},
    }


def node(name: str) -> Object:
    return {
        "metadata": {"name": name, "creationTimestamp": THEN},
        "status": {"capacity": {GPU: "2"}, "allocatable": {GPU: "2"}, "conditions": [condition("Ready")]},
    }


def crd(plural: str) -> Object:
    return {
        "metadata": {"name": f"{plural}.nodedevice.io", "annotations": {"nodedevice.io/release": "0.1.0"}},
        "status": {"conditions": [condition("Established")]},
    }


def small_cluster(now: str) -> dict[str, list[Object]]:
    """now: when Leases were renewed."""
    broken = device("gpu-2", "Unhealthy", reason="Xid79", message="Xid 79: the GPU has fallen off the bus")
    gpus = [device("gpu-0"), device("gpu-1", cordonedSince=THEN, cordonedBy="bob"), broken]
    first = node_device("node-a", devices=gpus, allocated=1, available=0, cordoned=1, allocations=[allocation()])
    first["spec"]["cordonedDevices"] = [{"id": "gpu-1", "by": "bob", "reason": "ecc", "at": THEN}]
    config = {
        "metadata": {"name": "cameras"},
        "spec": {"priority": 0},
        "status": {"nodes": {"selected": 1, "accepted": 1}},
    }
    pods = [pod(), pod("late", node="", phase="Pending")]
    return {
        f"{OURS}/nodedevices": [first, node_device("node-b")],
        f"{OURS}/poddevices": [pod_device()],
        f"{OURS}/nodedeviceconfigs": [config],
        PODS: pods,
        NODES: [node("node-a"), node("node-b")],
        LEASES: [
            lease("nodedevice-operator", "nodedevice-system", now),
            *(lease(name, "nodedevice-agents", now) for name in ("node-a", "node-b")),
        ],
        CRDS: [crd(each) for each in ("nodedevices", "poddevices", "nodedeviceconfigs")],
        DAEMON_SETS: [],
    }

"""An API server of a large cluster, for what reads lists: 20,000 pods and 20,000 NodeDevices, 200 of each as large as can be.

    python -m tests.robustness.memory.large_cluster      prints its port, and serves until it is killed

Objects are made while they are sent, so that pages cost it nothing. Whatever else is asked for is not there.
"""

import itertools
import json
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

NODES: Final = 10_000
PODS: Final = 20_000
RESOURCES: Final = ("example.com/gpu", "example.com/nic")
# one in so many is large: 200 pods, and 200 NodeDevices
_EACH: Final = 100
_DEVICES: Final = 8
# as the API server stores it, 1.5 MB
_LARGE_DEVICES: Final = 3_000
_TIME: Final = "2026-01-02T03:04:05Z"
_OURS: Final = "/apis/nodedevice.io/v1alpha1"
COLUMNS: Final = (
    *("Name", "Node", "Resource", "Total", "Healthy", "Allocated", "Available", "Cordoned", "Ready", "Reason"),
    *("Agent", "Served-By", "Waiting"),
)
Object = dict[str, Any]


def _condition(kind: str) -> Object:
    return {"type": kind, "status": "True", "reason": kind, "message": "as it should be", "lastTransitionTime": _TIME}


def node(number: int) -> Object:
    conditions = [_condition(each) for each in ("MemoryPressure", "DiskPressure", "PIDPressure", "Ready")]
    numbers = {"cpu": "96", "memory": "1056293520Ki", "pods": "110", **dict.fromkeys(RESOURCES, str(_DEVICES))}
    labels = {"kubernetes.io/hostname": f"node-{number:05}", "topology.kubernetes.io/zone": "zone-a"}
    return {
        "metadata": {"name": f"node-{number:05}", "uid": f"uid-{number}", "labels": labels},
        "spec": {},
        "status": {"capacity": numbers, "allocatable": numbers, "conditions": conditions},
    }


def lease(number: int) -> Object:
    spec = {"holderIdentity": f"node-{number:05}_1", "renewTime": _TIME, "leaseDurationSeconds": 60}
    return {"metadata": {"name": f"node-{number:05}", "namespace": "nodedevice-agents", "uid": "u"}, "spec": spec}


def node_device(number: int) -> Object:
    """Large ones have devices with long messages, as an agent's token may write them."""
    name, resource = f"node-{number // 2:05}", RESOURCES[number % 2]
    is_large = number % _EACH == number // _EACH % 2
    count, message = (_LARGE_DEVICES, "x" * 330) if is_large else (_DEVICES, None)
    devices = [_device(f"{number:06}-{at:04}-4fe0-9301-9867b12a3899", message) for at in range(count)]
    held = {"namespace": "team", "container": "main", "since": _TIME}
    allocations = [
        {**held, "name": f"runs-{number}-{at}", "podUID": f"uid-{number}-{at}", "deviceIDs": [devices[at]["id"]]}
        for at in range(2)
    ]
    numbers = {"total": count, "healthy": count, "allocated": 2, "available": count - 2, "cordoned": 0}
    return {
        "metadata": {"name": f"{name}.{resource.replace('/', '.')}", "uid": f"uid-{number}", "resourceVersion": "7"},
        "spec": {"nodeName": name, "resourceName": resource},
        "status": {
            **numbers,
            "endpoint": {"state": "Running", "since": _TIME},
            "agent": {"version": "0.1.0", "runtime": "nri", "servedBy": "nodedevice"},
            "devices": devices,
            "allocations": allocations,
            "conditions": [_condition(each) for each in ("Ready", "AgentReady", "Registered", "Healthy", "Advertised")],
        },
    }


def _device(device_id: str, message: str | None) -> Object:
    found = {"id": device_id, "health": "Healthy", "presence": "Present", "since": _TIME, "numaNodes": [0]}
    return {**found, "message": message} if message else found


def pod(number: int) -> Object:
    """Large ones have what their tenants may fill: annotations, affinity, tolerations and environments."""
    resources = {"requests": {"cpu": "1", RESOURCES[0]: "2"}, "limits": {RESOURCES[0]: "2"}}
    container: Object = {"name": "main", "image": "registry.example/team/application", "resources": resources}
    metadata: Object = {
        "name": f"pod-{number:05}",
        "namespace": "team",
        "uid": f"uid-{number:05}",
        "creationTimestamp": _TIME,
    }
    spec: Object = {"containers": [container], "schedulerName": "default-scheduler"}
    if number % _EACH == 0:
        metadata["annotations"] = {"filler": "x" * 250_000}
        container["env"] = [{"name": f"V{at}", "value": "<" + "x" * 1000} for at in range(600)]
        spec["affinity"] = {"nodeAffinity": {"filler": [{"key": "a", "values": ["v"] * 10}] * 5000}}
        spec["tolerations"] = [
            {"key": f"key-{at:06}", "operator": "Exists", "effect": "NoSchedule"} for at in range(5000)
        ]
    message = "0/10000 nodes are available: 10000 Insufficient example.com/gpu."
    scheduled = {**_condition("PodScheduled"), "status": "False", "reason": "Unschedulable", "message": message}
    return {"metadata": metadata, "spec": spec, "status": {"phase": "Pending", "conditions": [scheduled]}}


LISTS: Final[dict[str, tuple[int, Callable[[int], Object]]]] = {
    "/api/v1/nodes": (NODES, node),
    "/api/v1/pods": (PODS, pod),
    "/api/v1/namespaces/team/pods": (PODS, pod),
    f"{_OURS}/nodedevices": (2 * NODES, node_device),
    "/apis/coordination.k8s.io/v1/namespaces/nodedevice-agents/leases": (NODES, lease),
}


def _row(found: Object) -> Object:
    status, spec = found["status"], found["spec"]
    numbers = [status[each] for each in ("total", "healthy", "allocated", "available", "cordoned")]
    names = [found["metadata"]["name"], spec["nodeName"], spec["resourceName"]]
    return {"cells": [*names, *numbers, "True", "", "True", "nodedevice", 0]}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing."""

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        query = dict(parse_qsl(parts.query))
        if parts.path in LISTS:
            self._list(query, *LISTS[parts.path])
        elif parts.path == "/api/v1/namespaces/team/pods/pod-00001":
            self._send(200, json.dumps(pod(1)).encode())
        else:
            self._send(404, json.dumps({"kind": "Status", "code": 404, "details": {"name": "x"}}).encode())

    do_POST = do_GET

    def _list(self, query: dict[str, str], count: int, make: Callable[[int], Object]) -> None:
        begin, limit = int(query.get("continue", "0")), int(query.get("limit", "500"))
        of_resource = query.get("fieldSelector", "").partition("spec.resourceName=")[2]
        numbers = [each for each in range(begin, count) if not of_resource or RESOURCES[each % 2] == of_resource]
        page = numbers[:limit]
        token = {"continue": str(numbers[limit])} if len(numbers) > limit else {}
        is_table = "as=Table" in self.headers.get("Accept", "")
        head: Object = {"kind": "Table" if is_table else "List", "metadata": {"resourceVersion": "9", **token}}
        if is_table:
            head["columnDefinitions"] = [{"name": each} for each in COLUMNS]
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        begun = f'{_json(head)[:-1]},"{"rows" if is_table else "items"}":['
        texts = (_json(_row(make(each)) if is_table else make(each)) for each in page)
        separated = itertools.chain.from_iterable((",", text) for text in texts)
        for text in itertools.chain((begun,), itertools.islice(separated, 1, None), ("]}", "")):
            octets = text.encode()
            try:
                self.wfile.write(b"%x\r\n%b\r\n" % (len(octets), octets))
            except OSError:
                # the page is longer than the client wants
                self.close_connection = True
                return

    def _send(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def _json(value: Any) -> str:
    """As the API server writes it: compact, and with < escaped."""
    return json.dumps(value, separators=(",", ":")).replace("<", "\\u003c")


def main() -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    print(server.server_address[1], flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()

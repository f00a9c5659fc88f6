"""An API server in memory, with everything that a cleanup removes, and clients of it; every write is noted."""

import asyncio
import json
import re
from contextlib import suppress
from copy import deepcopy
from types import SimpleNamespace
from typing import Any, Final
from urllib.parse import urlsplit

from kubernetes.client import ApiClient
from nodedevice_api import names
from nodedevice_kube.api_errors import ApiError, NotFound
from nodedevice_operator.cli.crds import NAMES
from nodedevice_operator.cli.objects import Objects
from nodedevice_operator.kube.client import Client
from nodedevice_operator.objects.meta import OURS
from nodedevice_operator.objects.node import TAINT, TAINT_EFFECT
from nodedevice_operator.requiredplugins.policy import BINDINGS, NAME, POLICIES

APPS: Final = "/apis/apps/v1/namespaces/here"
PODS: Final = "/api/v1/namespaces/here/pods"
NODES: Final = "/api/v1/nodes"
NAMESPACE: Final = "/api/v1/namespaces/leases"
LEASES: Final = "/apis/coordination.k8s.io/v1/namespaces"
ADMISSION: Final = "/apis/admissionregistration.k8s.io/v1"
OWN: Final = f"/apis/{names.API_VERSION}"
NODE_DEVICES: Final = f"{OWN}/nodedevices"
POD_DEVICES: Final = f"{OWN}/poddevices"
POD_DEVICE: Final = f"{OWN}/namespaces/default/poddevices/pod-a"
CRDS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
GPU, NIC, LABEL = "example.com/gpu", "example.com/nic", "nodedevice.io/example.com.gpu.total"


def named(name: str, **more: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "uid": f"uid-of-{name}", "resourceVersion": "1"}, **more}


def node(version: int, *, ours: tuple[str, ...] = (), is_labeled: bool = False, is_tainted: bool = False) -> Any:
    """node-a in that version: of the resources some are ours, and NIC is the kubelet's too."""

    def owned(manager: str, *resources: str) -> dict[str, Any]:
        fields: dict[str, Any] = {"f:status": {"f:capacity": {f"f:{resource}": {} for resource in resources}}}
        return {"manager": manager, "operation": "Apply", "subresource": "status", "fieldsV1": fields}

    taints = [{"key": "other"}, *([{"key": TAINT, "effect": TAINT_EFFECT}] if is_tainted else [])]
    made = named("node-a", spec={"taints": taints}, status={"capacity": dict.fromkeys({*ours, NIC}, "1")})
    labels = {"kubernetes.io/os": "linux", **({LABEL: "1"} if is_labeled else {})}
    owners = [owned(OURS, *ours), owned("kubelet", NIC)]
    made["metadata"] |= {"resourceVersion": str(version), "labels": labels, "managedFields": owners}
    return made


MARKED: Final = node(1, ours=(GPU, NIC), is_labeled=True, is_tainted=True)
# after each write of the three
WITHOUT_CAPACITY: Final = node(2, is_labeled=True, is_tainted=True)
WITHOUT_LABELS: Final = node(3, is_tainted=True)
CLEAN: Final = node(4)


class Stored:
    """What there is, by path, and of which kinds there are lists.

    writes: in order, with the client that sent each, done or refused. answers: of the next patches of a path: what is stored then,
    or the refusal. refused: deletions, by path. unread: by verb and kind, reads and writes of the Lease that fail. ending: for how
    many seconds what was deleted is still there. holders: of the Lease, one after the other. settled: who waited for pending
    writes, for how long.
    """

    def __init__(self, *absent: str) -> None:
        pod_device = named("pod-a", spec={"nodeName": "node-a", "podUID": "u"})
        pod_device["metadata"]["namespace"] = "default"
        objects = {
            f"{APPS}/deployments/nodedevice-operator": named("nodedevice-operator"),
            f"{APPS}/daemonsets/nodedevice-agent": named("nodedevice-agent"),
            f"{NODES}/node-a": MARKED,
            f"{NODES}/node-b": named("node-b", status={"capacity": {"cpu": "2"}}),
            f"{ADMISSION}/{BINDINGS}/{NAME}": named(NAME),
            f"{ADMISSION}/{POLICIES}/{NAME}": named(NAME),
            POD_DEVICE: pod_device,
            f"{NODE_DEVICES}/node-a.gpu": named("node-a.gpu"),
            f"{NODE_DEVICES}/node-a.nic": named("node-a.nic", spec={"cordonedDevices": [{"id": "x"}]}),
            NAMESPACE: named("leases"),
            f"{LEASES}/leases/leases": named("all of them"),
            **{f"{CRDS}/{name}": named(name) for name in NAMES},
        }
        self.objects: dict[str, Any] = {path: deepcopy(each) for path, each in objects.items() if path not in absent}
        self.kinds = {PODS, NODES, NODE_DEVICES, POD_DEVICES} - {*absent}
        self.answers: dict[str, list[dict[str, Any] | ApiError]] = {
            f"{NODES}/node-a/status": [WITHOUT_CAPACITY],
            f"{NODES}/node-a": [WITHOUT_LABELS, CLEAN],
            f"{NODE_DEVICES}/node-a.nic/status": [named("node-a.nic")],
        }
        self.refused: dict[str, ApiError] = {}
        self.unread: dict[tuple[str, str], ApiError] = {}
        self.ending: dict[str, float] = {}
        self.writes: list[tuple[str, str, str]] = []
        self.bodies: dict[str, Any] = {}
        self.holders: list[str] = []
        self.settled: list[tuple[str, float]] = []
        self._loop = asyncio.get_running_loop()

    def read(self, what: str, path: str) -> Any:
        if ("GET", what) in self.unread:
            raise self.unread["GET", what]
        if path in self.kinds:
            found = self.objects.items()
            items = [each for at, each in found if path in (_folder(at), _folder(_of_all_namespaces(at)))]
            return {"metadata": {"resourceVersion": "9"}, "items": items}
        if path not in self.objects:
            raise NotFound("GET", what, "not found", 404)
        return self.objects[path]

    def write(self, client: str, verb: str, what: str, path: str, body: Any) -> Any:
        if (verb, what) in self.unread:
            raise self.unread[verb, what]
        if verb == "PUT":
            # what opens the fence, again and again
            self.holders.append(body["spec"]["holderIdentity"] or "")
            return {"metadata": {"resourceVersion": "5"}, "spec": {"holderIdentity": self.holders[-1]}}
        self.writes.append((client, verb, path))
        self.bodies[path] = body
        if verb == "PATCH":
            answer = self.answers[path].pop(0)
            if isinstance(answer, ApiError):
                raise answer
            self.objects[path.removesuffix("/status")] = answer
            return answer
        if path in self.refused:
            raise self.refused[path]
        if path not in self.objects:
            raise NotFound(verb, what, "not found", 404)
        if path not in self.ending:
            return self.objects.pop(path)
        self.stays(path, self.ending[path])
        return self.objects[path]

    def stays(self, path: str, seconds: float) -> None:
        """So long from now on, and then it is gone."""
        self._loop.call_soon_threadsafe(lambda: self._loop.call_later(seconds, self.objects.pop, path, None))


def _folder(path: str) -> str:
    return path.rpartition("/")[0]


def _of_all_namespaces(path: str) -> str:
    return re.sub(r"/namespaces/[^/]+(?=/)", "", path)


class MemoryClient(Client):
    """A client of that API server."""

    def __init__(self, name: str, stored: Stored) -> None:
        self._name, self._stored = name, stored

    async def request(self, verb: str, what: str, path: str, *, body: Any = None, **_: Any) -> bytes:
        if verb == "GET":
            return json.dumps(self._stored.read(what, path)).encode()
        return json.dumps(self._stored.write(self._name, verb, what, path, body)).encode()

    async def settle(self, seconds: float) -> bool:
        self._stored.settled.append((self._name, seconds))
        return True


class _ByClient(ApiClient):
    """Sends what the kubernetes package asks for by a client in memory."""

    def __init__(self, client: Any) -> None:
        super().__init__()
        self._client = client

    def call_api(self, method: str, url: str, *_: Any, **__: Any) -> Any:
        path = urlsplit(url).path
        with suppress(StopIteration):
            self._client.request(method, path.split("/")[-2], path).send(None)
        return SimpleNamespace(status=200, response=SimpleNamespace(drain_conn=lambda: None))


def objects_of(client: Any) -> Objects:
    """Single objects of that client's cluster."""
    return Objects(_ByClient(client))

"""Situations on a real control plane in which a pod waits: Nodes, agents that are played, a pod, and what is done to them.

Each situation has a resource name and two Nodes of its own, so that many are there at once and none is another's cause.
"""

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from nodedevice_api import names

from tests.cluster import agent_objects
from tests.cluster.api import Lease, Node, NodeDevice, PatchType, Pod
from tests.cluster.control_plane.control_plane import ControlPlane
from tests.cluster.nodes import create_node
from tests.cluster.waiting import wait_until
from tests.integration.crds.custom_resources import allocation, apply_status, device
from tests.integration.operator_process import delete, full

PROGRAM = Path(sys.executable).with_name("kubectl-nodedevice")
# nobody renews it while a test goes on
_LEASE_SECONDS = 3600
_DEVICES = 4


@dataclass
class Agent:
    """What the agent of one Node publishes of the situation's resource."""

    broken: str = ""
    state: str = "Running"
    registered: str = ""
    injectable: str = ""
    cordoned: int = 0
    allocations: list[dict[str, Any]] = field(default_factory=list)
    waiting: list[dict[str, Any]] = field(default_factory=list)

    def status(self) -> dict[str, Any]:
        health = "Unhealthy" if self.broken else "Healthy"
        reason = {"reason": self.broken} if self.broken else {}
        devices = [device(f"gpu-{number}", health, **reason) for number in range(_DEVICES)]
        more: dict[str, Any] = {"waiting": self.waiting} if self.waiting else {}
        found = full(devices=devices, allocations=self.allocations, state=self.state, **more)
        if self.cordoned:
            found |= {"cordoned": self.cordoned, "available": 0}
        if self.state != "Running":
            found |= {"available": 0}
        for kind, why in (("Registered", self.registered), ("Injectable", self.injectable)):
            if why:
                changed = {"type": kind, "status": "False", "reason": why, "message": "as the test says"}
                found["conditions"] = [each | changed if each["type"] == kind else each for each in found["conditions"]]
        return found


# all that would make pods again, in a namespace from which they are to go
MAKERS = "deployments,statefulsets,replicasets,jobs,cronjobs"
# makes, of the template of a pod, the controllers that are to make it
Controllers = Callable[[dict[str, Any]], Sequence[dict[str, Any]]]


class Situation:
    """spec, requests: of its pod, to be changed before it is made. shown: what its Nodes show at first.

    controllers: in place of the pod. asked: the name that is asked about. node: that the pod is bound to. finalizers: of its pod.
    """

    def __init__(self, cluster: ControlPlane, namespace: str, number: int, *, is_bound: bool) -> None:
        self.cluster, self.client, self.namespace = cluster, cluster.client, namespace
        self.name = f"s{number}"
        self.resource = f"{self.name}.example.com/gpu"
        self.nodes = [f"{self.name}-{letter}" for letter in ("a", "b")]
        self.agents = {node: Agent() for node in self.nodes}
        self.is_bound = is_bound
        self.shown = _DEVICES
        # whether the Nodes have to show too few for the pod before it is made: it would be bound before the operator writes
        self.is_lowered = False
        self.requests = {self.resource: "2"}
        self.spec: dict[str, Any] = {"terminationGracePeriodSeconds": 0}
        self.controllers: Controllers | None = None
        self.asked = self.name
        self.node = self.nodes[0]
        self.finalizers: list[str] = []
        self.update: Callable[[Situation], None] | None = None

    def make_nodes(self, played_by: str = "") -> None:
        """played_by: who reports them Ready, and runs pods there."""
        for node in self.nodes:
            create_node(self.client, node, self.cluster.version, played_by or self.cluster.played_by)

    def make_agents(self) -> None:
        for node in self.nodes:
            uid = self.client.get(Node, node).metadata.uid
            body = agent_objects.node_device(node, self.resource, uid)
            self.client.apply(NodeDevice.from_dict(body), field_manager=names.AGENT_FIELD_MANAGER, force=True)
            self.renew(node)
        self.publish()

    def renew(self, node: str, seconds: int = _LEASE_SECONDS) -> None:
        self.cluster.apply(json.dumps(agent_objects.lease(node, agent_objects.now_text(), seconds)))

    def publish(self) -> None:
        for node, agent in self.agents.items():
            apply_status(self.client, self.node_device(node), agent.status())

    def wait_shown(self) -> None:
        """Until both Nodes show the devices, which matters to whoever chooses a node."""
        for node in [] if self.is_bound else self.nodes:
            wait_until(partial(self._shows, node, self.shown), f"{node} shows {self.shown} of {self.resource}")

    def wait_lowered(self) -> None:
        """Until neither shows enough for the pod, where that was done."""
        for node, agent in self.agents.items() if self.is_lowered and not self.is_bound else ():
            held = sum(len(each["deviceIDs"]) for each in agent.allocations)
            wait_until(partial(self._shows_too_few, node, held), f"{node} shows too few of {self.resource}")

    def _shows(self, node: str, number: int) -> bool:
        return self._number(node) == str(number)

    def _shows_too_few(self, node: str, held: int) -> bool:
        return int(self._number(node) or 0) - held < 2

    def _number(self, node: str) -> str | None:
        status = self.client.get(Node, node).status
        return ((status.allocatable if status else None) or {}).get(self.resource)

    def node_device(self, node: str) -> str:
        return names.node_device_name(node, self.resource)

    def condition(self, node: str, kind: str) -> dict[str, Any]:
        found: Any = self.client.get(NodeDevice, self.node_device(node))
        return next((each for each in (found.status or {}).get("conditions", []) if each["type"] == kind), {})

    def patch_nodes(self, body: dict[str, Any]) -> None:
        for node in self.nodes:
            self.client.patch(Node, node, body, patch_type=PatchType.MERGE)

    def show(self, resource: str, number: int, manager: str = "vendor") -> None:
        """Write that number on both Nodes, as another client."""
        counted = {resource: str(number)}
        for node in self.nodes:
            body = {"status": {"capacity": counted, "allocatable": counted}}
            self.client.patch(Node.Status, node, body, field_manager=manager)

    def apply(self, *objects: dict[str, Any]) -> None:
        self.cluster.apply(json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)}))

    def make_pod(self) -> None:
        """Bound, if it is to be, as by a scheduler; then with the status that its kubelet would write."""
        if self.controllers is not None:
            made = self.controllers(self.template())
            if made:
                self.apply(*made)
            return
        spec = {**self.template()["spec"], **({"nodeName": self.node} if self.is_bound else {})}
        meta = {"name": self.name, "namespace": self.namespace, "finalizers": self.finalizers}
        pod: Any = Pod.from_dict({"metadata": meta, "spec": spec})
        found: Any = self.client.create(pod)
        self.uid = str(found.metadata.uid)
        if self.is_bound and self.node in self.nodes:
            # what plays its kubelet has done with it then
            wait_until(lambda: self._phase() == "Running", f"{self.name} runs")
            starting = {"name": "main", "image": "none", "imageID": "", "ready": False, "restartCount": 0}
            found = {**starting, "state": {"waiting": {"reason": "ContainerCreating"}}}
            self._patch_status({"phase": "Pending", "containerStatuses": [found]})

    def template(self) -> dict[str, Any]:
        """Of its pod, whoever makes it."""
        container = {"name": "main", "image": "none", "resources": {"limits": self.requests}}
        return {"metadata": {"labels": {"app": self.name}}, "spec": {**self.spec, "containers": [container]}}

    def pods(self) -> list[Any]:
        """Those that its controllers have made."""
        return list(self.client.list(Pod, namespace=self.namespace, labels={"app": self.name}))

    def bind(self, pod: str, node: str) -> None:
        """As a scheduler does; it runs when this returns."""
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod}, "target": target}
        path = f"/api/v1/namespaces/{self.namespace}/pods/{pod}/binding"
        self.cluster.kubectl("create", "--raw", path, "-f", "-", stdin=json.dumps(body))
        wait_until(lambda: self._phase(pod) == "Running", f"{pod} runs")

    def deleted(self) -> str:
        """When the deletion of its pod was asked for."""
        found: Any = self.client.get(Pod, self.name, namespace=self.namespace)
        return str(found.metadata.deletionTimestamp or "")

    def release(self) -> None:
        """Let go what a finalizer keeps."""
        for each in self.client.list(Pod, namespace=self.namespace) if self.finalizers else ():
            body = {"metadata": {"finalizers": None}}
            name = str(each.metadata.name)
            self.client.patch(Pod, name, body, namespace=self.namespace, patch_type=PatchType.MERGE)

    def _phase(self, name: str = "") -> str:
        found: Any = self.client.get(Pod, name or self.name, namespace=self.namespace)
        return str(found.status.phase)

    def _patch_status(self, status: dict[str, Any]) -> None:
        merge = PatchType.MERGE
        self.client.patch(Pod.Status, self.name, {"status": status}, namespace=self.namespace, patch_type=merge)

    def make_other(self, name: str, spec: dict[str, Any], limits: dict[str, str] | None = None) -> str:
        """Another pod of the situation; its UID."""
        container = {"name": "main", "image": "none", "resources": {"limits": limits or {}}}
        meta = {"name": f"{self.name}-{name}", "namespace": self.namespace}
        body: Any = Pod.from_dict({"metadata": meta, "spec": {**spec, "containers": [container]}})
        made: Any = self.client.create(body)
        return str(made.metadata.uid)

    def hold(self, node: str, name: str, *device_ids: str) -> None:
        """Another pod on that node has these devices; its agent says so when it publishes next."""
        uid = self.make_other(name, {"nodeName": node}, {self.resource: str(len(device_ids))})
        own = {"namespace": self.namespace, "name": f"{self.name}-{name}"}
        self.agents[node].allocations.append(allocation(uid, "main", *device_ids, **own))

    def held(self, *device_ids: str, **more: Any) -> dict[str, Any]:
        """An allocation of the pod, which is made already."""
        return allocation(self.uid, "main", *device_ids, namespace=self.namespace, name=self.name, **more)

    def waits(self, reason: str, **more: Any) -> dict[str, Any]:
        own = {"namespace": self.namespace, "name": self.name, "podUID": self.uid, "container": "main"}
        return {**own, "reason": reason, "message": "as the test says", "since": agent_objects.SINCE, **more}

    def remove(self) -> None:
        """Its Nodes and Leases; its NodeDevices follow, and its pods go with their namespace."""
        self.release()
        for node in self.nodes:
            self.client.delete(Node, node)
            delete(self.client, Lease, node, names.AGENTS_NAMESPACE)


def workload(at: Situation, kind: str, name: str, uid: str) -> dict[str, Any]:
    """What Kueue has of it while there is no quota for it."""
    owner = {"apiVersion": "v1", "kind": kind.capitalize(), "name": name, "uid": uid}
    meta = {"name": f"{kind}-{name}", "namespace": at.namespace, "ownerReferences": [owner]}
    condition = {"type": "QuotaReserved", "status": "False", "reason": "Pending", "message": "no quota is left"}
    status = {"conditions": [condition]}
    return {"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "Workload", "metadata": meta, "spec": {}, "status": status}


def ask(kubeconfig: Path, *words: str) -> dict[str, Any]:
    """What the real program answers, as JSON. Raises AssertionError where it fails."""
    done = subprocess.run(
        [str(PROGRAM), "why", *words, "--kubeconfig", str(kubeconfig), "--output", "json"],
        check=False,
        capture_output=True,
        text=True,
    )
    if done.returncode == 2 and "does not exist in namespace" in done.stderr:
        return {"causes": [], "notes": []}
    assert done.returncode in (0, 1), done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def codes(answer: dict[str, Any]) -> list[str]:
    """Of its causes, in their order, each once."""
    return list(dict.fromkeys(each["code"] for each in answer["causes"]))


def expected(done: Sequence[str]) -> list[str]:
    """Of the codes of what was done, which may be several, or none, in one text."""
    from kubectl_nodedevice.why.reasons.table import PRECEDENCE

    return sorted({code for each in done for code in each.split()}, key=lambda code: PRECEDENCE[code])

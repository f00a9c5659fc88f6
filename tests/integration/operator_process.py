"""The operator as a process, and the part of everybody around it: agents, kubelets and administrators.

An agent is played by server-side apply as its field manager; a kubelet by updates of a Node's status.
"""

import base64
import json
import signal
import subprocess
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import msgspec
import yaml
from nodedevice_api import names
from nodedevice_api.nodedevice import AllocationStatus, DeviceStatus

from hack.bench.operator import counts
from tests.cluster import agent_objects
from tests.cluster.agent_objects import now_text
from tests.cluster.api import ApiError, Event, Lease, Node, NodeDevice, PodDevice
from tests.cluster.chart import SYSTEM_NAMESPACE
from tests.cluster.control_plane import audit_log
from tests.cluster.control_plane.control_plane import ControlPlane
from tests.cluster.processes.loopback import fetch
from tests.cluster.waiting import wait_until
from tests.integration.crds.custom_resources import apply_status, device
from tests.integration.product_process import PROGRAMS, ProductProcess

GPU = "example.com/gpu"
NIC = "example.com/nic"
# All of it takes a second or two. A machine may be many times slower, and who waits for nothing loses nothing.
_SOON_SECONDS = 60.0
# nobody renews it while a test goes on, however long that takes
_LEASE_SECONDS = 3600


class OperatorProcess(ProductProcess):
    """nodedevice-operator with its own account's token."""

    def __init__(self, control_plane: ControlPlane, folder: Path, *options: str, programs: Path = PROGRAMS) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._kubeconfig = control_plane.service_account_kubeconfig(
            SYSTEM_NAMESPACE, "nodedevice-operator", folder / "kubeconfig"
        )
        flags = {"--kubeconfig": str(self._kubeconfig), "--http-address": "127.0.0.1:0"}
        super().__init__("nodedevice-operator", folder, "operator", flags, options, programs=programs)
        # HOST:PORT where it answers over HTTP
        self.address = ""

    def reach_by(self, url: str) -> None:
        """Have it reach the API server by that address when it is started next."""
        content = yaml.safe_load(self._kubeconfig.read_text())
        content["clusters"][0]["cluster"] = {"server": url}
        self._kubeconfig.write_text(yaml.safe_dump(content))

    def start(self) -> None:
        """Start it and wait until it has seen everything."""
        self.launch()
        wait_until(lambda: self.get("/readyz")[0] == 200, "the operator is ready")

    @contextmanager
    def running(self) -> Iterator[Self]:
        """It has seen everything when the block begins, and ends with it."""
        try:
            self.start()
            yield self
        finally:
            self.close()

    def launch(self) -> None:
        """Start it and wait until it serves HTTP."""
        super().start()
        wait_until(lambda: self.found_address() != "", "the operator serves HTTP")
        self.address = self.found_address()

    def stop(self, number: signal.Signals = signal.SIGTERM, timeout_seconds: float = 60.0) -> int:
        """Send the signal; returns the exit status. Raises TimeoutExpired."""
        self.signal(number)
        return self.wait_ended(timeout_seconds)

    def close(self) -> None:
        """End it if it still runs; in order where it can, so that the next one leads at once."""
        if self.is_running:
            self.signal(signal.SIGCONT)
            try:
                self.stop()
            except subprocess.TimeoutExpired:
                self.kill()

    @property
    def leads(self) -> bool:
        """Whether it may write now, as far as it says."""
        return self.metric("nodedevice_operator_leader") == 1

    @property
    def credential(self) -> str:
        """What distinguishes its requests from those of another process with the same account: the ID of its token."""
        payload = self._kubeconfig.with_name("kubeconfig.token").read_text().split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        return f"JTI={claims['jti']}"

    def get(self, path: str) -> tuple[int, str]:
        """Status and body of a page that it serves."""
        return fetch(f"http://{self.address}{path}")

    def metric(self, line: str) -> float:
        """Value of a metric, given as it stands in the exposition: with its labels; 0 where it does not have it."""
        return counts.metric(self.address, line)

    def rss_mib(self) -> float:
        """Memory that it has in RAM."""
        return counts.rss_mib(self.pid)

    def logged(self, *levels: str) -> list[str]:
        """Events of these levels that it logged since its start."""
        return [line["event"] for line in self.lines() if line["level"] in levels]


class LogFromHere:
    """What that operator logs from now on."""

    def __init__(self, operator: OperatorProcess) -> None:
        self._operator = operator
        self._first = len(operator.lines())

    def lines(self, event: str) -> list[dict[str, Any]]:
        return [line for line in self._operator.lines()[self._first :] if line["event"] == event]

    def wait(self, event: str) -> dict[str, Any]:
        """Wait for such a line; it must stay the only one."""
        wait_until(lambda: bool(self.lines(event)), f"the operator logs {event!r}")
        return self.lines(event)[0]


class PlayedNode:
    """A Node with an agent that publishes one or more resources, and a kubelet that may write its status.

    As a context it is removed at the end.
    """

    def __init__(self, control_plane: ControlPlane, name: str | None = None) -> None:
        self.name = name or f"op-{uuid.uuid4().hex[:8]}"
        self.control_plane = control_plane
        self.client = control_plane.client
        control_plane.add_node(self.name)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()

    @property
    def node(self) -> Any:
        return self.client.get(Node, self.name)

    @property
    def uid(self) -> str:
        return str(self.node.metadata.uid)

    def nd_name(self, resource: str = GPU) -> str:
        return names.node_device_name(self.name, resource)

    def make(self, resource: str = GPU, is_owned: bool = True) -> None:
        """Make the NodeDevice, as the agent does when it first hears of a resource."""
        body = agent_objects.node_device(self.name, resource, self.uid if is_owned else None)
        self.client.apply(NodeDevice.from_dict(body), field_manager=names.AGENT_FIELD_MANAGER, force=True)

    def publish(self, resource: str = GPU, **status: Any) -> None:
        """Apply the agent's status."""
        apply_status(self.client, self.nd_name(resource), full(**status))

    def advertise(self, healthy: int, resource: str = GPU, **status: Any) -> None:
        """Publish so many healthy devices, and wait until the Node shows them."""
        self.publish(resource, healthy=healthy, **status)
        self.wait_shown(healthy, resource)

    def settle(self, **status: Any) -> Self:
        """Publish 4 devices, and wait until they are shown and Ready."""
        self.make()
        self.renew_lease()
        self.advertise(4, **status)
        self.wait_condition("Ready", "True")
        return self

    def verify_follows(self) -> None:
        """The Node follows its devices, is repaired, and is Ready."""
        for broken in (1, 0):
            self.advertise(4 - broken, broken=broken)
        self.wait_condition("Ready", "True")

    def verify_nothing_repaired(self, number: int) -> None:
        """A drift of the GPUs from that number, now, is the first that is reported: Events are posted in their order."""
        self.kubelet_writes(capacity={GPU: "0"}, allocatable={GPU: "0"})
        assert self.wait_events("CapacityRepaired") == [f"{GPU}: kubelet set it to 0, restored to {number}"]

    def renew_lease(self, seconds: int = _LEASE_SECONDS, ahead_seconds: float = 0.0) -> None:
        """Renew the agent's Lease for so long, as admin, by a clock that is so far ahead."""
        body = agent_objects.lease(self.name, now_text(ahead_seconds), seconds)
        self.control_plane.apply(json.dumps(body))

    def kubelet_writes(self, manager: str = "kubelet", **status: Mapping[str, str | None]) -> None:
        """Merge-patch the Node's status under another field manager."""
        self.client.patch(Node.Status, self.name, {"status": status}, field_manager=manager)

    def shown(self, resource: str = GPU) -> tuple[str | None, str | None]:
        """Capacity and allocatable of the resource."""
        status = self.node.status
        return (status.capacity or {}).get(resource), (status.allocatable or {}).get(resource)

    def taints(self) -> set[str]:
        return {taint.key for taint in self.node.spec.taints or []}

    def labels(self) -> dict[str, str]:
        """Those of ours."""
        return {key: value for key, value in self.node.metadata.labels.items() if key.startswith("nodedevice.io/")}

    def wait_shown(self, number: int | None, resource: str = GPU, timeout_seconds: float = _SOON_SECONDS) -> None:
        """Wait until capacity and allocatable are that number; None: gone."""
        wanted = None if number is None else str(number)
        what = f"{resource} on {self.name} is {wanted}"
        wait_until(lambda: self.shown(resource) == (wanted, wanted), what, timeout_seconds)

    def conditions(self, resource: str = GPU) -> dict[str, dict[str, Any]]:
        """Conditions of the NodeDevice, by type."""
        found: Any = self.client.get(NodeDevice, self.nd_name(resource))
        return {c["type"]: c for c in (found.status or {}).get("conditions", [])}

    def wait_condition(self, kind: str, status: str, reason: str | None = None, resource: str = GPU) -> dict[str, Any]:
        """Wait until the condition says that; the condition."""

        def is_so() -> bool:
            found = self.conditions(resource).get(kind, {})
            return found.get("status") == status and reason in (None, found.get("reason"))

        wait_until(is_so, f"{kind} of {self.nd_name(resource)} is {status}, {reason}", _SOON_SECONDS)
        return self.conditions(resource)[kind]

    def owners(self, resource: str = GPU) -> set[str]:
        """Field managers of the resource's capacity."""
        node: Any = self.node
        return {
            entry.manager
            for entry in node.metadata.managedFields
            if f"f:{resource}" in (entry.fieldsV1 or {}).get("f:status", {}).get("f:capacity", {})
        }

    def events(self, reason: str, about: str | None = None, namespace: str = "default") -> list[str]:
        """Messages of the Events with that reason on the Node (or on the object named)."""
        found = self.client.list(Event, namespace=namespace)
        wanted = (reason, about or self.name)
        return [str(event.message) for event in found if (event.reason, event.involvedObject.name) == wanted]

    def wait_events(
        self, reason: str, count: int = 1, about: str | None = None, namespace: str = "default"
    ) -> list[str]:
        """Wait for so many Events with that reason; their messages."""
        what = f"{count} Events {reason} on {about or self.name}"
        wait_until(lambda: len(self.events(reason, about, namespace)) >= count, what, _SOON_SECONDS)
        return self.events(reason, about, namespace)

    def remove(self, *, is_lease_kept: bool = False) -> None:
        """Take the Node away, and its NodeDevices, as the garbage collector would some time later; and its agent's Lease."""
        for resource in (GPU, NIC):
            delete(self.client, NodeDevice, self.nd_name(resource))
        delete(self.client, Node, self.name)
        if not is_lease_kept:
            delete(self.client, Lease, self.name, names.AGENTS_NAMESPACE)


PlayNode = Callable[[], PlayedNode]


def audited(control_plane: ControlPlane, text: str) -> Iterator[dict[str, Any]]:
    """Requests that the API server has finished so far whose line in the audit log holds that text, oldest first.

    The log is that of a whole run of tests: to decode all of it again and again would take longer than what is waited for.
    """
    return audit_log.requests(control_plane.audit_log, text)


def operator_writes(control_plane: ControlPlane, about: str = "", since: str = "") -> list[dict[str, Any]]:
    """Every write request that the operator has sent so far and whose path holds `about`, from the audit log.

    Its own Lease is left out: that is written all the time, whatever else happens. since: a moment as now_text() gives it.
    """
    account = f"system:serviceaccount:{SYSTEM_NAMESPACE}:nodedevice-operator"
    return [
        event
        for event in audited(control_plane, account)
        if event["user"]["username"] == account
        and event["verb"] in {"create", "update", "patch", "delete"}
        and about in event["requestURI"]
        and not event["requestURI"].endswith(f"/leases/{names.OPERATOR_LEASE}")
        and event["requestReceivedTimestamp"] > since
    ]


def delete(client: Any, kind: Any, name: str, namespace: str | None = None) -> None:
    """Delete an object; gone already is fine."""
    try:
        client.delete(kind, name, namespace=namespace) if namespace else client.delete(kind, name)
    except ApiError as error:
        if error.status.code != 404:
            raise


def full(
    healthy: int = 0,
    broken: int = 0,
    devices: list[dict[str, Any]] | None = None,
    allocations: Sequence[Mapping[str, Any]] = (),
    **more: Any,
) -> dict[str, Any]:
    """A whole status of an agent: of those devices, or of `healthy` ones and `broken` ones after them."""
    if devices is None:
        # as long as each other, so that they are sorted
        width = len(str(healthy + broken - 1))
        ids = [f"gpu-{number:0{width}}" for number in range(healthy + broken)]
        devices = [device(i) for i in ids[:healthy]]
        devices += [device(i, "Unhealthy", reason="ReportedUnhealthy") for i in ids[healthy:]]
    found = msgspec.convert(devices, list[DeviceStatus]), msgspec.convert(list(allocations), list[AllocationStatus])
    return agent_objects.status(*found, **more)


def pod_device(client: Any, namespace: str, name: str) -> Any | None:
    """The PodDevice of that pod, or None."""
    try:
        return client.get(PodDevice, name, namespace=namespace)
    except ApiError as error:
        if error.status.code != 404:
            raise
        return None

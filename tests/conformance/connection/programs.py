"""Agent, operator and extender as processes, each behind a proxy of its own: a change in the API, and what each shows of it."""

import asyncio
import json
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Final

import yaml
from nodedevice_api import names

from tests.cluster.api import Pod
from tests.cluster.control_plane.control_plane import ControlPlane
from tests.cluster.waiting import wait_until
from tests.fakes.fault_proxy import FaultProxy
from tests.integration.agent_process import GPU, AgentNode
from tests.integration.crds.custom_resources import pod_device
from tests.integration.extender.extender_process import MEMORY, ExtenderProcess, GpuNode, make_pod
from tests.integration.operator_process import OperatorProcess, PlayedNode, delete
from tests.integration.operator_process import pod_device as find_pod_device
from tests.integration.product_process import ProductProcess

# What the programs watch.
KINDS: Final = frozenset(
    {"nodes", "pods", "resourceslices", names.NODE_DEVICES, names.POD_DEVICES, names.NODE_DEVICE_CONFIGS}
)
# Devices, or parts of one, that are free at most; one more is held all the time.
MOST: Final = 3
_RESOURCES: Final = (GPU, "example.com/r1", "example.com/r2", "example.com/r3")


class Program(ABC):
    """A program behind a proxy, and what it works for. settle() is called first, and waits until it is ready.

    namespace: of its pods; its Node has a name that begins so. folder: its path is short, as sockets lie below it.
    watches: how many it has.
    """

    watches: int
    process: ProductProcess

    def __init__(self, control_plane: ControlPlane, proxy: FaultProxy, namespace: str, folder: Path) -> None:
        self.control_plane, self.proxy, self.namespace = control_plane, proxy, namespace
        self.start(f"{namespace}-{type(self).__name__.lower()}", folder)

    @abstractmethod
    def start(self, node_name: str, folder: Path) -> None: ...

    @abstractmethod
    def settle(self) -> None: ...

    @abstractmethod
    def close(self) -> None: ...

    @abstractmethod
    def change(self, free: int) -> None:
        """Write into the API, past the proxy, that so many are free; up to MOST."""

    @abstractmethod
    def shown(self) -> int | None:
        """How many are free, as the program shows it; None while it shows nothing."""

    @abstractmethod
    def verify_kept(self) -> None:
        """What was held before is still held, and nothing was taken away meanwhile."""

    def wait_shown(self, free: int) -> None:
        def is_shown() -> bool:
            self.process.verify_running()
            return self.shown() == free

        wait_until(is_shown, f"{type(self).__name__} shows {free}; it shows {self.shown()}")

    def wait_watching(self) -> None:
        what = f"{type(self).__name__} has all its watches open"
        wait_until(lambda: sum(map(self.proxy.open_watches, KINDS)) == self.watches, what)

    def wait_requested(self, number: int) -> None:
        wait_until(lambda: len(self.requested()) >= number, f"{type(self).__name__} lists and watches {number} times")

    def requested(self) -> list[float]:
        """When its lists and watches came so far, in monotonic seconds."""
        found = list(self.proxy.requests)
        return [when for when, how, path in found if how in ("GET", "WATCH") and path.rpartition("/")[2] in KINDS]


class Agent(Program):
    """A node with simulated devices; a pod holds one. Another pod takes one and ends, and others are cordoned."""

    watches = 8

    def start(self, node_name: str, folder: Path) -> None:
        self.control_plane.add_node(node_name, wait_ready=False)
        self._node = node = AgentNode(self.control_plane, self.namespace, node_name, folder)
        node.constants |= json.loads(os.environ["TEST_CONSTANTS"])
        simulated = [{"resourceName": name, "count": MOST + 1} for name in _RESOURCES]
        config = folder / "agent.yaml"
        config.write_text(yaml.safe_dump({"plugins": {"simulated": simulated}}))
        kubeconfig = self.proxy.lead(node.kubeconfig())
        self.process = node.start_agent({"--config": str(config), "--kubeconfig": str(kubeconfig)})

    def settle(self) -> None:
        self.wait_shown(MOST + 1)
        asyncio.run(self._node.pod("held"))
        self.wait_shown(MOST)
        # with the moment since when
        [self._held] = self._node.status()["allocations"]

    def change(self, free: int) -> None:
        if free == MOST - 1:
            asyncio.run(self._node.pod("other"))
            return
        if free == MOST:
            delete(self.control_plane.client, Pod, "other", self.namespace)
        status = self._node.status()
        held = {device_id for entry in status["allocations"] for device_id in entry["deviceIDs"]}
        others = [each["id"] for each in status["devices"] if each["id"] not in held]
        cordoned = [{"id": device_id} for device_id in others[free:]]
        asyncio.run(self._node.edit({"spec": {"cordonedDevices": cordoned}}))

    def shown(self) -> int | None:
        return self._node.status().get("available")

    def verify_kept(self) -> None:
        assert self._held in self._node.status()["allocations"], "it was not freed and allocated again meanwhile"

    def close(self) -> None:
        asyncio.run(self._node.close())


class Operator(Program):
    """A Node whose agent is played. What changes is how many of its devices are healthy."""

    watches = 5

    def start(self, node_name: str, folder: Path) -> None:
        self._node = PlayedNode(self.control_plane, node_name)
        self.process = self._operator = OperatorProcess(self.control_plane, folder)
        self.proxy.lead(folder / "kubeconfig")
        self._published = {MOST + 1}
        self._operator.launch()

    def settle(self) -> None:
        self._node.settle()

    def change(self, free: int) -> None:
        self._node.publish(healthy=1 + free, broken=MOST - free)
        self._published.add(1 + free)
        # one that no allocation calls for: the operator deletes it
        body = pod_device("default", "stray", nodeName=self._node.name)
        self.control_plane.client.apply(body, field_manager="admin", force=True)

    def shown(self) -> int | None:
        capacity, allocatable = self._node.shown()
        return int(capacity) - 1 if capacity is not None and capacity == allocatable else None

    def wait_shown(self, free: int) -> None:
        super().wait_shown(free)
        wait_until(lambda: find_pod_device(self.control_plane.client, "default", "stray") is None, "the stray is gone")

    def verify_kept(self) -> None:
        lines = [line for line in self.process.lines("capacity written") if line["node"] == self._node.name]
        assert {line["numbers"].get(GPU) for line in lines} <= self._published, "what was not published is not shown"

    def close(self) -> None:
        self._operator.close()
        self._node.remove()
        self._operator.verify_no_traceback()


class Extender(Program):
    """A Node with one GPU whose agent is played; a pod holds parts of it. What changes is how many parts it has."""

    watches = 2

    def start(self, node_name: str, folder: Path) -> None:
        self._node = GpuNode(self.control_plane, node_name)
        self.process = self._extender = ExtenderProcess(self.control_plane, folder)
        # with a token: the proxy passes no client certificate on
        self._extender.reach_by(self.proxy.url, self.namespace)
        self.control_plane.service_account_kubeconfig(self.namespace, "extender", folder / "kubeconfig")
        self.proxy.lead(folder / "kubeconfig")
        self._extender.launch()

    def settle(self) -> None:
        self._node.settle_parts(MOST + 1)
        self._extender.wait_active()
        held, asking = (make_pod(self.control_plane, self.namespace, f"parts-{name}", 1) for name in ("held", "asking"))
        self._pod = asking.to_dict()
        wait_until(lambda: self._extender.bind(held, self._node.name) == (200, {"Error": ""}), "the pod is bound")

    def change(self, free: int) -> None:
        self._node.settle_parts(1 + free)

    def shown(self) -> int | None:
        """The most parts with which the pod fits. It is one pod: what one is offered is not offered to another for seconds."""
        for size in range(MOST + 1, 0, -1):
            self._pod["spec"]["containers"][0]["resources"]["limits"][MEMORY] = str(size)
            status, answer = self._extender.call("filter", {"Pod": self._pod, "NodeNames": [self._node.name]})
            if status != HTTPStatus.OK or answer.get("Error"):
                return None
            if answer["NodeNames"]:
                return size
        return 0

    def verify_kept(self) -> None:
        shown = self.shown()
        assert shown is None or shown <= MOST, "the part that a pod holds is not offered"

    def close(self) -> None:
        self._extender.close()
        self._node.remove()
        self._extender.verify_no_traceback()


@contextmanager
def running(control_plane: ControlPlane, folder: Path) -> Iterator[tuple[Program, ...]]:
    """All three, each of them ready."""
    namespace = folder.name
    control_plane.add_namespace(namespace)
    with ExitStack() as undo:
        made: list[Agent | Operator | Extender] = []
        for kind in (Agent, Operator, Extender):
            certificate = control_plane.authority.server(f"proxy-{kind.__name__}")
            proxy = undo.enter_context(FaultProxy(control_plane.admin_kubeconfig, certificate))
            home = folder / kind.__name__[0]
            home.mkdir()
            made.append(kind(control_plane, proxy, namespace, home))
            undo.callback(made[-1].close)
        for program in made:
            program.settle()
        for program in made:
            program.wait_watching()
        yield tuple(made)

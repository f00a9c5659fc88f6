"""One node with a real agent process and a third-party device plugin, as the API and the checkpoint show them."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any

import yaml
from nodedevice_agent.checkpoint import files as checkpoint_file
from nodedevice_agent.devicemanager.records.allocations import Allocation
from nodedevice_api.names import node_device_name
from nodedevice_api.upstream.kubelet.deviceplugin.v1beta1 import api_pb2

from tests.cluster.api import ApiError, NodeDevice
from tests.cluster.cluster import a_pod
from tests.cluster.control_plane.control_plane import ControlPlane
from tests.cluster.local.stack import Program, agent_program
from tests.cluster.processes.processes import Process, reserved_ports
from tests.cluster.waiting import wait_until

Answer = api_pb2.ContainerAllocateResponse


@dataclass(frozen=True)
class ThirdParty:
    """A third-party plugin.

    command: runs it against a plugin directory. answer: what it answers to Allocate, by device ID. registered: what its log
    says whenever the device manager took a registration of it. options: as the NodeDevice's endpoint shows them.
    """

    name: str
    resource_name: str
    devices: tuple[str, ...]
    command: Callable[[Path], list[str]]
    answer: Callable[[str], Answer]
    registered: str
    options: Mapping[str, bool] = field(default_factory=dict)


@dataclass(frozen=True)
class PluginNode:
    """The node, with its two processes to be killed and started at will, and a namespace of the same name."""

    control_plane: ControlPlane
    name: str
    of: ThirdParty
    agent: Program
    plugin: Process

    def wait_until(self, is_so: Callable[[dict[str, Any]], bool], what: str) -> dict[str, Any]:
        """Wait until the NodeDevice's status is so, and return it. Raises ComponentError when a process ends by itself."""
        seen: list[dict[str, Any]] = []

        def poll() -> bool:
            self.agent.process.verify_alive()
            self.plugin.verify_alive()
            seen.append(self._status())
            return is_so(seen[-1])

        try:
            wait_until(poll, what)
        except TimeoutError as exc:
            exc.add_note(f"the status at last: {seen[-1]}")
            raise
        return seen[-1]

    def wait_running(self) -> dict[str, Any]:
        """Wait until the plugin is connected and all of its devices are healthy."""
        count = len(self.of.devices)
        return self.wait_until(lambda now: endpoint(now) == "Running" and now["healthy"] == count, "plugin runs")

    def wait_registered(self, times: int) -> None:
        """Wait until the plugin has logged so many successful registrations since its first start."""
        log = self.plugin.log
        self.wait_until(lambda _: log.read_text().count(self.of.registered) >= times, f"registered {times} times")

    def run_pod(self, name: str) -> str:
        """A pod that asks for one device, bound to this node. Returns the device ID it got."""
        pod = a_pod(name, self.name, {self.of.resource_name: 1}, self.name)
        self.control_plane.apply(yaml.safe_dump(pod))
        return held(self.wait_until(lambda now: name in held(now), f"pod {name} holds a device"))[name]

    def remove_pod(self, name: str) -> None:
        """Delete a pod and wait until it holds nothing."""
        self.control_plane.kubectl("delete", "pod", name, "-n", self.name, "--grace-period=0", "--wait=false")
        self.wait_until(lambda now: name not in held(now), f"pod {name} holds nothing")

    def checkpoint(self) -> tuple[Allocation, ...]:
        """The allocations that stand on disk."""
        found = checkpoint_file.read(self.agent.folder)
        assert found is not None
        return found.allocations

    def _status(self) -> dict[str, Any]:
        """Empty as long as there is no NodeDevice."""
        try:
            found = self.control_plane.client.get(NodeDevice, node_device_name(self.name, self.of.resource_name))
        except ApiError as exc:
            if exc.status.code != HTTPStatus.NOT_FOUND:
                raise
            return {}
        status: Any = found.status
        return dict(status or {})


def endpoint(status: dict[str, Any]) -> str:
    """Running, Stopped or Gone; empty where the status has none."""
    return str(status.get("endpoint", {}).get("state", ""))


def held(status: dict[str, Any]) -> dict[str, str]:
    """Device ID by the name of the pod that holds it."""
    return {entry["name"]: str(entry["deviceIDs"][0]) for entry in status.get("allocations", ())}


@contextmanager
def plugin_node(control_plane: ControlPlane, name: str, of: ThirdParty, folder: Path) -> Iterator[PluginNode]:
    """Make the node, and a namespace of that name for its pods; start its agent, then the plugin.

    folder: made for it, its path short (it holds sockets).
    """
    with ExitStack() as undo:
        control_plane.add_node(name, wait_ready=False)
        undo.callback(control_plane.remove_node, name)
        # removed before the node: who else would end its pods?
        control_plane.add_namespace(name)
        undo.callback(control_plane.remove_namespace, name, grace_seconds=0)
        (port,) = undo.enter_context(reserved_ports(1))
        agent = agent_program(control_plane, folder, name, port)
        undo.callback(agent.process.kill)
        agent.start()
        plugin = Process(of.name, of.command(agent.plugin_dir), folder / "plugin.log")
        undo.callback(plugin.kill)
        plugin.start()
        yield PluginNode(control_plane, name, of, agent, plugin)

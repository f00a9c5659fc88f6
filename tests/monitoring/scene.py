"""Three nodes with real agents, a real operator, a real extender, and everything going wrong that an alert or a panel shows.

busy      devices held, broken, waited for, offered twice, none free of a resource; a plugin that fails; a resource of somebody
          else's; a damaged checkpoint; a configuration that its agent refuses, as all do
runtime   devices given through the container runtime; a container that runs without; one that was refused
refused   the API server takes no change of its Node's capacity and no renewal of its Lease; its checkpoint cannot be written
"""

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from nodedevice_agent.checkpoint import files as checkpoint_file
from nodedevice_agent.nri.ttrpc import CallFailed
from nodedevice_api import names

from tests.cluster.api import Lease, Node
from tests.cluster.control_plane.control_plane import ControlPlane
from tests.cluster.waiting import wait_until
from tests.fakes.nri_runtime import FakeRuntime, PluginConnection
from tests.fakes.plugin import FakeDevice, FakePlugin, RpcFailure
from tests.integration.agent_process import GPU, AgentNode, condition
from tests.integration.crds.custom_resources import is_refused
from tests.integration.nri import by_nri, container, nri_socket, sandbox
from tests.integration.operator_process import OperatorProcess
from tests.integration.policies import allow, refuse, rule
from tests.monitoring.extender import PlayedScheduler, scheduled
from tests.monitoring.prometheus import Target

FAILING, TAKEN, FULL = "example.com/failing", "example.com/taken", "example.com/full"
# plugins of two domains that list one device, by its UUID
TWICE = "example.com/twice", "example.org/twice"
_UUID = "GPU-8dcd427f-483b-b48f-d7e5-75fb19a52b76"
# more than the alert wants, each by another writer: one alone would soon be a conflict
_DRIFTS = 5
_PATIENCE_SECONDS = 60.0
_HELD = {names.REQUIRED_PLUGINS_ANNOTATION: f"[ {names.NRI_PLUGIN} ]"}
# no agent lets a configuration name that file
_REFUSED = """
apiVersion: nodedevice.io/v1alpha1
kind: NodeDeviceConfig
metadata: {name: NAME}
spec: {plugins: {generic: [{resourceName: example.com/shadow, groups: [{paths: [{path: /etc/shadow}]}]}]}}
"""
_SHARED_SLICE = """
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: NAME}
spec:
  driver: net.example.com
  pool: {name: rack, generation: 1, resourceSliceCount: 1}
  allNodes: true
  devices: [{name: nic-0}]
"""


@dataclass
class Scene:
    """What runs. devices: the plugin of the busy node, d3 of which is broken. refused_pod: on the node with a runtime, by uid."""

    control_plane: ControlPlane
    operator: OperatorProcess
    busy: AgentNode
    runtime: AgentNode
    refused: AgentNode
    devices: FakePlugin
    elsewhere: FakePlugin
    containers: FakeRuntime
    connection: PluginConnection
    refused_pod: str
    scheduler: PlayedScheduler

    async def targets(self) -> list[Target]:
        """As the chart's monitors would name them."""
        found = [Target("operator", self.operator.address, {"cluster": "test"})]
        found.append(Target("extender", self.scheduler.process.address, {"cluster": "test"}))
        for node in (self.busy, self.runtime, self.refused):
            address = await node.agent.address()
            # the agent's own pod, as the monitors add it
            labels = {"node": node.name, "cluster": "test", "namespace": "nodedevice-system", "pod": "nodedevice-agent"}
            found.append(Target("agent", address, labels))
        return found

    async def refuse_writes(self) -> None:
        """From now on nothing of that node is written, its checkpoint included; and there is something to write."""
        name, client = self.refused.name, self.control_plane.client
        _make_unwritable(self.refused.state_dir / checkpoint_file.FILE_NAME)
        rules = rule("nodes/status", "UPDATE", name), rule("leases", "UPDATE", name, "coordination.k8s.io")
        unless = "request.resource.resource == 'nodes' && object.status.capacity == oldObject.status.capacity"
        await asyncio.to_thread(refuse, self.control_plane, name, rules, unless, "nothing of this node is written")
        probe = {"status": {"capacity": {"example.com/probe": "1"}}}

        def is_so() -> bool:
            return is_refused(lambda: client.patch(Node.Status, name, probe, dry_run=True))

        await asyncio.to_thread(wait_until, is_so, f"nothing of {name} is written")
        await self.elsewhere.set_health("d0", False)

    async def silence(self) -> None:
        """The agents of two nodes end, and with them their Leases."""
        for node in (self.runtime, self.refused):
            node.agent.kill()
            await asyncio.to_thread(
                self.control_plane.client.delete, Lease, node.name, namespace=names.AGENTS_NAMESPACE
            )

    async def repair(self) -> None:
        """What was broken works, and nobody is refused any more: nor is the agent taken for silent since before."""
        before = await asyncio.to_thread(_renewed_at, self.refused)
        await self.allow_writes()
        what = f"the Lease of {self.refused.name} is renewed"
        await asyncio.to_thread(wait_until, lambda: _renewed_at(self.refused) != before, what)
        await self.devices.set_health("d3", True)
        await self.elsewhere.set_health("d0", True)

    async def allow_writes(self) -> None:
        await asyncio.to_thread(allow, self.control_plane, self.refused.name)


@asynccontextmanager
async def staged(control_plane: ControlPlane, namespace: str, folder: Path) -> AsyncIterator[Scene]:
    """The scene, set; all of it is gone afterwards. folder: its path short, as sockets lie below it."""
    async with AsyncExitStack() as undo:
        for kind, text in (("nodedeviceconfig", _REFUSED), ("resourceslice", _SHARED_SLICE)):
            name = f"mon-{uuid.uuid4().hex[:8]}"
            await asyncio.to_thread(control_plane.apply, text.replace("NAME", name))
            undo.callback(control_plane.kubectl, "delete", kind, name, "--ignore-not-found")
        operator = OperatorProcess(control_plane, folder / "o", "--agent-poll-seconds", "1")
        undo.callback(operator.close)
        await asyncio.to_thread(operator.start)
        nodes = [await _node(control_plane, namespace, folder / name) for name in "bru"]
        for node in nodes:
            undo.push_async_callback(node.close)
        busy, runtime, refused = nodes
        containers = await undo.enter_async_context(FakeRuntime(nri_socket(runtime)))
        devices = await _set_busy(busy)
        connection, refused_pod = await _set_runtime(runtime, containers)
        refused.start_agent()
        elsewhere = await refused.plugin(2)
        await refused.until(lambda seen: condition(seen, "Ready").get("status") == "True")
        scheduler = undo.enter_context(scheduled(control_plane, namespace, folder / "x"))
        nodes_of = (operator, busy, runtime, refused)
        scene = Scene(control_plane, *nodes_of, devices, elsewhere, containers, connection, refused_pod, scheduler)
        undo.push_async_callback(scene.allow_writes)
        yield scene


async def act(scene: Scene) -> None:
    """What rates and quantiles are made of: changes while somebody counts."""
    busy = scene.busy
    for number in range(_DRIFTS):
        await _write_capacity(busy, GPU, "77", f"stranger-{number}")
        await asyncio.to_thread(_wait_capacity, busy, 3)
    await busy.pod("second")
    await busy.until_numbers(total=4, allocated=2, available=1)
    for healthy, capacity in ((False, 2), (True, 3)):
        # free, and so it leaves at once
        await scene.devices.set_health("d2", healthy)
        await asyncio.to_thread(_wait_capacity, busy, capacity)
    await _create_refused(scene.connection, scene.refused_pod)
    await asyncio.to_thread(scene.scheduler.ask)


async def _node(control_plane: ControlPlane, namespace: str, folder: Path) -> AgentNode:
    folder.mkdir()
    name = f"mon-{uuid.uuid4().hex[:8]}"
    await asyncio.to_thread(control_plane.add_node, name, wait_ready=False)
    return AgentNode(control_plane, namespace, name, folder)


async def _set_busy(node: AgentNode) -> FakePlugin:
    """Returns the plugin of the devices that work."""
    node.state_dir.mkdir()
    (node.state_dir / checkpoint_file.FILE_NAME).write_text("{ no checkpoint")
    await _write_capacity(node, TAKEN, "1", "somebody-else")
    node.start_agent()
    four = {f"d{number}": FakeDevice(healthy=number < 3) for number in range(4)}
    devices = await node.plugin(four, pre_start_required=True)
    failing = await node.plugin(1, FAILING)
    failing.knobs.allocate_error = RpcFailure()
    await node.plugin(1, TAKEN)
    for resource in TWICE:
        await node.plugin({_UUID: FakeDevice()}, resource)
    await node.plugin(1, FULL)
    await node.pod("fills", resource=FULL)
    await node.pod("holder")
    await node.until_numbers(total=4, allocated=1, available=2)
    await node.pod("waits", limits=(9,))
    await node.pod("fails", resource=FAILING)
    cordon = {"id": "d3", "reason": "fan", "by": "alice", "at": "2026-01-01T12:00:00Z"}
    await node.edit({"spec": {"cordonedDevices": [cordon]}})
    await node.until(lambda seen: condition(seen, "Conflict").get("status") == "True", TAKEN)
    await node.until(lambda seen: condition(seen, "Ready").get("status") == "True")
    return devices


async def _set_runtime(node: AgentNode, containers: FakeRuntime) -> tuple[PluginConnection, str]:
    """A container that runs without its device, and one that has its own. Returns also a pod for which there is none left."""
    node.start_agent({**by_nri(node), "--runtime-grace-seconds": "1"})
    connection = await containers.plugin()
    early = await node.pod("early")
    await node.agent.until_logged("pod requests a resource that no device plugin has registered yet")
    # its name is not managed here yet, so that nothing is asked of the agent
    await connection.create_container(sandbox(early, "early"), container(early))
    await connection.container_event("PostStartContainer", sandbox(early, "early"), container(early))
    await node.plugin(2)
    await node.until(lambda seen: any(each.get("notInjected") for each in seen.get("allocations", ())))
    one = await node.pod("one")
    await node.until_numbers(total=2, allocated=2, available=0)
    await connection.create_container(sandbox(one, "one"), container(one))
    return connection, await node.pod("two")


async def _create_refused(connection: PluginConnection, uid: str) -> None:
    try:
        await connection.create_container(sandbox(uid, "held", annotations=_HELD), container(uid))
    except CallFailed:
        return
    raise AssertionError("a container was created without its device")


async def _write_capacity(node: AgentNode, resource_name: str, number: str, manager: str) -> None:
    status = {"status": {"capacity": {resource_name: number}}}
    await asyncio.to_thread(node.client.patch, Node.Status, node.name, status, field_manager=manager)


def _make_unwritable(file: Path) -> None:
    """A directory with something in it is replaced by no file."""
    file.unlink()
    (file / "taken").mkdir(parents=True)


def _renewed_at(node: AgentNode) -> datetime | None:
    spec = node.client.get(Lease, node.name, namespace=names.AGENTS_NAMESPACE).spec
    return spec.renewTime if spec else None


def _wait_capacity(node: AgentNode, number: int) -> None:
    wait_until(lambda: node.capacity() == str(number), f"capacity of {node.name} is {number}", _PATIENCE_SECONDS)

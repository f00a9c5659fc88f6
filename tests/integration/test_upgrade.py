"""Upgrades in both orders, and the agent's rollback, with the programs of the release before, while pods come and go.

CRDs and policies are this release's from the start: an upgrade applies them first.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from itertools import count, pairwise
from pathlib import Path
from typing import Final

import pytest
from nodedevice_api.names import REQUIRED_PLUGINS_ANNOTATION as ANNOTATION
from nodedevice_api.names import node_device_name
from nodedevice_operator.requiredplugins.policy import NAME

from hack.bench.against import checked_out
from tests.cluster.agent_objects import now_text
from tests.cluster.observe import Observer
from tests.cluster.waiting import wait_until
from tests.fakes.nri_runtime import FakeRuntime
from tests.integration.agent_process import GPU, AgentNode, holdings
from tests.integration.nri import by_nri, container, sandbox
from tests.integration.operator_process import OperatorProcess, operator_writes
from tests.integration.product_process import PROGRAMS

# the last commit whose agents and operators know no status.agent.delivery, only status.agent.runtime
PREVIOUS: Final = "d841d056"
PASSING: Final = 4
# a restarted agent reconnects to its plugins before it withdraws their devices, however slow the machine is
PATIENCE: Final = {
    "nodedevice_agent.deviceplugin.reconnection.RECONNECT_SECONDS": 300.0,  # former name of reconnect_after_restart
    "nodedevice_agent.devicemanager.resources.resource_table.SETTLE_SECONDS": 300.0,
}


@pytest.fixture(scope="module")
def previous() -> Iterator[Path]:
    """The folder of the previous programs."""
    with checked_out(PREVIOUS) as tree:
        assert tree is not None
        yield tree.python.parent


class Upgrade:
    """A node's agent and the operator, each of one release at a time. Each replacement adds a resource and a pod."""

    def __init__(self, node: AgentNode, runtime: FakeRuntime) -> None:
        self.node, self._runtime, self.replacements = node, runtime, 0
        self._operator: OperatorProcess | None = None
        node.constants |= PATIENCE

    async def replace(self, program: str, programs: Path) -> None:
        self.replacements += 1
        with pytest.MonkeyPatch.context() as patch:
            if programs != PROGRAMS:
                patch.delenv("PYTHONPATH", raising=False)  # it may name this tree's modules
            await (self._replace_agent if program == "agent" else self._replace_operator)(programs)
        if self._operator is not None:
            await self._verify_works(self._operator)

    async def _replace_agent(self, programs: Path) -> None:
        node, is_first, is_new = self.node, self.replacements == 1, programs == PROGRAMS
        if not is_first:
            assert await node.agent.stop() == 0
        node.programs = programs
        former_flag = {} if is_new else {"--delivery": "", "--runtime": "nri"}
        node.start_agent({**by_nri(node), "--runtime-grace-seconds": "300", **former_flag})
        self._connection = await self._runtime.plugin()
        if is_first:
            await node.plugin(16)
        await node.until(lambda seen: ("delivery" in seen["agent"]) is is_new)

    async def _replace_operator(self, programs: Path) -> None:
        await self.close()
        folder = self.node.folder / f"operator-{self.replacements}"
        self._operator = OperatorProcess(self.node.control_plane, folder, programs=programs)
        await asyncio.to_thread(self._operator.start)

    async def _verify_works(self, operator: OperatorProcess) -> None:
        """The operator guards and advertises a new resource, and the agent allocates a device to a pod that stays."""
        node, pod, resource = self.node, f"stays-{self.replacements}", f"example.com/later-{self.replacements}"
        await node.plugin(1, resource)
        await asyncio.to_thread(wait_until, lambda: node.capacity(resource) == "1", f"{resource} is advertised")
        assert operator.metric("nodedevice_operator_required_plugins_names") == self.replacements
        uid = await node.pod(pod)
        await node.until(lambda seen: f"{pod}/c0" in holdings(seen))
        running = container(uid)
        adjustment = await self._connection.create_container(sandbox(uid, pod, node.namespace), running)
        running.annotations.update(adjustment.annotations)  # as the runtime lists it to the next agent
        self._runtime.pods.append(sandbox(uid, pod, node.namespace))
        self._runtime.containers.append(running)

    async def close(self) -> None:
        if self._operator is not None:
            await asyncio.to_thread(self._operator.close)
            self._operator.verify_no_traceback()


@pytest.fixture
async def upgrade(agent_node: AgentNode, runtime: FakeRuntime) -> AsyncIterator[Upgrade]:
    made = Upgrade(agent_node, runtime)
    yield made
    await made.close()


async def come_and_go(node: AgentNode) -> None:
    for number in count():
        await node.pod(f"passes-{number}")
        if number >= PASSING:
            await node.delete_pod(f"passes-{number - PASSING}")
        await asyncio.sleep(0.1)


@pytest.mark.parametrize("order", [("operator", "agent"), ("agent", "operator")], ids="-".join)
async def test_capacity_and_pods_stay(upgrade: Upgrade, previous: Path, order: tuple[str, str]) -> None:
    node, control_plane = upgrade.node, upgrade.node.control_plane
    await upgrade.replace("agent", previous)
    await upgrade.replace("operator", previous)
    began, kubeconfig = now_text(), control_plane.admin_kubeconfig
    with (
        Observer.nodes(kubeconfig) as nodes,
        Observer.node_devices(kubeconfig) as node_devices,
        Observer.pods(kubeconfig) as pods,
    ):
        async with asyncio.TaskGroup() as group:
            passing = group.create_task(come_and_go(node))
            for program, programs in (*((each, PROGRAMS) for each in order), ("agent", previous), ("agent", PROGRAMS)):
                await upgrade.replace(program, programs)
            passing.cancel()
        last = f"stays-{upgrade.replacements}/c0"
        await asyncio.to_thread(node_devices.wait, lambda seen: last in holdings(seen.object.status or {}), since=0.0)
        name = node_device_name(node.name, GPU)
        statuses = [seen.object.status for seen in node_devices.seen() if seen.object.metadata.name == name]
        shown = [seen.object.status.capacity for seen in nodes.seen() if seen.object.metadata.name == node.name]
        made = [seen.object.metadata for seen in pods.seen() if seen.object.metadata.namespace == node.namespace]
    for status in statuses:
        held = [device for devices in holdings(status).values() for device in devices]
        assert len(set(held)) == len(held), "a device of two pods"
        assert status.agent.runtime == "nri", "the previous release reads this field alone"
        assert not any(allocation.notInjected for allocation in status.allocations)
    numbers = [{name: number for name, number in each.items() if "/" in name} for each in shown]
    assert numbers[0].keys() == {GPU, "example.com/later-2"}
    stay = [{name: devices for name, devices in holdings(each).items() if "stays" in name} for each in statuses]
    for before, after in (*pairwise(numbers), *pairwise(stay)):
        assert before.items() <= after.items()
    assert [each.name for each in made if ANNOTATION not in (each.annotations or {})] == []
    assert len({each.name for each in made}) > 2 * PASSING * upgrade.replacements, "pods came and went"
    assert [each for each in operator_writes(control_plane, NAME, since=began) if each["verb"] == "delete"] == []

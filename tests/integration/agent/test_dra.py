"""What DRA drivers offer on a node, published by an agent: slices as drivers write them, on a real API server."""

import asyncio
import json
from typing import Any

import pytest
from nodedevice_agent.dra.names import DEVICES
from nodedevice_api import names
from nodedevice_api.names import Condition, Reason

from tests.cluster.api import NodeDevice, ResourceSlice
from tests.fakes.dra import Slices, devices, resource_slice
from tests.fakes.pod_resources import ClaimedDevice, PodResources
from tests.integration.agent_process import AgentNode, condition, until

Json = dict[str, Any]
DRIVER = "gpu.vendor.example"
NAME = f"{DRIVER}/{DEVICES}"
TAINT = {"key": "vendor.example/hot", "effect": "NoSchedule"}
# what a driver that ends has left after that: its slices are deleted one by one
GONE = {"nodedevice_agent.dra.served.GONE_SECONDS": 1.0, "nodedevice_agent.dra.served.INCOMPLETE_SECONDS": 1.0}


class Driver:
    """On one node. Slices are written as its own."""

    def __init__(self, node: AgentNode, slices: Slices) -> None:
        self.node, self._slices = node, slices

    async def publish(
        self, *of_slice: Json, generation: int = 1, count: int = 1, number: int = 0, driver: str = DRIVER
    ) -> None:
        whole = resource_slice(
            self._name(number), driver, self.node.name, of_slice, generation=generation, slices=count
        )
        await asyncio.to_thread(self._slices.publish, whole)

    async def withdraw(self, number: int = 0) -> None:
        await asyncio.to_thread(self._slices.withdraw, self._name(number))

    def _name(self, number: int) -> str:
        return f"{self.node.name}-{number}"

    async def has_taints(self) -> bool:
        """Whether the API server has kept those of the first slice."""
        found: Any = await asyncio.to_thread(self.node.client.get, ResourceSlice, self._name(0))
        return any("taints" in device for device in found.to_dict()["spec"]["devices"])

    async def numbers(self, total: int, allocated: int, available: int) -> dict[str, Any]:
        return await self.node.until_numbers(total, allocated, available, NAME)

    async def reason(self, reason: str) -> dict[str, Any]:
        """The status, once Registered has that reason."""
        return await self.node.until(lambda seen: condition(seen, Condition.REGISTERED)["reason"] == reason, NAME)


@pytest.fixture
def driver(agent_node: AgentNode, slices: Slices) -> Driver:
    agent_node.constants |= GONE
    return Driver(agent_node, slices)


async def test_devices_and_holders_of_a_driver_are_published(driver: Driver, pod_resources: PodResources) -> None:
    node = driver.node
    first, second, third = devices(3, "gpu")
    model = {"attributes": {"model": {"string": "A100"}}, "capacity": {"memory": {"value": "80Gi"}}}
    await driver.publish({**first, **model}, {**second, "taints": [TAINT]}, third)
    await driver.node.claiming_pod("one", "claim-of-one")
    pod_resources.claimed.append(ClaimedDevice(node.namespace, "one", "c0", "claim-of-one", DRIVER, node.name, "gpu-0"))
    node.start_agent()
    # before 1.36 an API server drops taints, unless that is switched on
    has_taints = await driver.has_taints()
    seen = await driver.numbers(3, 1, 1 if has_taints else 2)
    assert (seen["driver"], seen["pool"], seen["agent"]["servedBy"]) == (DRIVER, node.name, names.SERVED_BY_DRA)
    assert seen["devices"][0]["attributes"] == {"memory": "80Gi", "model": "A100"}
    assert [taint["key"] for taint in seen["devices"][1].get("taints", [])] == [TAINT["key"]] * has_taints
    [row] = seen["allocations"]
    assert (row["name"], row["container"], row["claim"]["name"]) == ("one", "c0", "claim-of-one")
    for kind in (Condition.REGISTERED, Condition.INJECTABLE):
        assert (condition(seen, kind)["status"], condition(seen, kind)["reason"]) == ("True", Reason.SERVED_BY_DRA)
    # an agent that starts writes nothing, and then what has changed
    version, since = node.version(NAME), row["since"]
    node.agent.kill()
    node.start_agent()
    await node.agent.until_ready()
    assert node.version(NAME) == version
    await driver.publish(first, second, third, generation=2)
    seen = await node.until(lambda seen: "attributes" not in seen["devices"][0], NAME)
    assert (seen["allocated"], seen["available"]) == (1, 2)
    assert [row["since"] for row in seen["allocations"]] == [since]


async def test_a_cordon_is_answered_with_the_rule_that_does_it(driver: Driver, pod_resources: PodResources) -> None:
    await driver.publish(*devices(2, "gpu"))
    driver.node.start_agent()
    await driver.numbers(2, 0, 2)
    await driver.node.edit({"spec": {"cordonedDevices": [{"id": "gpu-1"}]}}, resource_name=NAME)
    seen = await driver.reason(Reason.CORDON_NOT_POSSIBLE)
    assert (seen["cordoned"], seen["available"]) == (0, 2)
    message = condition(seen, Condition.REGISTERED)["message"]
    if "DeviceTaintRule" in message:
        # the API server takes it as it is
        rule = json.loads(message[message.index("{") :])
        assert rule["spec"]["deviceSelector"] == {"driver": DRIVER, "pool": driver.node.name, "device": "gpu-1"}
        arguments = ("create", "--dry-run=server", "-f", "-")
        await asyncio.to_thread(lambda: driver.node.control_plane.kubectl(*arguments, stdin=json.dumps(rule)))
    await driver.node.edit({"spec": {"cordonedDevices": []}}, resource_name=NAME)
    await driver.reason(Reason.SERVED_BY_DRA)


async def test_a_pool_is_replaced_as_a_whole_and_gone_with_its_slices(
    driver: Driver, pod_resources: PodResources
) -> None:
    node = driver.node
    await driver.publish(*devices(2, "old"))
    node.start_agent()
    await driver.numbers(2, 0, 2)
    await driver.publish(*devices(2, "new"), generation=2, count=2)
    seen = await driver.reason(Reason.POOL_INCOMPLETE)
    assert ([each["id"] for each in seen["devices"]], seen["available"]) == (["old-0", "old-1"], 0)
    await driver.publish(*devices(1, "last"), generation=2, count=2, number=1)
    seen = await driver.numbers(3, 0, 3)
    assert [each["id"] for each in seen["devices"]] == ["last-0", "new-0", "new-1"]
    # a pod has one of them, and the driver ends while no agent runs
    await driver.node.claiming_pod("one", "c")
    pod_resources.claimed.append(ClaimedDevice(node.namespace, "one", "c0", "c", DRIVER, node.name, "new-0"))
    await driver.numbers(3, 1, 2)
    node.agent.kill()
    await driver.withdraw(0)
    await driver.withdraw(1)
    node.start_agent()
    seen = await driver.reason(Reason.ENDPOINT_GONE)
    assert (seen["endpoint"]["state"], seen["total"], seen["healthy"], seen["allocated"]) == ("Gone", 1, 0, 1)
    assert [(each["id"], each["presence"], each["reason"]) for each in seen["devices"]] == [
        ("new-0", "Missing", Reason.NOT_LISTED)
    ]


async def test_switched_off_nothing_is_left(driver: Driver, pod_resources: PodResources) -> None:
    node = driver.node
    await driver.publish(*devices(2, "gpu"))
    node.start_agent()
    await driver.numbers(2, 0, 2)
    node.agent.kill()
    node.start_agent({}, "--no-observe-dra")
    seen = await driver.reason(Reason.NOT_CONFIGURED)
    assert seen["total"] == 0
    # as the operator does
    await asyncio.to_thread(node.client.delete, NodeDevice, names.node_device_name(node.name, NAME))
    file = node.state_dir / "dra-pools.json"
    await until(lambda: not file.exists(), file.read_text)
    assert node.object(NAME) == {}

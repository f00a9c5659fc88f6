"""Slices that DRA drivers should not publish, on a real API server: what is shown of them is bounded, and others are served."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import psutil
import pytest
from nodedevice_agent.kube.write_budget import OBJECT_WRITES_AT_ONCE, OBJECT_WRITES_PER_SECOND
from nodedevice_api import names
from nodedevice_api.names import Condition, Reason

from tests.cluster.api import NodeDevice, ResourceClaim
from tests.fakes.dra import Slices, claim, devices, resource_slice
from tests.fakes.fault_proxy import FaultProxy
from tests.fakes.pod_resources import ClaimedDevice, PodResources
from tests.integration.agent_process import AgentNode, condition, until

Json = dict[str, Any]
DRIVER, NIC = "gpu.vendor.example", "example.com/nic"
# what the API server takes
DEVICES, ATTRIBUTES, NAME_LENGTH = 128, 32, 63
GENERATIONS_PER_SECOND = 10
# of that driver, while a plugin's change becomes visible: some seconds
GENERATIONS_MEANWHILE = 60
BREAKS = 4
CONSUMERS = 1000
MIB = 1024 * 1024
MORE_MIB = 16

# nothing is shown while it is not known which pods hold which devices
pytestmark = pytest.mark.usefixtures("pod_resources")


async def published(slices: Slices, *written: Json) -> None:
    for each in written:
        await asyncio.to_thread(slices.publish, each)


def pools(node: AgentNode) -> dict[tuple[str, str], Json]:
    """Every NodeDevice of that node whose devices a DRA driver offers, by driver and pool."""
    found: Iterator[Json] = (dict(each) for each in node.client.list(NodeDevice))
    return {
        (each["status"]["driver"], each["status"]["pool"]): each
        for each in found
        if each["spec"]["nodeName"] == node.name and each.get("status", {}).get("driver")
    }


def offered(node: AgentNode) -> dict[tuple[str, str], Json]:
    """Their statuses."""
    return {key: each["status"] for key, each in pools(node).items()}


def versions(node: AgentNode) -> dict[tuple[str, str], str]:
    return {key: each["metadata"]["resourceVersion"] for key, each in pools(node).items()}


async def until_offered(
    node: AgentNode, holds: Callable[[dict[tuple[str, str], Json]], bool]
) -> dict[tuple[str, str], Json]:
    seen: dict[tuple[str, str], Json] = {}

    def ask() -> bool:
        nonlocal seen
        node.agent.verify_running()
        seen = offered(node)
        return holds(seen)

    await until(ask, lambda: f"{ {key: (status['total'], status['conditions']) for key, status in seen.items()} }")
    return seen


def largest(node: str, generation: int, count: int = DEVICES) -> Json:
    """As large as the API server lets a slice be; every device has other attributes in each generation."""
    attributes = {
        f"attribute_{number}": {"string": f"{generation}-{number}".ljust(64, "x")} for number in range(ATTRIBUTES)
    }
    found = [{**device, "attributes": attributes} for device in devices(count)]
    return resource_slice(f"{node}-flood", DRIVER, node, found, generation=generation)


@asynccontextmanager
async def without_pause(slices: Slices, node: str, generation: Iterator[int]) -> AsyncIterator[None]:
    """In the block the driver publishes; at its end what it has begun to write is written."""
    is_over = asyncio.Event()

    async def publish() -> None:
        for number in generation:
            if is_over.is_set():
                return
            await asyncio.gather(published(slices, largest(node, number)), asyncio.sleep(1 / GENERATIONS_PER_SECOND))

    publishing = asyncio.create_task(publish())
    try:
        yield
    finally:
        is_over.set()
        await publishing


async def test_a_driver_without_pause_costs_its_share_of_writes_and_others_are_served(
    agent_node: AgentNode, proxy: FaultProxy, slices: Slices
) -> None:
    agent_node.start_agent({"--kubeconfig": await asyncio.to_thread(agent_node.kubeconfig_by, proxy.url)})
    plugin = await agent_node.free_plugin(BREAKS, NIC)
    process, loop = psutil.Process(agent_node.agent.pid), asyncio.get_running_loop()
    await published(slices, largest(agent_node.name, 0))
    seen = await until_offered(agent_node, bool)
    assert seen[DRIVER, agent_node.name]["total"] == DEVICES
    name = names.node_device_name(agent_node.name, f"{DRIVER}/devices")
    began = loop.time()
    quiet = process.memory_info().rss / MIB
    generation = itertools.count(1)
    async with without_pause(slices, agent_node.name, generation):
        # one after the other: one that breaks again and again is damped
        for broken in range(BREAKS):
            since = next(generation)
            await plugin.set_health(f"d{broken}", healthy=False)
            await agent_node.until_numbers(BREAKS, 0, BREAKS - broken - 1, resource_name=NIC)
            assert next(generation) - since <= GENERATIONS_MEANWHILE
            await asyncio.sleep(1)
        seconds = loop.time() - began
        writes = proxy.count("PATCH", f"/nodedevices/{name}/status", began)
    memory = process.memory_info().rss / MIB
    assert writes <= OBJECT_WRITES_AT_ONCE + OBJECT_WRITES_PER_SECOND * seconds + 1
    assert memory <= quiet + MORE_MIB
    # and the last state counts
    await published(slices, largest(agent_node.name, next(generation), DEVICES - 1))
    await until_offered(agent_node, lambda seen: seen[DRIVER, agent_node.name]["total"] == DEVICES - 1)


async def test_what_slices_say_of_others_is_shown_apart(agent_node: AgentNode, slices: Slices) -> None:
    node = agent_node.name
    other, long = f"other-{node}", f"{'a' * 40}.{'b' * 18}.io"[:NAME_LENGTH]
    longest = "/".join(["p" * NAME_LENGTH] * 3)
    of_other = resource_slice(f"{node}-lies", DRIVER, other, devices(9), pool=node)
    of_all = resource_slice(f"{node}-all", DRIVER, "", devices(9), pool="shared")
    incomplete = resource_slice(f"{node}-incomplete", DRIVER, node, devices(2), pool="incomplete", slices=3)
    old = resource_slice(f"{node}-old", DRIVER, node, devices(3, "old"), pool="updated", generation=1)
    new = resource_slice(f"{node}-new", DRIVER, node, devices(4, "new"), pool="updated", generation=2)
    twice = [
        resource_slice(f"{node}-twice-{number}", DRIVER, node, devices(2), pool="twice", slices=2)
        for number in range(2)
    ]
    await published(
        slices,
        resource_slice(f"{node}-own", DRIVER, node, devices(1)),
        resource_slice(f"{node}-second", "nic.vendor.example", node, devices(2)),
        resource_slice(f"{node}-upstream", "gpu.kubernetes.io", node, devices(3)),
        resource_slice(f"{node}-ours", names.DRA_DRIVER, node, devices(4)),
        resource_slice(f"{node}-long", long, node, devices(5), pool=longest),
        resource_slice(f"{node}-named", DRIVER, node, devices(6), pool=other),
        resource_slice(f"{node}-empty", "empty.vendor.example", node, []),
        *(of_other, of_all, incomplete, old, new, *twice),
    )
    agent_node.start_agent()
    expected = {
        (DRIVER, node): 1,
        ("nic.vendor.example", node): 2,
        ("gpu.kubernetes.io", node): 3,
        (long, longest): 5,
        (DRIVER, other): 6,
        ("empty.vendor.example", node): 0,
        (DRIVER, "incomplete"): 2,
        (DRIVER, "updated"): 4,
        (DRIVER, "twice"): 2,
    }
    shown = await until_offered(
        agent_node, lambda seen: {key: status["total"] for key, status in seen.items()} == expected
    )
    refused = condition(shown[DRIVER, "twice"], Condition.REGISTERED)
    assert refused["reason"] == Reason.DEVICES_REFUSED
    assert f"device-0 in {node}-twice-0 and {node}-twice-1" in refused["message"]
    # whoever is not as it should be costs nothing: only what changes is written
    before = {key: version for key, version in versions(agent_node).items() if key != (DRIVER, node)}
    await published(slices, resource_slice(f"{node}-own", DRIVER, node, devices(7), generation=2))
    await until_offered(agent_node, lambda seen: seen[DRIVER, node]["total"] == 7)
    assert {key: version for key, version in versions(agent_node).items() if key != (DRIVER, node)} == before


async def test_a_claim_of_a_thousand_pods(
    agent_node: AgentNode, pod_resources: PodResources, proxy: FaultProxy, slices: Slices
) -> None:
    node, where = agent_node, agent_node.namespace
    made: Any = await asyncio.to_thread(node.client.create, ResourceClaim.from_dict(claim("shared", where, "gpus")))
    await published(slices, resource_slice(f"{node.name}-own", DRIVER, node.name, devices(2)))
    pods = [f"consumer-{number}" for number in range(CONSUMERS)]
    for first in range(0, CONSUMERS, 20):
        await asyncio.gather(*(node.claiming_pod(name, "shared") for name in pods[first : first + 20]))
    pod_resources.claimed = [ClaimedDevice(where, name, "c0", "shared", DRIVER, node.name, "device-0") for name in pods]
    node.start_agent({"--kubeconfig": await asyncio.to_thread(node.kubeconfig_by, proxy.url), "--delivery": "kubelet"})
    seen = await until_offered(node, lambda seen: bool(seen) and seen[DRIVER, node.name]["allocated"] == 1)
    status = seen[DRIVER, node.name]
    assert len(status["allocations"]) + status.get("allocationsOmitted", 0) == CONSUMERS
    assert {row["claim"].get("uid", made.metadata.uid) for row in status["allocations"]} == {made.metadata.uid}
    asked = [path for _, method, path in proxy.requests if method == "GET" and "/resourceclaims/" in path]
    # one for each pod, at most
    assert len(asked) <= CONSUMERS, f"{len(asked)} times"

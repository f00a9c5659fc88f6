"""Foreign plugins that have registered with the kubelet, on a node where an agent runs: what is shown of them, and nothing else."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import TypeVar

import pytest
from nodedevice_agent.devicemanager.attribution.attribute import PodResourcesRow
from nodedevice_agent.kubelet.directory import POD_RESOURCES
from nodedevice_agent.kubelet.pod_resources import PodResources, PodResourcesRefused, connected
from nodedevice_api import names
from nodedevice_api.names import Condition, Reason

from tests.cluster.build.binaries import find
from tests.cluster.errors import BinaryError
from tests.cluster.node.machine import MachineProcess
from tests.e2e.real_node.node_under_test import NodeUnderTest
from tests.e2e.real_node.pods import container, pod
from tests.fakes.third_party import rust_plugin, sample_plugin

_KUBELET = "/var/lib/kubelet"

T = TypeVar("T")


@contextmanager
def started(of: NodeUnderTest, program: Path, resource: str) -> Iterator[MachineProcess]:
    """While the kubelet has its devices: what Node and NodeDevice show may be those of the test before."""

    def is_served() -> bool:
        return resource in asked(of, PodResources.list_devices).devices

    plugin = of.node.process(program.name, [str(program)])
    plugin.start()
    try:
        of.until(is_served, f"the kubelet has devices of {resource}")
        yield plugin
    finally:
        plugin.kill()
        of.until(lambda: not is_served(), f"the kubelet has no devices of {resource}")


@pytest.fixture
def sample(nri_node: NodeUnderTest) -> Iterator[MachineProcess]:
    """Kubernetes' own."""
    program = find(["sample-device-plugin"])["sample-device-plugin"]
    with started(nri_node, program, sample_plugin.RESOURCE) as plugin:
        yield plugin


@pytest.fixture
def widgets(nri_node: NodeUnderTest) -> Iterator[MachineProcess]:
    """One on another gRPC stack."""
    try:
        program = rust_plugin.program()
    except BinaryError as error:
        pytest.skip(str(error))
    with started(nri_node, program, rust_plugin.RESOURCE) as plugin:
        yield plugin


def given(of: NodeUnderTest, resource: str) -> dict[str, list[str]]:
    """Device IDs by `pod/container`, by the kubelet's own word."""
    rows = chain.from_iterable(held.rows for held in asked(of, PodResources.list_pods).values())
    return {f"{row.name}/{row.container}": list(row.device_ids) for row in rows if row.resource_name == resource}


def asked_for(of: NodeUnderTest, name: str) -> tuple[PodResourcesRow, ...]:
    """The same of one pod."""
    return asked(of, lambda kubelet: kubelet.get_pod(of.namespace, name)).rows


def asked(of: NodeUnderTest, ask: Callable[[PodResources], Awaitable[T]]) -> T:
    """The answer of the kubelet."""

    async def connect() -> T:
        async with connected(of.node.outside(_KUBELET) / POD_RESOURCES) as kubelet:
            return await ask(kubelet)

    return asyncio.run(connect())


def until_shown(of: NodeUnderTest, resource: str, total: int, healthy: int) -> None:
    def is_shown() -> bool:
        seen = of.node_device(resource)
        is_observed = seen.get("agent", {}).get("servedBy") == names.SERVED_BY_KUBELET
        return is_observed and (seen["total"], seen["healthy"]) == (total, healthy)

    of.until(is_shown, f"{resource} is shown with {healthy} of {total} healthy")


def until_equal(of: NodeUnderTest, resource: str) -> None:
    of.until(lambda: of.holders(resource) == given(of, resource), f"holders of {resource} are shown")


def until_unmarked(of: NodeUnderTest, resource: str) -> None:
    """Until pods that ask for it are let alone: another test's plugin may have registered it with the agent, seconds ago."""

    def is_unmarked() -> bool:
        made = of.would_create(pod("unmarked", [container("main", {resource: 1})]))
        return names.REQUIRED_PLUGINS_ANNOTATION not in (made.metadata.annotations or {})

    of.until(is_unmarked, f"pods that ask for {resource} are not marked")


def owners(of: NodeUnderTest, resource: str) -> set[str]:
    """Field managers of the resource in the Node's status."""
    text = of.control_plane.kubectl("get", "node", of.node.name, "-o", "json", "--show-managed-fields")
    return {each["manager"] for each in json.loads(text)["metadata"]["managedFields"] if resource in json.dumps(each)}


def test_both_are_shown_and_nothing_is_done_about_them(
    nri_node: NodeUnderTest, sample: MachineProcess, widgets: MachineProcess
) -> None:
    of, resource = nri_node, sample_plugin.RESOURCE
    for name in (resource, rust_plugin.RESOURCE):
        until_shown(of, name, 2, 2)
        until_unmarked(of, name)
    of.wait_allocatable(resource, 2)
    of.run(pod("seen", [container("main", {resource: 1})]))
    # its devices exist on no machine, so that the runtime refuses the container; the kubelet has given them out all the same
    of.create(pod("refused", [container("main", {rust_plugin.RESOURCE: 1})]))
    for name, holder in ((resource, "seen/main"), (rust_plugin.RESOURCE, "refused/main")):
        of.until(lambda name=name, holder=holder: [*of.holders(name)] == [holder], f"{holder} is shown")  # type: ignore[misc]
        until_equal(of, name)
        assert owners(of, name) == {"kubelet"}

    def is_recorded() -> bool:
        text = of.control_plane.kubectl("get", "poddevice/seen", "-n", of.namespace, "-o", "json", check=False)
        return resource in text

    of.until(is_recorded, "the pod has a PodDevice")
    [row] = asked_for(of, "seen")
    assert (row.name, row.resource_name, list(row.device_ids)) == ("seen", resource, of.holders(resource)["seen/main"])
    with pytest.raises(PodResourcesRefused):
        asked_for(of, "nobody")
    of.delete("seen", "refused")
    for name in (resource, rust_plugin.RESOURCE):
        until_equal(of, name)
        assert of.holders(name) == {}


def test_restarts_of_plugin_and_kubelet_lose_nobody(nri_node: NodeUnderTest, sample: MachineProcess) -> None:
    of, resource = nri_node, sample_plugin.RESOURCE
    until_shown(of, resource, 2, 2)
    of.wait_allocatable(resource, 2)
    of.run(pod("stays", [container("main", {resource: 1})]))
    until_equal(of, resource)
    held = of.holders(resource)
    sample.kill()
    until_shown(of, resource, 2, 0)
    broken = {each["id"]: each.get("reason") for each in of.node_device(resource)["devices"]}
    assert broken == dict.fromkeys(sample_plugin.DEVICES, Reason.NOT_ALLOCATABLE)
    sample.start()
    until_shown(of, resource, 2, 2)
    of.node.kubelet.kill()
    assert of.holders(resource) == held
    of.node.start_kubelet()
    until_shown(of, resource, 2, 2)
    until_equal(of, resource)
    assert of.holders(resource) == held
    assert of.condition(resource, Condition.CONFLICT)["status"] == "False"
    of.delete("stays")
    until_equal(of, resource)

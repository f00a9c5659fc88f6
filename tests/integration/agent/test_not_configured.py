"""A resource that is taken out of the configuration ends at once: real agent and operator, on a real API server.

By whichever way it is taken out. What pods hold stays theirs, and a resource that comes back is served as before.
"""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import yaml
from nodedevice_agent.checkpoint.files import restore
from nodedevice_agent.nri.ttrpc import CallFailed
from nodedevice_api.names import node_device_name

from tests.cluster.api import Event
from tests.fakes.nri_runtime import FakeRuntime
from tests.integration.agent_process import condition, holdings, reasons, until
from tests.integration.configured_node import (
    SERIAL,
    SIMULATED,
    ConfiguredNode,
    simulated,
    until_capacity,
    until_deleted,
)
from tests.integration.nri import by_nri, container, sandbox

BOTH: dict[str, Any] = {"simulated": [{"resourceName": SIMULATED, "count": 2}, {"resourceName": SERIAL, "count": 1}]}
pytestmark = pytest.mark.usefixtures("operator")


async def until_not_configured(configured: ConfiguredNode, resource: str = SIMULATED) -> dict[str, Any]:
    def is_so(seen: dict[str, Any]) -> bool:
        shown = {condition(seen, kind).get("reason") for kind in ("Ready", "Registered")}
        return shown == {"NotConfigured"}

    return await configured.node.until(is_so, resource)


async def events(configured: ConfiguredNode, resource: str = SIMULATED) -> dict[str, str]:
    """Types of the Events about the NodeDevice by reason, once the one about its end is among them: they come in their order."""
    name = node_device_name(configured.node.name, resource)
    found: dict[str, str] = {}

    def is_reported() -> bool:
        about = [e for e in configured.node.client.list(Event, namespace="*") if e.involvedObject.name == name]
        found.update({str(e.reason): str(e.type) for e in about})
        return "NotConfigured" in found

    await until(is_reported, lambda: f"NotConfigured is among {found}")
    return found


async def started(configured: ConfiguredNode, plugins: dict[str, Any] | None = None, **flags: str) -> None:
    """An agent, and an operator that shows what it has."""
    configured.start_agent(**flags)
    await configured.configure("a", plugins or simulated(2))
    await until_capacity(configured, 2)


async def test_a_deleted_configuration_ends_its_resource_and_brings_it_back(configured: ConfiguredNode) -> None:
    await started(configured)
    for _ in range(2):
        await configured.remove("a")
        await until_deleted(configured)
        found = await events(configured)
        assert "Warning" not in found.values(), found
        await configured.configure("a", simulated(2))
        await until_capacity(configured, 2)
        await configured.node.until(lambda seen: condition(seen, "Ready").get("status") == "True", SIMULATED)


async def _edit(configured: ConfiguredNode) -> None:
    await configured.configure("a", {"simulated": BOTH["simulated"][1:]})


async def _label(configured: ConfiguredNode) -> None:
    await configured.configure("b", {"simulated": BOTH["simulated"][1:]}, pool=f"{configured.node.name}-other")
    await configured.label(f"{configured.node.name}-other")


@pytest.mark.parametrize("change", [_edit, _label])
async def test_an_edit_or_a_label_ends_what_is_no_longer_named(
    configured: ConfiguredNode, change: Callable[[ConfiguredNode], Awaitable[None]]
) -> None:
    await started(configured, BOTH)
    await until_capacity(configured, 1, SERIAL)
    uid = configured.node.object(SERIAL)["metadata"]["uid"]
    await change(configured)
    await until_deleted(configured)
    await until_capacity(configured, 1, SERIAL)
    assert configured.node.object(SERIAL)["metadata"]["uid"] == uid


async def test_what_a_pod_holds_stays_its_own_until_it_ends(configured: ConfiguredNode) -> None:
    await started(configured)
    node = configured.node
    await node.pod("holder", resource=SIMULATED)
    before = await node.until_numbers(total=2, allocated=1, available=1, resource_name=SIMULATED)
    await configured.remove("a")
    seen = await until_not_configured(configured)
    await until_capacity(configured, 1)
    assert (seen["allocated"], holdings(seen)) == (1, holdings(before))
    assert [(d["presence"], d["reason"]) for d in seen["devices"]] == [("Missing", "NotConfigured")]
    # over a restart too
    await node.agent.stop()
    configured.start_agent()
    await node.agent.until_logged("serving device plugins")
    await configured.until_reported({})
    seen = await until_not_configured(configured)
    assert holdings(seen) == holdings(before)
    assert "Warning" not in (await events(configured)).values()
    await node.delete_pod("holder")
    await until_deleted(configured)


async def test_no_container_starts_with_what_nobody_watches(configured: ConfiguredNode, runtime: FakeRuntime) -> None:
    """One that runs goes on; its device files may be another device's by the time at which it starts again."""
    file = configured.files / "tty0"
    file.touch()
    node = configured.node
    configured.start_agent(**by_nri(node))
    await configured.configure("a", configured.serial())
    await node.until_numbers(total=1, allocated=0, available=1, resource_name=SERIAL)
    uid = await node.pod("holder", resource=SERIAL)
    before = await node.until_numbers(total=1, allocated=1, available=0, resource_name=SERIAL)
    connection = await runtime.plugin()
    first = await connection.create_container(sandbox(uid, "holder"), container(uid))
    assert [mount.source for mount in first.mounts] == [str(file)]
    await configured.remove("a")
    seen = await until_not_configured(configured, SERIAL)
    assert holdings(seen) == holdings(before)
    other = await node.pod("late", resource=SERIAL)
    await node.until(lambda seen: reasons(seen) == {"late": "NotConfigured"}, SERIAL)
    for pod_uid, name in ((uid, "holder"), (other, "late")):
        with pytest.raises(CallFailed, match="not configured on this node any more"):
            await connection.create_container(sandbox(pod_uid, name), container(pod_uid, 2))
    await node.delete_pod("late")
    await configured.configure("a", configured.serial())
    await node.until_numbers(total=1, allocated=1, available=0, resource_name=SERIAL)
    again = await connection.create_container(sandbox(uid, "holder"), container(uid, 2))
    assert again.mounts == first.mounts
    await configured.remove("a")
    await until_not_configured(configured, SERIAL)
    await node.delete_pod("holder")
    for number in (1, 2):
        await connection.container_event("StopContainer", sandbox(uid, "holder"), container(uid, number))
    await until_deleted(configured, SERIAL)


async def test_a_cordon_keeps_the_object_until_it_is_removed(configured: ConfiguredNode) -> None:
    await started(configured)
    node = configured.node
    await node.edit({"spec": {"cordonedDevices": [{"id": "simulated-0"}]}}, resource_name=SIMULATED)
    await until_capacity(configured, 1)
    await configured.remove("a")
    await until_not_configured(configured)
    await until_capacity(configured, None)
    # one that is made and ends afterwards is deleted by the same operator, which therefore had its chance
    await configured.configure("b", {"simulated": BOTH["simulated"][1:]})
    await until_capacity(configured, 1, SERIAL)
    await configured.remove("b")
    await until_deleted(configured, SERIAL)
    assert node.object(SIMULATED)["spec"]["cordonedDevices"] == [{"id": "simulated-0"}]
    await node.edit({"spec": {"cordonedDevices": []}}, resource_name=SIMULATED)
    await until_deleted(configured)


async def test_the_agents_file_without_it_after_a_restart(configured: ConfiguredNode) -> None:
    node = configured.node
    file = node.folder / "agent.yaml"
    file.write_text(yaml.safe_dump({"plugins": BOTH}))
    configured.start_agent(**{"--config": str(file)})
    await until_capacity(configured, 2)
    await until_capacity(configured, 1, SERIAL)
    await node.agent.stop()
    file.write_text(yaml.safe_dump({"plugins": {"simulated": BOTH["simulated"][1:]}}))
    configured.start_agent(**{"--config": str(file)})
    await until_deleted(configured)
    await until_capacity(configured, 1, SERIAL)
    assert "Warning" not in (await events(configured)).values()


async def test_who_does_not_know_the_configurations_ends_nothing(configured: ConfiguredNode) -> None:
    """An agent that starts with a damaged file and no API server serves its own file's plugins, and waits for the others."""
    node = configured.node
    await started(configured)
    uid = node.object(SIMULATED)["metadata"]["uid"]
    await node.agent.stop()
    (node.state_dir / "configs.json").write_text("{")
    file = node.folder / "agent.yaml"
    file.write_text(yaml.safe_dump({"plugins": {"simulated": BOTH["simulated"][1:]}}))
    nowhere = {"--config": str(file), "--kubeconfig": node.kubeconfig_by("https://127.0.0.1:9")}
    configured.start_agent(**nowhere)
    assert (await node.agent.until_logged("plugin registered"))["resource_name"] == SERIAL
    await node.agent.stop()
    saved, _ = restore(node.state_dir)
    assert saved is not None
    assert (saved.gone, set(saved.registered)) == ((), {SIMULATED, SERIAL})
    configured.start_agent(**{"--config": str(file)})
    await until_capacity(configured, 2)
    assert node.object(SIMULATED)["metadata"]["uid"] == uid

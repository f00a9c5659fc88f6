"""Content that no plugin and no pod can cause is refused; whatever they can is accepted."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nodedevice_agent.checkpoint.format import check_possible
from nodedevice_agent.devicemanager.container_edits import AllocateResponse, ContainerEdits
from nodedevice_agent.devicemanager.effects import CallAllocate
from nodedevice_agent.devicemanager.manager import DeviceManager
from nodedevice_agent.devicemanager.pods import Container, Pod
from nodedevice_agent.devicemanager.records.allocations import Allocation
from nodedevice_agent.devicemanager.records.checkpoint import Checkpoint, CheckpointCorrupt
from nodedevice_agent.devicemanager.registration import RegistrationRejected, check_registration
from nodedevice_agent.devicemanager.resources.connections import PluginOptions
from nodedevice_agent.devicemanager.resources.devices import Device, accept
from nodedevice_api.device_ids import shown_id


def holding(**change: Any) -> Checkpoint:
    plain = {"pod_uid": "u", "container": "c", "resource_name": "a.b/c", "ids_by_numa": {-1: ("x",)}, "response": None}
    return Checkpoint((Allocation(**{**plain, **change}),))


def test_accepts_an_allocation_without_devices() -> None:
    check_possible(holding(ids_by_numa={}))


@pytest.mark.parametrize(
    ("impossible", "message"),
    [
        pytest.param(holding(resource_name=""), "resource name ''", id="no resource name"),
        pytest.param(holding(resource_name="no such\nname"), r"'no such\\nname'", id="a name with a line break"),
        pytest.param(Checkpoint(registered={"kubernetes.io/x": ()}), "reserved", id="a reserved name"),
        pytest.param(Checkpoint(registered={"x" * 9999: ()}), "domain/name", id="an endless name"),
        pytest.param(holding(ids_by_numa={2**70: ("x",)}), "invalid NUMA node 1180", id="a huge NUMA node"),
        pytest.param(holding(ids_by_numa={-7: ("x",)}), "invalid NUMA node -7", id="a NUMA node below none"),
    ],
)
def test_refuses_impossible_content(impossible: Checkpoint, message: str) -> None:
    with pytest.raises(CheckpointCorrupt, match=message) as refused:
        check_possible(impossible)
    assert str(refused.value).isprintable()
    assert len(str(refused.value)) < 300


@given(st.text(max_size=20) | st.sampled_from(["a.b/c", "a.com/GPU_1.a"]), st.lists(st.text(max_size=140), max_size=5))
def test_accepts_whatever_a_plugin_can_register(resource_name: str, device_ids: list[str]) -> None:
    """Whatever a plugin registers and lists, and a pod gets of it, is accepted at the next start."""
    try:
        check_registration("v1beta1", resource_name, "a.sock")
    except RegistrationRejected:
        return
    manager = DeviceManager(0.0)
    manager.connected(resource_name, 1, PluginOptions(), 0.0)
    listed = accept(Device(shown_id(device_id), numa_nodes=(0, 2**31 - 1)) for device_id in device_ids)
    manager.listed(resource_name, 1, listed, 0.0)
    if not device_ids:
        return
    pod = Pod("uid", "default", "one", (Container("main", limits={resource_name: len(listed.devices)}),))
    manager.pod_events.synced([pod], 0.0)
    for effect in manager.settle(0.0):
        if isinstance(effect, CallAllocate):
            manager.allocated(effect.ticket, AllocateResponse(b"", ContainerEdits()), 0.0)
    check_possible(manager.checkpoint())
    assert len(manager.checkpoint().allocations) == 1

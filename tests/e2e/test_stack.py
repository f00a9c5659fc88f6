"""Agent and operator together, on the real control plane: what an administrator sees when things happen."""

import asyncio
import json
from functools import partial
from typing import Any

import pytest
import yaml

from tests.cluster.cluster import a_pod
from tests.cluster.control_plane.control_plane import ControlPlane
from tests.cluster.local.stack import FILES, GPU, NODE_B, Stack
from tests.e2e.conftest import gpus
from tests.fakes.plugin import FakeDevice, FakePlugin

_IDLE_SECONDS = 12.0
_AGENT = "system:serviceaccount:nodedevice-system:nodedevice-agent"
_OPERATOR = "system:serviceaccount:nodedevice-system:nodedevice-operator"


pytestmark = pytest.mark.cluster


@pytest.mark.kubelet("scenario 95")
async def test_registration_that_is_refused_harms_nobody(stack: Stack) -> None:
    plugin = FakePlugin("example.kubernetes.io/gpu", {"d0": FakeDevice()})
    await plugin.start(stack.agents[NODE_B].plugin_dir)
    try:
        with pytest.raises(Exception, match="reserved by Kubernetes"):
            await plugin.register()
    finally:
        await plugin.stop()
    assert gpus(stack, NODE_B) == 2
    stack.wait_for("an Event reports it", lambda: "RegistrationRefused" in _event_reasons(stack, NODE_B))


@pytest.mark.kubelet("scenario 85")
def test_pods_share_what_may_be_shared_and_nothing_else(stack: Stack) -> None:
    """More pods than devices, of two resources, through the real scheduler: each device has one pod."""
    stack.control_plane.add_namespace("crowd")
    crowd = [a_pod(f"gpu-{i}", "crowd", {GPU: 1}) for i in range(8)]
    crowd += [a_pod(f"dev-{i}", "crowd", {FILES: 2}) for i in range(3)]
    stack.control_plane.apply(yaml.safe_dump_all(crowd))
    stack.wait_for("all devices are held", lambda: len(_held(stack)) == 6 + 4)
    assert len({(name, device) for name, device, _ in _held(stack)}) == 6 + 4
    for _ in range(3):
        first = sorted({pod for _, _, pod in _held(stack)})[0]
        stack.control_plane.kubectl("delete", "pod", first, "-n", "crowd", "--grace-period=0", "--wait=false")
        stack.wait_for(f"{first} holds nothing", partial(_holds_nothing, stack, first))
    held = _held(stack)
    assert len({(name, device) for name, device, _ in held}) == len(held)
    stack.control_plane.remove_namespace("crowd")
    stack.wait_for("all is free", lambda: not _held(stack))
    stack.wait_for("no PodDevice is left", lambda: not _items(stack, "poddevices", "-A"))


async def test_idle_writes_nothing_but_leases(stack: Stack) -> None:
    assert isinstance(stack.control_plane, ControlPlane)
    await asyncio.sleep(2)  # what earlier tests set in motion has come to rest
    before = len(list(stack.control_plane.audit_events()))
    await asyncio.sleep(_IDLE_SECONDS)
    ours = [
        (event["verb"], event["objectRef"]["resource"])
        for event in list(stack.control_plane.audit_events())[before:]
        if event["user"]["username"] in (_AGENT, _OPERATOR)
    ]
    writes = [(verb, kind) for verb, kind in ours if verb not in ("get", "list", "watch")]
    assert {kind for _, kind in writes} <= {"leases"}


def _event_reasons(stack: Stack, name: str) -> list[str]:
    return [e["reason"] for e in _items(stack, "events", "-A") if e["involvedObject"]["name"] == name]


def _held(stack: Stack) -> list[tuple[str, str, str]]:
    """(NodeDevice, device ID, pod) of everything held."""
    return [
        (found["metadata"]["name"], device, allocation["name"])
        for found in _items(stack, "nodedevices")
        for allocation in found["status"]["allocations"]
        for device in allocation["deviceIDs"]
    ]


def _holds_nothing(stack: Stack, pod: str) -> bool:
    return pod not in {holder for _, _, holder in _held(stack)}


def _items(stack: Stack, *what: str) -> list[dict[str, Any]]:
    return list(json.loads(stack.control_plane.kubectl("get", *what, "-o", "json"))["items"])

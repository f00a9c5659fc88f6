"""GPUs and MIG instances that are taken out of the configuration, or whose driver is released: real agent and operator, on a real
API server.
"""

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest
from nodedevice_agent.plugins.nvml.settings import GPU_CLIENT_LABEL

from hack.fake_nvml.library import FakeNvml
from tests.cluster.api import Node
from tests.integration.agent_process import condition, until
from tests.integration.configured_node import ConfiguredNode, until_capacity, until_deleted

GPU, ONE, TWO = "nvidia.com/gpu", "nvidia.com/mig-1g.10gb", "nvidia.com/mig-2g.20gb"
pytestmark = pytest.mark.usefixtures("operator")


@pytest.fixture
def a100(configured: ConfiguredNode, monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    """Of the node: two in MIG mode, with instances of three profiles, and a whole one."""
    gpus = FakeNvml(configured.node.folder / "nvml", "mig-a100")
    for name, value in gpus.environment().items():
        monkeypatch.setenv(name, value)
    return gpus


def nvml(**settings: Any) -> dict[str, Any]:
    return {"nvml": {"mig": "mixed", "pollSeconds": 1, "rescanSeconds": 1, **settings}}


async def test_gpus_and_the_names_of_their_instances(configured: ConfiguredNode, a100: FakeNvml) -> None:
    """Names of instances are in no configuration: their profiles make them."""
    node = configured.node
    configured.start_agent()
    await configured.configure("a", nvml())
    for resource, number in ((GPU, 1), (ONE, 8), (TWO, 1)):
        await until_capacity(configured, number, resource)
    # what has no instance at the moment is configured all the same
    a100.destroy(0)
    await until(lambda: node.status(TWO).get("healthy") == 0, lambda: str(node.status(TWO)))
    assert condition(node.status(TWO), "Registered")["reason"] == "EndpointRunning"
    # a mistake ends none of them for good
    await configured.configure("a", nvml(typo=1))
    await node.until(lambda seen: condition(seen, "Registered")["reason"] == "EndpointStopped", ONE)
    await configured.configure("a", nvml(resourceName="nvidia.com/a100"))
    await until_capacity(configured, 1, "nvidia.com/a100")
    await until_deleted(configured, GPU)
    await until_capacity(configured, 7, ONE)
    await configured.configure("a", nvml(mig="none"))
    await until_deleted(configured, ONE)
    await until_deleted(configured, TWO)
    await configured.remove("a")
    await until_deleted(configured, "nvidia.com/a100")


async def test_the_gpu_operators_label_closes_nvml(configured: ConfiguredNode, a100: FakeNvml) -> None:
    """Within five seconds, by the rights that the agent has; an agent that starts meanwhile leaves it closed."""
    node = configured.node

    async def label(value: str | None) -> None:
        patch = {"metadata": {"labels": {GPU_CLIENT_LABEL: value}}}
        await asyncio.to_thread(node.client.patch, Node, node.name, patch)

    def readers() -> list[Path]:
        """Processes that have the library of this test mapped."""
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            try:
                uses_it = str(node.folder).encode() in (process / "environ").read_bytes()
                if uses_it and "libnvidia-ml" in (process / "maps").read_text():
                    found.append(process)
            except OSError:
                continue
        return found

    configured.start_agent()
    await configured.configure("a", nvml())
    await until_capacity(configured, 1, GPU)
    assert readers()
    for value in ("paused-for-driver-upgrade", "paused-for-mig-change"):
        await label(value)
        began = time.monotonic()
        await until(lambda: not readers(), lambda: f"{readers()} is empty")
        assert time.monotonic() - began < 5
        shown = ("DriverReleased", f"{GPU_CLIENT_LABEL}={value}")
        await node.until(lambda seen: all(each in str(seen["devices"]) for each in shown), GPU)  # noqa: B023
    await node.agent.stop()
    configured.start_agent()
    logged = "NVML is closed on request; GPUs are not read"
    await until(lambda: bool(node.agent.lines(logged)), lambda: "an agent that starts reads the label")
    assert not readers()
    await label("true")
    await node.until(lambda seen: seen["available"] == 1, GPU)
    assert readers()
    await label(None)

"""A GPU under two names: the nvml plugin's, and that of a file which the generic plugin lists. It is given out once."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from nodedevice_agent.plugins.settings import PluginSettings

from hack.fake_nvml.library import FakeNvml
from tests.fakes.hosted_manager import HostedManager, hosted, pod
from tests.integration.nvml.gpu_node import GPU, QUICK, Node

CARD = "a.example/card"
SHARES: list[dict[str, Any]] = [{"shares": {"replicas": 3}}]


def settings(folder: Path, sharing: Sequence[dict[str, Any]] = (), *, with_card: bool = True) -> PluginSettings:
    card = {"resourceName": CARD, "groups": [{"paths": [{"path": "/dev/nvidia0"}]}]}
    return msgspec.convert(
        {
            "hostRoot": str(folder / "host"),
            "nvml": {**QUICK, "sharing": sharing},
            "generic": [card] if with_card else [],
        },
        PluginSettings,
    )


def node(folder: Path, manager: HostedManager, monkeypatch: pytest.MonkeyPatch) -> Node:
    gpus = FakeNvml(folder / "nvml", "t4-pair")
    for name, value in gpus.environment().items():
        monkeypatch.setenv(name, value)
    (folder / "host/dev").mkdir(parents=True)
    for minor in range(2):
        (folder / f"host/dev/nvidia{minor}").symlink_to("/dev/null")
    return Node(folder, gpus, manager)


@pytest.mark.parametrize(("sharing", "left"), [((), 1), (SHARES, 3)])
async def test_a_file_that_is_a_gpu_is_not_offered_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sharing: Sequence[dict[str, Any]], left: int
) -> None:
    async with hosted(tmp_path) as manager:
        here = node(tmp_path, manager, monkeypatch)
        manager.configure(settings(tmp_path, sharing))
        await here.until(lambda r: r.available == 1, CARD)
        # the name that comes first; the other GPU, or its shares, stay
        found = await here.until(lambda r: r.available == left)
        words = {d.message for d in found.devices if d.reason == "InOtherUse"}
        assert words
        assert all(CARD in message for message in words)


async def test_the_pod_that_holds_a_gpu_keeps_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with hosted(tmp_path) as manager:
        here = node(tmp_path, manager, monkeypatch)
        manager.configure(settings(tmp_path, with_card=False))
        await here.until(lambda r: r.available == 2)
        manager.pod_seen(pod("train", GPU, 2))
        await here.until(lambda r: r.allocated == 2)
        manager.configure(settings(tmp_path))
        await here.until(lambda r: r.total == 1, CARD)
        assert manager.available(CARD) == 0
        manager.pod_gone("train")
        await here.until(lambda r: r.available == 1, CARD)
        assert manager.available(GPU) == 1

"""The kubelet is asked for its pods' devices, so that it forgets those of names that moved here; and only then."""

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest
from nodedevice_agent.checkpoint.format import encode
from nodedevice_agent.devicemanager.allocation.allocations import Allocation, Checkpoint
from nodedevice_agent.kubelet.directory import POD_RESOURCES
from nodedevice_agent.kubelet.pod_resources import PodResourcesUnavailable
from nodedevice_agent.runtime import kubelet_takeover
from nodedevice_agent.runtime.kubelet_takeover import CHECK_SECONDS, KubeletTakeover

from tests.fakes.background import background
from tests.fakes.virtual_time import virtual_time
from tests.unit.node_agent.devicemanager.runtime_scenario import RuntimeScenario
from tests.unit.node_agent.devicemanager.scenario import GPU, NIC


class Kubelet:
    """Its checkpoint, and a PodResources service. asked: by socket."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.asked: list[Path] = []
        self.problem = ""
        (folder / "device-plugins").mkdir()
        monkeypatch.setattr(kubelet_takeover, "list_pod_resources", self._list)

    async def _list(self, socket: Path) -> tuple[Any, ...]:
        self.asked.append(socket)
        if self.problem:
            raise PodResourcesUnavailable(self.problem)
        return ()

    def allocates(self, *names: str) -> None:
        file = self.folder / "device-plugins/kubelet_internal_checkpoint"
        held = tuple(Allocation("p", "main", name, {-1: ("a",)}, b"") for name in names)
        file.with_suffix(".new").write_text(encode(Checkpoint(held, dict.fromkeys(names, ("a",)))))
        file.with_suffix(".new").rename(file)


@pytest.fixture
def kubelet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kubelet:
    return Kubelet(tmp_path, monkeypatch)


async def test_only_for_names_that_it_has_given_out_and_that_are_served_here(kubelet: Kubelet) -> None:
    nobodys = KubeletTakeover(RuntimeScenario().manager, kubelet.folder)
    ours = KubeletTakeover(RuntimeScenario.with_plugin(1).manager, kubelet.folder)
    for names, count in (((), 0), ((NIC,), 0), ((GPU, NIC), 1)):
        kubelet.allocates(*names)
        for takeover in (nobodys, ours):
            await takeover._free()
        assert len(kubelet.asked) == count
    assert kubelet.asked == [kubelet.folder / POD_RESOURCES]
    # one that has gone is not served
    scenario = RuntimeScenario.with_plugin(1)
    scenario.disconnect()
    await KubeletTakeover(scenario.manager, kubelet.folder)._free()
    assert len(kubelet.asked) == 1


async def test_each_outcome_is_logged_once(kubelet: Kubelet, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    takeover = KubeletTakeover(RuntimeScenario.with_plugin(1).manager, kubelet.folder)
    await takeover._free()
    kubelet.allocates(GPU)
    for kubelet.problem in ("no socket", "no socket", "", ""):
        await takeover._free()
    assert len(kubelet.asked) == 4
    failed, done = (vars(record) for record in caplog.records)
    assert (failed["levelname"], failed["resource_names"], failed["error"]) == ("WARNING", [GPU], "no socket")
    assert failed["socket"] == str(kubelet.folder / POD_RESOURCES)
    assert (done["levelname"], done["resource_names"]) == ("INFO", [GPU])
    # the kubelet has none any more, which is no news
    kubelet.allocates()
    await takeover._free()
    assert len(caplog.records) == 2


@virtual_time
async def test_it_is_asked_now_and_then(kubelet: Kubelet) -> None:
    kubelet.allocates(GPU)
    takeover = KubeletTakeover(RuntimeScenario.with_plugin(1).manager, kubelet.folder)
    async with background(takeover.run()):
        await asyncio.sleep(CHECK_SECONDS * 2.5)
    assert len(kubelet.asked) == 3

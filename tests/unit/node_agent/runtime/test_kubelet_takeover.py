"""The kubelet lists its pods' devices, so that it forgets those of names that moved here; and only then."""

import asyncio
import logging
from pathlib import Path

import pytest
from nodedevice_agent.devicemanager.records.allocations import Allocation
from nodedevice_agent.runtime.kubelet_takeover import KubeletTakeover

from tests.fakes.background import background
from tests.fakes.kubelet_answers import KubeletAnswers, read_at_once
from tests.fakes.virtual_time import virtual_time
from tests.unit.node_agent.devicemanager.runtime_scenario import RuntimeScenario
from tests.unit.node_agent.devicemanager.scenario import GPU, NIC


class Kubelet(KubeletAnswers):
    """With a reader of it, and a takeover as its subscriber."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(path, monkeypatch)
        self.scenario = RuntimeScenario.with_plugin(1)
        self.own = self.reader()
        self.own.subscribe(KubeletTakeover(self.scenario.manager, self.directory.pod_resources))

    def allocates(self, *names: str) -> None:
        self.write(*(Allocation("p", "main", name, {-1: ("a",)}, b"") for name in names))


@pytest.fixture
def kubelet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kubelet:
    read_at_once(monkeypatch)
    return Kubelet(tmp_path, monkeypatch)


@pytest.mark.parametrize(("names", "count"), [((), 0), ((NIC,), 0), ((GPU, NIC), 1)])
async def test_only_for_its_names_that_are_served_here(kubelet: Kubelet, names: tuple[str, ...], count: int) -> None:
    kubelet.allocates(*names)
    await kubelet.own.read()
    assert kubelet.calls["List"] == count
    # one that has gone is not served
    kubelet.scenario.disconnect()
    await kubelet.own.read()
    assert kubelet.calls["List"] == count


@virtual_time
async def test_each_outcome_is_logged_once(kubelet: Kubelet, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    kubelet.allocates(GPU)
    async with background(kubelet.own.run()):
        for kubelet.problem in ("no socket", ""):
            await asyncio.sleep(100)
        failed, done = (vars(record) for record in caplog.records)
        assert "its next pod with them may fail" in str(failed["msg"])
        assert (failed["levelname"], failed["resource_names"], failed["error"]) == ("WARNING", [GPU], "no socket")
        assert failed["socket"] == str(kubelet.directory.pod_resources)
        assert (done["levelname"], done["resource_names"]) == ("INFO", [GPU])
        # the kubelet has none any more, which is no news
        kubelet.allocates()
        await asyncio.sleep(100)
        assert len(caplog.records) == 2

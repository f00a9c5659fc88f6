"""What a mirror gets of the kubelet, when, and what is logged of it."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec.structs import replace
from nodedevice_agent.devicemanager.attribution.attribute import KubeletState, PodResourcesRow
from nodedevice_agent.devicemanager.records.allocations import Allocation
from nodedevice_agent.kubelet.attribution_feed import AttributionFeed
from nodedevice_agent.kubelet.readings import Pace

from tests.fakes.kubelet_answers import KubeletAnswers

GPU = "example.com/gpu"
HELD = Allocation("p", "main", GPU, {-1: ("a",)}, b"")
ROW = PodResourcesRow("default", "p", "main", GPU, ("a",))


class Node:
    """A feed beside a kubelet. states: what its mirror got. troubles: one for each change of the feed's trouble."""

    def __init__(self, kubelet: KubeletAnswers) -> None:
        self.kubelet = kubelet
        self.states: list[KubeletState] = []
        self.conflicts: tuple[Allocation, ...] = ()
        self.troubles: list[None] = []
        self.mirror = cast(Any, SimpleNamespace(is_outdated=True, conflicts=(), read=self.states.append))
        host: Any = SimpleNamespace(manager=SimpleNamespace(attribution=self.mirror))
        host.settle = lambda: setattr(self.mirror, "conflicts", self.conflicts)
        self.reader = kubelet.reader()
        self.feed = AttributionFeed(kubelet.directory, host, lambda: self.troubles.append(None))
        self.reader.subscribe(self.feed)

    def seen(self) -> list[tuple[object, object]]:
        """Of each state the pods in the checkpoint, and the rows."""
        return [(state.entries and [a.pod_uid for a in state.entries], state.rows) for state in self.states]


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    return Node(KubeletAnswers(tmp_path, monkeypatch))


async def test_the_mirror_gets_what_is_new(node: Node) -> None:
    node.kubelet.write(HELD)
    await node.reader.read()
    assert (node.seen(), node.kubelet.calls["List"]) == ([(["p"], ())], 1)
    assert not node.mirror.is_outdated
    assert (node.feed.trouble, node.troubles) == ("", [])
    # only a device list was written
    node.kubelet.write(HELD, registered={GPU: ("a",)})
    await node.reader.read()
    assert (len(node.states), node.kubelet.calls["List"]) == (1, 1)
    # a pod has ended, which has changed nothing of it
    node.mirror.is_outdated = True
    await node.reader.read()
    assert (len(node.states), node.mirror.is_outdated) == (1, False)
    node.kubelet.write()
    await node.reader.read()
    assert (node.seen()[1:], node.kubelet.calls["List"]) == ([((), ())], 1)


async def test_an_allocation_is_known_before_the_kubelet_is_asked_for_names(node: Node) -> None:
    """Else a device could be given out a second time meanwhile, under another name of it."""
    await node.reader.read()
    node.kubelet.write(HELD)
    await node.reader.read_checkpoint()
    assert (node.seen()[-1], node.kubelet.calls["List"], node.mirror.is_outdated) == ((["p"], ()), 1, True)


async def test_before_the_first_names_it_waits_for_them(node: Node) -> None:
    """Pods that are not in the API yet have no others, and would lose what they held before a restart."""
    node.kubelet.write(HELD)
    await node.reader.read_checkpoint()
    assert node.seen() == []


async def test_trouble_with_the_checkpoint_is_logged_once(node: Node, caplog: pytest.LogCaptureFixture) -> None:
    node.kubelet.write_text("{")
    for text in ("{", "[]"):
        # its error is another one each time
        node.kubelet.write_text(text)
        await node.reader.read()
    assert len(node.troubles) == 2
    assert "Expected `object`" in node.feed.trouble
    assert node.states[-1].entries is None
    (record,) = caplog.records
    assert (record.message, record.levelname) == ("invalid kubelet checkpoint", "ERROR")
    assert "not JSON" in vars(record)["error"]
    node.kubelet.write()
    await node.reader.read()
    assert (node.feed.trouble, len(node.troubles), len(caplog.records)) == ("", 3, 1)


async def test_pod_resources_that_do_not_answer_are_asked_again(node: Node, caplog: pytest.LogCaptureFixture) -> None:
    for problem, logged in (("no socket", 1), ("another", 1), ("", 1), ("no socket", 2)):
        node.kubelet.problem = problem
        node.kubelet.write(replace(HELD, pod_uid=f"{problem}{logged}"))
        await node.reader.read()
        assert (node.states[-1].rows is None) is bool(problem)
        assert len(caplog.records) == logged
    first = vars(caplog.records[0])
    assert first["message"] == "kubelet pod resources unreachable; retrying"
    assert first["socket"] == str(node.kubelet.directory.pod_resources)
    assert "no socket" in first["error"]
    # the same entries, as rows are missing
    before = len(node.states)
    await node.reader.read()
    assert len(node.states) == before + 1


async def test_each_new_conflict_is_logged(
    node: Node, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Allocation("q", "main", GPU, {-1: ("b",)}, b"")
    monkeypatch.setattr(AttributionFeed, "pace", Pace(is_following=True, list_seconds=0.0))
    for node.conflicts in ((HELD,), (HELD,), (HELD, other)):
        node.kubelet.rows = (*node.kubelet.rows, ROW)
        node.mirror.is_outdated = True
        await node.reader.read()
    found = [vars(record) for record in caplog.records if record.message.startswith("conflict: the kubelet allocated")]
    named = [(each["resource_name"], each["pod_uid"], each["device_ids"]) for each in found]
    assert named == [(GPU, "p", ["a"]), (GPU, "q", ["b"])]

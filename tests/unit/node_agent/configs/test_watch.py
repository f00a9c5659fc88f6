"""What the node's configurations make of its plugins: at a start, with and without an API server, and at each change."""

import asyncio
import json
import logging
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from itertools import permutations
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from nodedevice_agent.configs import watch
from nodedevice_agent.configs.effective import MAX_OCTETS, Effective, effective
from nodedevice_agent.configs.watch import ConfigWatch, last_known
from nodedevice_agent.kube.informer import Watches
from nodedevice_agent.kube.objects import (
    GenerationMetadata,
    LabeledMetadata,
    NodeDeviceConfigObject,
    NodeMetadataObject,
)
from nodedevice_agent.plugins.nvml.settings import GPU_CLIENT_LABEL
from nodedevice_agent.plugins.settings import PluginSettings
from nodedevice_agent.plugins.simulated.settings import SimulatedSettings

from tests.fakes.background import background
from tests.fakes.virtual_time import later, virtual_time
from tests.unit.node_agent.configs.test_effective import names

OWN, OTHER, BASE = "example.com/own", "example.com/other", "example.com/base"
# how long the agent waits for an API server at its start
START_SECONDS = 5.0
FILE = PluginSettings(simulated=[SimulatedSettings(BASE)])


def config(
    name: str = "a", *resources: str, generation: int = 1, selector: Mapping[str, str] | None = None, **more: Any
) -> NodeDeviceConfigObject:
    plugins = {"simulated": [{"resourceName": each} for each in resources]}
    spec = {"plugins": plugins, "nodeSelector": dict(selector or {}), **more}
    metadata = GenerationMetadata(name=name, generation=generation)
    return NodeDeviceConfigObject(metadata=metadata, spec=msgspec.Raw(msgspec.json.encode(spec)))


def node(**labels: str) -> NodeMetadataObject:
    return NodeMetadataObject(metadata=LabeledMetadata(name="n1", labels=labels or None))


async def settled() -> None:
    """What is done in threads takes no virtual time."""
    await later(0.1)


class Bench:
    """A watch whose lists come from the test. applied, published: what it has called, in order."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.applied: list[Effective] = []
        self.published: list[tuple[dict[str, Any], bool]] = []
        self.followed: dict[str, tuple[type[Any], Mapping[str, str], Any]] = {}
        # how often the configurations were listed
        self.lists = 0

        async def follow(
            _: Watches, name: str, kind: type[Any], fields: Mapping[str, str], handler: Any, keep: Any = None
        ) -> None:
            self.followed[name] = kind, fields, handler
            if keep is not None:
                self.keep = keep
                self.lists += 1
            await asyncio.Event().wait()

        monkeypatch.setattr(Watches, "follow", follow)
        self.made = self.again()

    def again(self, on_labels: Callable[[Mapping[str, str]], None] = lambda labels: None) -> ConfigWatch:
        """One that begins with what another has kept."""
        self.followed.clear()
        client, calls = cast(Any, None), (self.applied.append, self._published, on_labels)
        return ConfigWatch(client, "n1", FILE, ["/dev"], self.folder, *calls)

    def _published(self, text: str, is_refused: bool) -> None:
        self.published.append((json.loads(text) if text else {}, is_refused))

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with background(self.made.run()):
            while "node" not in self.followed:
                await asyncio.sleep(0)
            yield

    @asynccontextmanager
    async def knowing(self, *configs: NodeDeviceConfigObject, **labels: str) -> AsyncIterator[None]:
        """It runs, and knows its Node and these."""
        async with self.running():
            await self.node_is(node(**labels))
            await self.configs_are(*configs)
            yield

    async def node_is(self, *objects: NodeMetadataObject) -> None:
        self.followed["node"][2].synced([*objects], 1)
        await settled()

    async def configs_are(self, *objects: NodeDeviceConfigObject) -> None:
        self.followed["configs"][2].synced([self.keep(each) for each in objects], 1)
        await settled()

    async def config_is(self, found: NodeDeviceConfigObject) -> None:
        self.followed["configs"][2].updated(self.keep(found))
        await settled()

    @property
    def names(self) -> list[str]:
        """Of the resources that were applied last."""
        return sorted(names(self.applied[-1].plugins))


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(tmp_path, monkeypatch)


@virtual_time
async def test_the_first_lists_are_waited_for_and_then_decide(bench: Bench) -> None:
    async with bench.running():
        await asyncio.sleep(1)
        assert [*bench.followed] == ["node"], "which configurations are kept depends on the labels of the Node"
        await bench.node_is(node())
        assert {name: found[:2] for name, found in bench.followed.items()} == {
            "node": (NodeMetadataObject, {"metadata.name": "n1"}),
            "configs": (NodeDeviceConfigObject, {}),
        }
        assert bench.applied == []
        await bench.configs_are(config("a", OWN))
        assert bench.names == [BASE, OWN]
        assert bench.applied[-1].is_known
        await asyncio.sleep(60)
    assert len(bench.applied) == 1


@virtual_time
async def test_what_was_known_last_is_there_at_the_next_start(bench: Bench) -> None:
    both = config("a", OWN, selector={"zone": "x"}), config("b", OTHER, selector={"zone": "z"})
    async with bench.knowing(*both, zone="x", other="y"):
        assert bench.names == [BASE, OWN]
    assert names(last_known(FILE, ["/dev"], bench.folder)) == names(bench.applied[-1].plugins)
    # of the labels only what a selector names
    assert json.loads((bench.folder / watch.FILE_NAME).read_text())["labels"] == {"zone": "x"}
    bench.made = bench.again()
    del bench.applied[:]
    async with bench.running():
        assert bench.names == [BASE, OWN]
        assert bench.applied[-1].is_known
        # the same once the API server answers
        await bench.node_is(node(zone="x", other="another"))
        await bench.configs_are(*both)
        assert len(bench.applied) == 1
        await bench.node_is(node(zone="z"))
        assert (bench.names, bench.lists) == ([BASE, OWN], 3), "what was not kept is listed first"
        await bench.configs_are(*both)
        assert bench.names == [BASE, OTHER]


@virtual_time
async def test_a_run_after_a_failure_follows_the_configs_again(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as a file of the agent that could not be opened for a moment."""
    is_full = True

    def failing(*given: Any) -> Effective:
        if is_full and len(bench.applied) == 1:
            raise OSError(28, "No space left on device")
        return effective(*given)

    monkeypatch.setattr(watch, "effective", failing)
    failed = asyncio.create_task(bench.made.run())
    await settled()
    await bench.node_is(node())
    await bench.configs_are(config("a", OWN))
    await bench.config_is(config("b", OTHER))
    with pytest.raises(BaseExceptionGroup, match="unhandled"):
        await failed
    assert bench.names == [BASE, OWN]
    is_full = False
    bench.followed.clear()
    async with bench.knowing(config("a", OWN), config("b", OTHER)):
        assert bench.names == [BASE, OTHER, OWN]


@virtual_time
async def test_each_change_is_applied_logged_and_reported_once(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with bench.knowing(config("a", OWN)):
        handler = bench.followed["configs"][2]
        for _ in range(2):
            await bench.config_is(config("b", OTHER))
        assert (bench.names, len(bench.applied)) == ([BASE, OTHER, OWN], 2)
        # another generation with the same plugins
        await bench.config_is(config("b", OTHER, generation=2))
        assert len(bench.applied) == 2
        assert bench.published[-1][0]["b"]["generation"] == 2
        await bench.config_is(config("b", "kubernetes.io/reserved", generation=3))
        assert bench.names == [BASE, OWN]
        assert bench.published[-1][1]
        handler.deleted(bench.keep(config("b")))
        await settled()
        assert not bench.published[-1][1]
        # what the Node was stays while it is gone
        bench.followed["node"][2].deleted(node())
        assert bench.names == [BASE, OWN]
    lines = [(record.message, vars(record)["config"], vars(record)["generation"]) for record in caplog.records]
    taken = [("configuration taken", name, generation) for name, generation in (("a", 1), ("b", 1), ("b", 2))]
    assert lines == [*taken, ("configuration refused", "b", 3)]
    assert "reserved by Kubernetes" in vars(caplog.records[-1])["error"]


@pytest.mark.parametrize("content", [b"{", b"\xff", b'{"configs": 7}'])
@virtual_time
async def test_what_is_damaged_counts_as_none(content: bytes, bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    file = bench.folder / watch.FILE_NAME
    file.write_bytes(content)
    async with bench.running():
        assert bench.applied == []
        await asyncio.sleep(START_SECONDS)
        assert bench.names == [BASE]
    (record,) = caplog.records
    assert record.message.startswith("cannot read the configurations that were known last")
    assert (vars(record)["path"], bool(vars(record)["error"])) == (str(file), True)


@virtual_time
async def test_what_cannot_be_kept_is_applied_all_the_same(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    file = bench.folder / watch.FILE_NAME
    async with bench.running():
        file.mkdir()
        (file / "x").touch()
        await bench.node_is(node())
        await bench.configs_are(config("a", OWN))
        assert bench.names == [BASE, OWN]
    (record,) = caplog.records
    assert (record.message, vars(record)["path"]) == ("cannot keep configurations", str(file))
    assert vars(record)["error"]


class TestAtTheBound:
    """Texts of all that select the node have a bound: what has the higher priority is taken, whatever the order of arrival."""

    @staticmethod
    def long(name: str, priority: int, share: float) -> NodeDeviceConfigObject:
        return config(name, f"example.com/{name}", priority=priority, filler="x" * int(share * MAX_OCTETS))

    @pytest.mark.parametrize("order", [*permutations(range(4))])
    @virtual_time
    async def test_those_of_the_lowest_priority_are_refused(self, order: tuple[int, ...], bench: Bench) -> None:
        objects = [self.long("a", 1, 0.3), self.long("b", 9, 0.3), self.long("c", 5, 0.6), self.long("d", 0, 0.01)]
        async with bench.knowing(*(objects[number] for number in order)):
            outcomes = bench.published[-1][0]
            # all have an unknown field; those that have no room are refused for their length, and so is what comes after them
            assert {name for name, outcome in outcomes.items() if "KiB" in outcome["refusal"]} == {"a", "d"}
            assert outcomes.keys() == {"a", "b", "c", "d"}
            assert bench.applied[-1].names("example.com/any", ""), "no name of those that are not read ends for good"

    @virtual_time
    async def test_once_there_is_room_they_are_listed_again(self, bench: Bench) -> None:
        first, second = self.long("a", 1, 0.7), self.long("b", 0, 0.7)
        async with bench.knowing(first, second):
            assert bench.lists == 1
            bench.followed["configs"][2].deleted(bench.keep(first))
            await settled()
            assert bench.lists == 2
            await bench.configs_are(second)
            assert "KiB" not in bench.published[-1][0]["b"]["refusal"]

    @virtual_time
    async def test_a_label_that_is_not_known_to_matter_is_taken_to_matter(self, bench: Bench) -> None:
        many = {f"l{n}": "x" for n in range(1000)}
        async with bench.knowing(config("a", OTHER, selector=many)):
            await bench.node_is(node(unrelated="y"))
            assert bench.lists == 2
            await bench.configs_are(config("a", OTHER, selector={"few": "x"}))
            await bench.node_is(node(unrelated="z"))
            assert bench.lists == 2


async def test_a_slow_disk_keeps_no_other_waiting(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file is written in a thread."""
    is_writing, may_end = threading.Event(), threading.Event()

    def slow(path: Path, text: str) -> None:
        is_writing.set()
        assert may_end.wait(60)

    monkeypatch.setattr(watch, "replace_durably", slow)
    async with bench.running():
        bench.followed["node"][2].synced([node()], 1)
        while "configs" not in bench.followed:
            await later(0.01)
        bench.followed["configs"][2].synced([bench.keep(config("a", OWN))], 1)
        # the loop goes on while the disk does not
        while not is_writing.is_set():
            await later(0.01)
        assert bench.names == [BASE, OWN]
        may_end.set()


@virtual_time
async def test_the_labels_count_at_each_change_and_the_gpu_operators_at_the_next_start(bench: Bench) -> None:
    """Also before any configuration is known, and where no selector names it."""
    seen: list[Mapping[str, str]] = []
    bench.made = bench.again(seen.append)
    paused = {GPU_CLIENT_LABEL: "paused-for-driver-upgrade"}
    async with bench.running():
        await bench.node_is(node(zone="x"))
        assert seen == [{"zone": "x"}]
        await bench.node_is(node(zone="x", **paused))
        await bench.configs_are()
        assert seen[1:] == [{"zone": "x", **paused}]
    bench.made = bench.again(lambda labels: seen.append({**labels, "applied": str(len(bench.applied))}))
    del seen[:], bench.applied[:]
    async with bench.running():
        assert seen == [{**paused, "applied": "0"}], "it counts before plugins are applied"
        assert len(bench.applied) == 1


@virtual_time
async def test_the_gpu_operators_label_is_kept_where_configurations_are_not_known(bench: Bench) -> None:
    """The API server lacks their kind, or refuses to list them."""
    paused = {GPU_CLIENT_LABEL: "paused-for-driver-upgrade"}
    async with bench.running():
        await bench.node_is(node(zone="x", **paused))
        await asyncio.sleep(START_SECONDS + 1)
    seen: list[Mapping[str, str]] = []
    bench.made = bench.again(seen.append)
    del bench.applied[:]
    async with bench.running():
        assert (seen, bench.applied) == ([paused], []), "configurations are waited for, as at the first start"
        await bench.node_is(node(zone="x"))
        await bench.configs_are(config("a", OWN, selector={"zone": "x"}))
        assert bench.names == [BASE, OWN]
    assert json.loads((bench.folder / watch.FILE_NAME).read_text())["labels"] == {"zone": "x"}

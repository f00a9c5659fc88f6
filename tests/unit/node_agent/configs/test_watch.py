"""What the node's configurations make of its plugins: at a start, with and without an API server, and at each change."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest
from nodedevice_agent.configs import watch
from nodedevice_agent.configs.effective import Effective
from nodedevice_agent.configs.watch import ConfigWatch, last_known
from nodedevice_agent.kube.informer import Watches
from nodedevice_agent.kube.objects import (
    GenerationMetadata,
    LabeledMetadata,
    NodeDeviceConfigObject,
    NodeMetadataObject,
)
from nodedevice_agent.plugins.settings import GPU_CLIENT_LABEL, PluginSettings, SimulatedSettings

from tests.fakes.background import background
from tests.fakes.virtual_time import virtual_time

OWN, OTHER, BASE = "example.com/own", "example.com/other", "example.com/base"
FILE = PluginSettings(simulated=[SimulatedSettings(BASE)])


def config(
    name: str = "a", *resources: str, generation: int = 1, selector: Mapping[str, str] | None = None, **more: Any
) -> NodeDeviceConfigObject:
    plugins = {"simulated": [{"resourceName": each} for each in resources]}
    spec = {"plugins": plugins, "nodeSelector": dict(selector or {}), **more}
    return NodeDeviceConfigObject(metadata=GenerationMetadata(name=name, generation=generation), spec=spec)


def node(**labels: str) -> NodeMetadataObject:
    return NodeMetadataObject(metadata=LabeledMetadata(name="n1", labels=labels or None))


class Bench:
    """A watch whose lists come from the test. applied, published: what it has called, in order."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.applied: list[Effective] = []
        self.published: list[tuple[dict[str, Any], bool]] = []
        self.followed: dict[str, tuple[type[Any], Mapping[str, str], Any]] = {}

        async def follow(
            _: Watches, name: str, kind: type[Any], fields: Mapping[str, str], handler: Any, **more: bool
        ) -> None:
            self.followed[name] = kind, fields, handler
            await asyncio.Event().wait()

        monkeypatch.setattr(Watches, "follow", follow)
        self.made = self.again()

    def again(self) -> ConfigWatch:
        """One that begins with what another has kept."""
        self.followed.clear()
        return ConfigWatch(cast(Any, None), "n1", FILE, ["/dev"], self.folder, self.applied.append, self._published)

    def _published(self, text: str, is_refused: bool) -> None:
        self.published.append((json.loads(text) if text else {}, is_refused))

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with background(self.made.run()):
            while len(self.followed) < 2:
                await asyncio.sleep(0)
            yield

    def node_is(self, *objects: NodeMetadataObject) -> None:
        self.followed["node"][2].synced([*objects], 1)

    def configs_are(self, *objects: NodeDeviceConfigObject) -> None:
        self.followed["configs"][2].synced([*objects], 1)

    @property
    def names(self) -> list[str]:
        """Of the resources that were applied last."""
        return sorted(self.applied[-1].plugins.resource_names())


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(tmp_path, monkeypatch)


@virtual_time
async def test_the_first_lists_are_waited_for_and_then_decide(bench: Bench) -> None:
    async with bench.running():
        assert {name: found[:2] for name, found in bench.followed.items()} == {
            "node": (NodeMetadataObject, {"metadata.name": "n1"}),
            "configs": (NodeDeviceConfigObject, {}),
        }
        bench.configs_are(config("a", OWN))
        await asyncio.sleep(1)
        assert bench.applied == [], "the labels of the Node are not known yet"
        bench.node_is(node())
        assert bench.names == [BASE, OWN]
        assert bench.applied[-1].is_known
        # nobody waits for them any more
        assert bench.made._known.is_set()
        await asyncio.sleep(60)
    assert len(bench.applied) == 1


@virtual_time
async def test_without_an_api_server_the_file_counts_after_a_moment(bench: Bench) -> None:
    async with bench.running():
        await asyncio.sleep(watch._START_SECONDS - 1)
        assert bench.applied == []
        await asyncio.sleep(2)
        assert (bench.names, bench.applied[-1].is_known) == ([BASE], False)
        assert bench.published == [({}, False)]
        bench.node_is(node())
        bench.configs_are()
        # it is known now that there are none
        assert (bench.names, bench.applied[-1].is_known) == ([BASE], True)


@virtual_time
async def test_what_was_known_last_is_there_at_the_next_start(bench: Bench) -> None:
    async with bench.running():
        bench.node_is(node(zone="x", other="y"))
        bench.configs_are(config("a", OWN, selector={"zone": "x"}), config("b", OTHER, selector={"zone": "z"}))
        assert bench.names == [BASE, OWN]
    assert last_known(FILE, ["/dev"], bench.folder).resource_names() == bench.applied[-1].plugins.resource_names()
    # of the labels only what a selector names
    assert json.loads((bench.folder / watch.FILE_NAME).read_text())["labels"] == {"zone": "x"}
    bench.made = bench.again()
    del bench.applied[:]
    async with bench.running():
        assert bench.names == [BASE, OWN]
        assert bench.applied[-1].is_known
        # the same once the API server answers
        bench.node_is(node(zone="x", other="another"))
        bench.configs_are(config("a", OWN, selector={"zone": "x"}), config("b", OTHER, selector={"zone": "z"}))
        assert len(bench.applied) == 1
        bench.node_is(node(zone="z"))
        assert bench.names == [BASE, OTHER]


@virtual_time
async def test_each_change_is_applied_logged_and_reported_once(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with bench.running():
        bench.node_is(node())
        bench.configs_are(config("a", OWN))
        handler = bench.followed["configs"][2]
        for _ in range(2):
            handler.updated(config("b", OTHER))
        assert (bench.names, len(bench.applied)) == ([BASE, OTHER, OWN], 2)
        # another generation with the same plugins
        handler.updated(config("b", OTHER, generation=2))
        assert len(bench.applied) == 2
        assert bench.published[-1][0]["b"]["generation"] == 2
        handler.updated(config("b", "kubernetes.io/reserved", generation=3))
        assert bench.names == [BASE, OWN]
        assert bench.published[-1][1]
        handler.deleted(config("b"))
        assert not bench.published[-1][1]
        # what the Node was stays while it is gone
        bench.followed["node"][2].deleted(node())
        assert bench.names == [BASE, OWN]
    lines = [(record.message, vars(record)["config"], vars(record)["generation"]) for record in caplog.records]
    assert lines == [
        ("configuration taken", "a", 1),
        ("configuration taken", "b", 1),
        ("configuration taken", "b", 2),
        ("configuration refused", "b", 3),
    ]
    assert "reserved by Kubernetes" in vars(caplog.records[-1])["error"]


@virtual_time
async def test_what_a_configuration_lost_is_logged(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with bench.running():
        bench.node_is(node())
        bench.configs_are(config("b", OWN), config("a", OWN, priority=1))
    assert {vars(record)["config"]: vars(record)["lost"] for record in caplog.records} == {"a": {}, "b": {OWN: "a"}}


@pytest.mark.parametrize("content", [b"{", b"\xff", b'{"configs": 7}'])
@virtual_time
async def test_what_is_damaged_is_as_good_as_nothing(
    content: bytes, bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    file = bench.folder / watch.FILE_NAME
    file.write_bytes(content)
    async with bench.running():
        assert bench.applied == []
        await asyncio.sleep(watch._START_SECONDS)
        assert bench.names == [BASE]
    (record,) = caplog.records
    assert record.message.startswith("cannot read the configurations that were known last")
    assert vars(record)["path"] == str(file)
    assert vars(record)["error"]


@virtual_time
async def test_what_cannot_be_kept_is_applied_all_the_same(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    file = bench.folder / watch.FILE_NAME
    async with bench.running():
        file.mkdir()
        (file / "x").touch()
        bench.node_is(node())
        bench.configs_are(config("a", OWN))
        assert bench.names == [BASE, OWN]
    (record,) = caplog.records
    assert (record.message, vars(record)["path"]) == ("cannot keep configurations", str(file))
    assert vars(record)["error"]


@virtual_time
async def test_the_labels_count_at_each_change_and_the_gpu_operators_at_the_next_start(bench: Bench) -> None:
    """Also before any configuration is known, and where no selector names it."""
    seen: list[Mapping[str, str]] = []
    bench.made = ConfigWatch(
        cast(Any, None), "n1", FILE, [], bench.folder, bench.applied.append, bench._published, seen.append
    )
    paused = {GPU_CLIENT_LABEL: "paused-for-driver-upgrade"}
    async with bench.running():
        bench.node_is(node(zone="x"))
        assert seen == [{"zone": "x"}]
        bench.node_is(node(zone="x", **paused))
        bench.configs_are()
        assert seen[1:] == [{"zone": "x", **paused}]
    bench.followed.clear()
    bench.made = ConfigWatch(
        cast(Any, None), "n1", FILE, [], bench.folder, lambda _: seen.append({}), bench._published, seen.append
    )
    del seen[:]
    async with bench.running():
        assert seen == [paused, {}], "it counts before plugins are applied"

"""kopf against an API server in this process: what its handlers do, what they write, and what happens when it ends."""

import logging
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp.web
import pytest
from nodedevice_api import names
from nodedevice_api.names import ConfigReason
from nodedevice_common.tasks import problems
from nodedevice_kube.api_errors import ApiError, Forbidden, NotFound, Unauthorized, Unreachable
from nodedevice_operator.configs.controller import ConfigController, ConfigsApi
from nodedevice_operator.configs.kopf_run import KopfRun
from nodedevice_operator.informers.store import Store
from nodedevice_operator.kube import credentials
from nodedevice_operator.kube.health import ApiHealth
from nodedevice_operator.kube.write_fence import WriteFence

from hack.measure import api_server
from hack.measure.api_server import ApiServer
from tests.fakes.background import background
from tests.fakes.log_lines import log_lines
from tests.fakes.polling import until

CONFIGS = f"/apis/{names.API_VERSION}/{names.NODE_DEVICE_CONFIGS}"
EVENTS = ("/api/v1", "events")


class Api(ConfigsApi):
    """Each probe is refused with the next of these, and granted after the last."""

    def __init__(self, *refusals: ApiError | None) -> None:
        self.refusals = list(refusals)

    async def probe(self) -> None:
        refusal = self.refusals.pop(0) if self.refusals else None
        if refusal is not None:
            raise refusal


class Seen(ConfigController):
    """Keeps the generations that kopf's handlers pass."""

    def __init__(self, fence: WriteFence) -> None:
        super().__init__(Api(), fence, Store())
        self.generations: dict[str, int] = {}

    def seen(self, name: str, uid: str, generation: int, status: dict[str, Any]) -> None:
        self.generations[name] = generation

    def gone(self, name: str, uid: str) -> None:
        if uid == f"uid of {name}":
            del self.generations[name]

    def all_gone(self) -> None:
        self.generations.clear()


class Server(ApiServer):
    """opened: how many watches were opened."""

    def __init__(self) -> None:
        super().__init__()
        self.opened = 0

    async def _watch(self, *given: Any) -> aiohttp.web.StreamResponse:
        self.opened += 1
        return await super()._watch(*given)

    def send(self, line: bytes) -> None:
        """In each watch."""
        for _, _, queue in self._watchers:
            queue.put_nowait(line)

    def remove(self, name: str) -> None:
        kind = (f"/apis/{names.API_VERSION}", names.NODE_DEVICE_CONFIGS)
        self._publish(kind, "DELETED", self.objects[kind].pop(("", name)))


class Bench:
    """An operator's part about configurations, which does not lead at first, and the API server."""

    def __init__(self, server: Server, folder: Path, *refusals: ApiError | None) -> None:
        self.server, self.fence, self.writes = server, WriteFence(), list[str]()
        server.on_write = lambda verb, path: self.writes.append(f"{verb} {path}")
        self.controller = Seen(self.fence)
        login = credentials.load(str(server.kubeconfig(folder / "kubeconfig")))
        health = ApiHealth(server.url)
        pauses = {"again_seconds": 0.05, "relist_seconds": 0.05}
        self.run = KopfRun(Api(*refusals), self.controller, login, health, self.fence, **pauses)

    def put(self, name: str, generation: int = 1, reason: str = "") -> None:
        """Write a configuration as others would. reason: of its condition Accepted."""
        body: dict[str, Any] = {
            "apiVersion": names.API_VERSION,
            "kind": names.NODE_DEVICE_CONFIG,
            "metadata": {"name": name, "uid": f"uid of {name}", "generation": generation},
            "spec": {"priority": generation},
        }
        if reason:
            condition = {"type": "Accepted", "status": "True", "reason": reason, "message": f"it is {reason}"}
            body["status"] = {"observedGeneration": generation, "conditions": [condition]}
        self.server.put(CONFIGS, body)

    async def until_seen(self, **generations: int) -> None:
        await until(lambda: self.controller.generations == generations)

    def events(self) -> list[tuple[str, str, str]]:
        found = self.server.objects.get(EVENTS, {}).values()
        return [(each["type"], each["reason"], each["involvedObject"]["name"]) for each in found]

    async def until_watched(self) -> None:
        await until(lambda: self.server.opened == 1)


@pytest.fixture(autouse=True)
def served_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(api_server._KINDS["nodedevice.io"][1], names.NODE_DEVICE_CONFIGS, names.NODE_DEVICE_CONFIG)


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    made = Server()
    async with made.serving():
        yield made


@pytest.fixture
def bench(server: Server, tmp_path: Path) -> Bench:
    return Bench(server, tmp_path)


async def test_the_controller_gets_each_change_and_nothing_is_written(bench: Bench) -> None:
    bench.put("a")
    async with background(bench.run.work()):
        await bench.until_seen(a=1)
        await bench.until_watched()
        bench.put("a", 2)
        bench.put("b")
        await bench.until_seen(a=2, b=1)
        bench.server.send(b'{"type":"DELETED","object":{"metadata":{"name":"a","uid":"an earlier one"}}}\n')
        bench.server.remove("a")
        await bench.until_seen(b=1)
    assert bench.writes == []


async def test_an_object_that_no_api_server_sends_is_left_out(bench: Bench) -> None:
    bench.put("a")
    async with background(bench.run.work()):
        await bench.until_watched()
        for metadata in (b'{"name":"x","uid":"1"}', b'{"name":"x","uid":"1","generation":"one"}'):
            bench.server.send(b'{"type":"ADDED","object":{"metadata":%b}}\n' % metadata)
        bench.put("b")
        await bench.until_seen(a=1, b=1)
    assert problems() == ()


async def test_a_result_is_one_event_of_the_leader_and_a_standby_writes_nothing(bench: Bench) -> None:
    bench.put("a", reason=ConfigReason.TAKEN)
    async with background(bench.run.work()):
        await bench.until_seen(a=1)
        await bench.until_watched()
        bench.put("a", 2, reason=ConfigReason.REFUSED)
        await bench.until_seen(a=2)
        # its other handler has run by then
        bench.put("b")
        await bench.until_seen(a=2, b=1)
        assert bench.writes == []
        bench.fence.open_for_good()
        for generation, reason in ((3, ConfigReason.TAKEN), (4, ConfigReason.TAKEN), (5, ConfigReason.PENDING)):
            bench.put("a", generation, reason=reason)
            await bench.until_seen(a=generation, b=1)
        bench.put("a", 6, reason=ConfigReason.REFUSED)
        await until(lambda: len(bench.events()) == 2)
    assert bench.events() == [("Normal", ConfigReason.TAKEN, "a"), ("Warning", ConfigReason.REFUSED, "a")]
    assert set(bench.writes) == {"POST /api/v1/namespaces/default/events"}


async def test_it_ends_with_the_program_and_leaves_no_thread(bench: Bench) -> None:
    def are_running() -> bool:
        return "kopf" in {thread.name for thread in threading.enumerate()}

    async with background(bench.run.work()):
        await bench.until_watched()
        assert are_running()
    await until(lambda: not are_running())


async def test_why_configurations_are_not_served_is_logged_when_it_changes(
    server: Server, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    # one that is away is not asked about its kinds
    kinds = (NotFound, NotFound, Unreachable, Unauthorized, NotFound, Forbidden)
    bench = Bench(server, tmp_path, *map(_refusal, kinds))
    bench.put("a")
    async with background(bench.run.work()):
        await bench.until_seen(a=1)
    without = "NodeDeviceConfigs cannot be read; retrying"
    missing = (
        "CRD NodeDeviceConfig is not installed. "
        "Run: helm upgrade, or as an administrator nodedevice-operator crds apply"
    )
    assert [line for line in log_lines(caplog.records) if "NodeDeviceConfigs" in line[1]] == [
        ("WARNING", without, {"error": missing}),
        ("WARNING", without, {"error": "the roles of this release are missing. Run: helm upgrade"}),
        ("INFO", "NodeDeviceConfigs can be read", {}),
    ]


def _refusal(kind: type[ApiError]) -> ApiError:
    return kind("GET", "nodedeviceconfigs", "no")

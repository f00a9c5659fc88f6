"""kopf against an API server in this process: what its handlers do, what they write, and what happens when it ends."""

import asyncio
import logging
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp.web
import pytest
from nodedevice_api import names
from nodedevice_api.names import ConfigReason
from nodedevice_common import threads
from nodedevice_common.tasks import problems
from nodedevice_kube.api_errors import ApiError, Forbidden, NotFound, Unauthorized, Unreachable
from nodedevice_kube.credentials import Access
from nodedevice_operator.configs import kopf_run
from nodedevice_operator.configs.controller import ConfigController, ConfigsApi
from nodedevice_operator.configs.kopf_run import KopfRun
from nodedevice_operator.errors import CredentialsError
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


class Server(ApiServer):
    """refusals: the next watches are refused with these statuses. opened: how many watches were opened."""

    def __init__(self) -> None:
        super().__init__()
        self.refusals, self.opened = list[int](), 0

    async def _watch(self, *given: Any) -> aiohttp.web.StreamResponse:
        if self.refusals:
            return api_server._status(self.refusals.pop(0))
        self.opened += 1
        return await super()._watch(*given)


class Bench:
    """An operator's part about configurations, which does not lead at first, and the API server."""

    def __init__(self, server: Server, folder: Path, *refusals: ApiError | None) -> None:
        self.server, self.fence, self.writes = server, WriteFence(), list[str]()
        server.on_write = lambda verb, path: self.writes.append(f"{verb} {path}")
        self.controller = ConfigController(Api(), self.fence, Store())
        login = credentials.load(str(server.kubeconfig(folder / "kubeconfig")))
        self.health = ApiHealth(server.url)
        self.run = KopfRun(Api(*refusals), self.controller, login, self.health, self.fence)

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

    def generations(self) -> dict[str, int]:
        return {name: known.generation for name, known in self.controller._known.items()}

    async def until_seen(self, **generations: int) -> None:
        await until(lambda: self.generations() == generations)

    def events(self) -> list[tuple[str, str, str]]:
        found = self.server.objects.get(EVENTS, {}).values()
        return [(each["type"], each["reason"], each["involvedObject"]["name"]) for each in found]

    def send(self, line: bytes) -> None:
        """In each watch."""
        for _, _, queue in self.server._watchers:
            queue.put_nowait(line)

    async def until_watched(self, times: int = 1) -> None:
        """times: so many watches were opened."""
        await until(lambda: self.server.opened == times)


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(api_server._KINDS["nodedevice.io"][1], names.NODE_DEVICE_CONFIGS, names.NODE_DEVICE_CONFIG)
    monkeypatch.setattr(kopf_run, "_AGAIN_SECONDS", 0.05)
    monkeypatch.setattr(kopf_run, "_RELIST_SECONDS", 0.05)


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    made = Server()
    async with made.serving():
        yield made


@pytest.fixture
def bench(server: Server, tmp_path: Path) -> Bench:
    return Bench(server, tmp_path)


def failures(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    """The fields of the lines about an end of kopf."""
    return [each[2] for each in log_lines(caplog.records) if each[1] == "watch of NodeDeviceConfigs failed; relisting"]


@asynccontextmanager
async def beside() -> AsyncIterator[None]:
    """A task that begins later than kopf, as those of the operator may, and is untouched when kopf ends."""
    task = asyncio.create_task(asyncio.Event().wait())
    yield
    assert not task.done()
    task.cancel()


async def test_the_controller_gets_each_change_and_nothing_is_written(bench: Bench) -> None:
    bench.put("a")
    async with background(bench.run.work()):
        await bench.until_seen(a=1)
        await bench.until_watched()
        bench.put("a", 2)
        bench.put("b")
        await bench.until_seen(a=2, b=1)
        bench.send(b'{"type":"DELETED","object":{"metadata":{"name":"a","uid":"an earlier one"}}}\n')
        bench.server._publish(
            ("/apis/nodedevice.io/v1alpha1", names.NODE_DEVICE_CONFIGS), "DELETED", _stored(bench, "a")
        )
        await bench.until_seen(b=1)
    assert bench.writes == []


def _stored(bench: Bench, name: str) -> dict[str, Any]:
    return bench.server.objects["/apis/nodedevice.io/v1alpha1", names.NODE_DEVICE_CONFIGS].pop(("", name))


async def test_an_object_that_no_api_server_sends_is_left_out(bench: Bench) -> None:
    bench.put("a")
    async with background(bench.run.work()):
        await bench.until_watched()
        for metadata in (b'{"name":"x","uid":"1"}', b'{"name":"x","uid":"1","generation":"one"}'):
            bench.send(b'{"type":"ADDED","object":{"metadata":%b}}\n' % metadata)
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
        assert bench.writes == []
        bench.fence.open_for_good()
        for generation, reason in ((3, ConfigReason.TAKEN), (4, ConfigReason.TAKEN), (5, ConfigReason.PENDING)):
            bench.put("a", generation, reason=reason)
            await bench.until_seen(a=generation)
        bench.put("a", 6, reason=ConfigReason.REFUSED)
        await until(lambda: len(bench.events()) == 2)
    assert bench.events() == [("Normal", ConfigReason.TAKEN, "a"), ("Warning", ConfigReason.REFUSED, "a")]
    assert set(bench.writes) == {"POST /api/v1/namespaces/default/events"}


async def test_an_event_passes_the_fence_at_the_moment_at_which_it_is_sent(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lead may be lost between the handler and the request."""
    is_open, asked = iter((True,)), list[str]()
    monkeypatch.setattr(WriteFence, "is_open", property(lambda _: next(is_open, False)))
    check = WriteFence.check

    def checked(fence: WriteFence, verb: str, what: str) -> None:
        asked.append(verb)
        check(fence, verb, what)

    monkeypatch.setattr(WriteFence, "check", checked)
    bench.put("a")
    async with background(bench.run.work()):
        await bench.until_watched()
        bench.put("a", 2, reason=ConfigReason.REFUSED)
        await until(lambda: asked == ["POST"])
        # kopf goes on
        bench.put("b")
        await bench.until_seen(a=2, b=1)
    assert asked == ["POST"]
    assert bench.writes == []


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(b'{"type":"ERROR","object":{"code":500,"message":"etcd is away"}}\n', id="ERROR"),
        pytest.param(b"<html>\n", id="no JSON"),
        pytest.param(b'{"type":"ADDED"}\n', id="no object"),
    ],
)
async def test_kopf_is_started_again_and_ends_no_other_task(
    bench: Bench, line: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    bench.put("a")
    bench.fence.open_for_good()
    async with background(bench.run.work()):
        await bench.until_watched()
        async with beside():
            for times in (2, 3):
                bench.send(line)
                await bench.until_watched(times)
                bench.put("a", times)
                await bench.until_seen(a=times)
            assert bench.fence.is_open
    [failed] = failures(caplog)
    assert "\n" not in failed["error"]


async def test_kopf_is_started_again_after_http_410(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    bench.server.refusals = [410]
    bench.put("a")
    async with background(bench.run.work()), beside():
        await bench.until_watched()
        bench.put("a", 2)
        await bench.until_seen(a=2)
    assert len(failures(caplog)) == 1


async def test_a_kind_that_goes_and_comes_is_served_again(bench: Bench) -> None:
    bench.put("a")
    async with background(bench.run.work()):
        await bench.until_watched()
        bench.run.api = Api(*[_refusal(NotFound)] * 3)
        bench.server.refusals = [404]
        bench.send(b"<html>\n")
        await bench.until_seen()
        await bench.until_seen(a=1)


@pytest.mark.parametrize("has_begun", [True, False])
async def test_it_ends_with_the_program_and_leaves_no_thread(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, *, has_begun: bool
) -> None:
    def are_running() -> bool:
        return "kopf" in {thread.name for thread in threading.enumerate()}

    start, begin = threads.start, threading.Event()
    monkeypatch.setattr(threads, "start", lambda run, name: start(lambda: (begin.wait(), run()), name))
    monkeypatch.setattr(kopf_run, "_END_SECONDS", 0.0)
    async with background(bench.run.work()):
        if has_begun:
            begin.set()
            await bench.until_watched()
        await until(are_running)
    begin.set()
    await until(lambda: not are_running())


async def test_without_a_thread_it_is_tried_again(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def start(*_: Any) -> None:
        raise OSError(threads.NO_THREAD)

    monkeypatch.setattr(threads, "start", start)
    with pytest.raises(OSError, match="no thread can be started"):
        await bench.run.work()


async def test_credentials_that_cannot_be_had_are_asked_for_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures = iter((CredentialsError("the log-in program has ended with 1"),))
    access = credentials.Credentials.access

    async def failing(login: credentials.Credentials) -> Access:
        for failure in failures:
            raise failure
        return await access(login)

    monkeypatch.setattr(credentials.Credentials, "access", failing)
    monkeypatch.setattr("nodedevice_operator.configs.handlers._LOGIN_RETRY_SECONDS", 0.01)
    bench.put("a")
    async with background(bench.run.work()):
        await bench.until_seen(a=1)


async def test_why_configurations_are_not_served_is_logged_when_it_changes(
    server: Server, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    kinds = [None, NotFound, NotFound, Unreachable, Unauthorized, NotFound, Forbidden, None, Unreachable, None]
    bench = Bench(server, tmp_path, *(_refusal(kind) if kind is not None else None for kind in kinds))
    found = [await bench.run._can_be_read() for _ in kinds]
    # one that is away is not asked about its kinds
    assert found == [True, False, False, False, False, False, False, True, True, True]
    without = "NodeDeviceConfigs cannot be read; retrying"
    missing = (
        "CRD NodeDeviceConfig is not installed. "
        "Run: helm upgrade, or as an administrator nodedevice-operator crds apply"
    )
    assert log_lines(caplog.records) == [
        ("WARNING", without, {"error": missing}),
        ("WARNING", without, {"error": "the roles of this release are missing. Run: helm upgrade"}),
        ("INFO", "NodeDeviceConfigs can be read", {}),
    ]


def _refusal(kind: type[ApiError]) -> ApiError:
    return kind("GET", "nodedeviceconfigs", "no")

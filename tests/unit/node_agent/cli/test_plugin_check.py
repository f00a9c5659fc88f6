"""`nodedevice-agent plugin check` with real plugins on real sockets: sound ones, and one for each mistake."""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from click.testing import CliRunner
from nodedevice_agent.cli import plugin as command
from nodedevice_agent.cli import plugin_probe
from nodedevice_agent.cli.plugin_findings import Finding, Severity, exit_status
from nodedevice_agent.cli.plugin_probe import Probe, Registration, check_plugin
from nodedevice_agent.deviceplugin import connection
from nodedevice_agent.lib.filesystem import is_served
from nodedevice_agent.plugins.settings import PluginSettings
from nodedevice_agent.plugins.simulated.settings import SimulatedSettings
from nodedevice_api.upstream.kubelet.deviceplugin.v1beta1 import api_pb2

from tests.fakes.hosted_manager import hosted
from tests.fakes.plugin import FakeDevice, FakePlugin, Knobs, RpcFailure
from tests.fakes.plugin_process import plugin_process
from tests.fakes.polling import until
from tests.fakes.sockets import listening
from tests.robustness.fuzz.raw_plugin import RawPlugin

Serve = Callable[[FakePlugin], Awaitable[Path]]
OK, SKIPPED, WARNING, ERROR = Severity.OK, Severity.SKIPPED, Severity.WARNING, Severity.ERROR
FAILURE = RpcFailure(grpc.StatusCode.INTERNAL, "out\nof\x1b[31m order")
DEVICE = {"a": FakeDevice(), "b": FakeDevice()}


@pytest.fixture(autouse=True)
def short_deadlines(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plugin that hangs is waited for as briefly as a busy machine allows."""
    for name in ("DIAL", "OPTIONS", "PREFERRED", "ALLOCATE", "PRE_START"):
        monkeypatch.setattr(connection, f"{name}_SECONDS", 5.0)
    monkeypatch.setattr(plugin_probe, "REGISTER_SECONDS", 20.0)
    monkeypatch.setattr(plugin_probe, "_RESTART_SECONDS", 0.1)


@pytest.fixture
async def serve(tmp_path: Path) -> AsyncIterator[Serve]:
    """Start a plugin. Returns its socket."""
    plugins: list[FakePlugin] = []

    async def serve(plugin: FakePlugin) -> Path:
        await plugin.start(tmp_path)
        plugins.append(plugin)
        return plugin.socket_path

    yield serve
    for plugin in plugins:
        await plugin.stop()


async def findings_of(socket: Path, **probe: Any) -> list[Finding]:
    return [finding async for finding in check_plugin(Probe(socket, **{"watch_seconds": 0.2, **probe}))]


def problems(findings: list[Finding]) -> list[tuple[str, Severity]]:
    assert all(finding.remedy for finding in findings if finding.severity in (WARNING, ERROR))
    return [(f.check, f.severity) for f in findings if f.severity not in (OK, SKIPPED)]


def text_of(findings: list[Finding], check: str) -> str:
    return " ".join(finding.text for finding in findings if finding.check == check)


# -- sound plugins -------------------------------------------------------------------------------------------------------


async def test_a_sound_plugin(serve: Serve) -> None:
    files = api_pb2.ContainerAllocateResponse(
        devices=[api_pb2.DeviceSpec(container_path="/dev/x", host_path="/dev/null", permissions="rw")],
        mounts=[api_pb2.Mount(container_path="/x", host_path="/")],
    )
    plugin = FakePlugin(
        devices={"a": FakeDevice(numa_nodes=(0,)), "b": FakeDevice(healthy=False)},
        pre_start_required=True,
        preferred_available=True,
        knobs=Knobs(allocate_answer=lambda ids: files),
    )
    findings = await findings_of(await serve(plugin), may_allocate=True)
    assert {f.severity for f in findings} == {OK}
    assert [f.check for f in findings] == [
        *("options", "first list", "list size", "device IDs", "health", "topology", "second stream"),
        *("GetPreferredAllocation", "Allocate", "device files", "mounts", "PreStartContainer", "stream"),
    ]
    assert [call.device_ids for call in plugin.calls_of("Allocate")] == [("a",)]
    assert exit_status(findings) == 0


async def test_nothing_that_may_have_effects_is_called_unasked(serve: Serve) -> None:
    plugin = FakePlugin(devices=DEVICE, pre_start_required=True)
    findings = await findings_of(await serve(plugin))
    assert problems(findings) == []
    assert {call.method for call in plugin.calls} == {"GetDevicePluginOptions", "ListAndWatch"}
    assert "--allocate" in text_of(findings, "Allocate")


async def test_the_agents_own_plugins(tmp_path: Path) -> None:
    async with hosted(tmp_path) as manager:
        manager.configure(PluginSettings(simulated=[SimulatedSettings(resource_name="example.com/gpu", count=2)]))
        await manager.until(lambda: manager.available("example.com/gpu") == 2)
        [socket] = [path for path in manager.plugin_dir.glob("*.sock") if path.name != "kubelet.sock"]
        findings = await findings_of(socket, may_allocate=True)
    assert problems(findings) == []


# -- one mistake each ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """A plugin with one mistake, and what is reported. text: a part of it."""

    plugin: Callable[[], FakePlugin]
    check: str
    severity: Severity
    text: str


def _raw(*devices: api_pb2.Device) -> Callable[[], FakePlugin]:
    return lambda: FakePlugin(knobs=Knobs(raw_list=list(devices)))


def _plain(device_id: str = "", health: str = "Healthy") -> api_pb2.Device:
    return api_pb2.Device(ID=device_id, health=health)


def _on(device_id: str, *nodes: int) -> api_pb2.Device:
    found = _plain(device_id)
    found.topology.nodes.extend(api_pb2.NUMANode(ID=node) for node in nodes)
    return found


def _with(**knobs: Any) -> Callable[[], FakePlugin]:
    return lambda: FakePlugin(devices=DEVICE, preferred_available=True, pre_start_required=True, knobs=Knobs(**knobs))


def _allocating(**response: Any) -> Callable[[], FakePlugin]:
    return lambda: FakePlugin(
        devices=DEVICE, knobs=Knobs(allocate_answer=lambda ids: api_pb2.ContainerAllocateResponse(**response))
    )


def _file(host_path: str, permissions: str = "rw") -> api_pb2.DeviceSpec:
    return api_pb2.DeviceSpec(container_path="/dev/x", host_path=host_path, permissions=permissions)


def _cdi(name: str) -> list[api_pb2.CDIDevice]:
    return [api_pb2.CDIDevice(name=name)]


CASES = {
    "options fail": Case(_with(options_error=FAILURE), "options", ERROR, "INTERNAL: out of?[31m order"),
    "no stream": Case(_with(stream_end="at_once", stream_error=FAILURE), "first list", ERROR, "INTERNAL"),
    "stream ends": Case(_with(stream_end="after_first"), "stream", ERROR, "ended without an error"),
    "flood": Case(_with(is_flooding=True), "stream", WARNING, "further lists"),
    "no device": Case(_raw(), "first list", WARNING, "empty"),
    "listed twice": Case(
        _raw(_plain("a"), _plain("a", "Unhealthy")),
        *("device IDs", ERROR, "1 listed more than once and counted once ('a')"),
    ),
    "long ID": Case(_raw(_plain("a" * 64)), "device IDs", WARNING, "(64 characters)"),
    "empty ID": Case(_raw(_plain()), "device IDs", WARNING, "escaped:"),
    "odd health": Case(_raw(_plain("a", "healthy")), "health", WARNING, "a ('healthy')"),
    "negative node": Case(_raw(_on("a", -1)), "topology", ERROR, "a (node -1)"),
    "no node": Case(_raw(_on("a")), "topology", WARNING, "aligns with no node"),
    "unknown node": Case(_raw(_on("a", 4095)), "topology", WARNING, "NUMA nodes 4095"),
    "large list": Case(_raw(*(_plain(f"{i:063}") for i in range(60_000))), "list size", ERROR, "drops the plugin"),
    "too many devices": Case(_raw(*(_plain(str(i)) for i in range(131_073))), "list size", ERROR, "131072 devices"),
    "larger than the agent reads": Case(_raw(_plain("a" * 17_000_000)), "first list", ERROR, "RESOURCE_EXHAUSTED"),
    "prefers others": Case(_with(preferred_answer=["a", "z"]), "GetPreferredAllocation", ERROR, "not available: z"),
    "prefers too few": Case(
        _with(preferred_answer=["a"]), "GetPreferredAllocation", WARNING, "1 devices for a size of 2"
    ),
    "allocation fails": Case(_with(allocate_error=FAILURE), "Allocate", ERROR, "INTERNAL"),
    "no response": Case(_with(allocate_empty=True), "Allocate", ERROR, "0 container responses"),
    "empty response": Case(_allocating(), "Allocate", WARNING, "the container gets nothing"),
    "large response": Case(_allocating(envs={"A": "x" * 300_000}), "Allocate", ERROR, "exceeds the limit of 262144"),
    "many entries": Case(_allocating(envs={f"A{i}": "" for i in range(20_000)}), "Allocate", ERROR, "20000 entries"),
    "missing file": Case(_allocating(devices=[_file("/dev/none")]), "device files", ERROR, "/dev/none: missing"),
    "plain file": Case(_allocating(devices=[_file("/etc/passwd")]), "device files", WARNING, "not a device node"),
    "relative file": Case(_allocating(devices=[_file("dev/null")]), "device files", ERROR, "not an absolute path"),
    "permissions": Case(_allocating(devices=[_file("/dev/null", "rwx")]), "device files", ERROR, "'rwx'"),
    "missing mount": Case(
        _allocating(mounts=[api_pb2.Mount(container_path="/x", host_path="/none")]), "mounts", WARNING, "/none: missing"
    ),
    "no CDI name": Case(_allocating(cdi_devices=_cdi("gpu=0")), "CDI names", ERROR, "vendor/class=device"),
    "unknown CDI device": Case(_allocating(cdi_devices=_cdi("a.b/c=0")), "CDI names", ERROR, "in no valid file"),
    "pre-start fails": Case(_with(pre_start_error=FAILURE), "PreStartContainer", ERROR, "INTERNAL"),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
async def test_a_mistake_is_found_with_its_remedy(serve: Serve, case: Case) -> None:
    findings = await findings_of(await serve(case.plugin()), may_allocate=True, watch_seconds=0.5)
    assert (case.check, case.severity) in problems(findings)
    assert case.text in text_of(findings, case.check)
    assert exit_status(findings) >= (2 if case.severity is ERROR else 1)


@pytest.mark.parametrize("gate", ["options", "preferred", "allocate", "pre_start"])
async def test_a_plugin_that_hangs_is_given_up(serve: Serve, monkeypatch: pytest.MonkeyPatch, gate: str) -> None:
    monkeypatch.setattr(connection, f"{gate.upper()}_SECONDS", 0.3)
    never = asyncio.Event()
    plugin = _with(**{f"{gate}_gate": never})()
    findings = await findings_of(await serve(plugin), may_allocate=True)
    assert exit_status(findings) == 2
    never.set()


async def test_a_plugin_that_never_lists(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugin_probe, "FIRST_LIST_SECONDS", 0.3)

    class Silent(FakePlugin):
        async def lists(self) -> AsyncIterator[api_pb2.ListAndWatchResponse]:
            await asyncio.Event().wait()
            yield api_pb2.ListAndWatchResponse()

    findings = await findings_of(await serve(Silent()))
    assert problems(findings) == [("first list", ERROR)]


async def test_a_plugin_that_lists_once_in_its_life(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """As with a queue of changes that all streams share."""
    monkeypatch.setattr(plugin_probe, "FIRST_LIST_SECONDS", 1.0)

    class Once(FakePlugin):
        async def lists(self) -> AsyncIterator[api_pb2.ListAndWatchResponse]:
            if self.lists_sent:
                await asyncio.Event().wait()
            async for listed in super().lists():
                yield listed

    findings = await findings_of(await serve(Once(devices=DEVICE)))
    assert problems(findings) == [("second stream", ERROR)]


async def test_a_socket_that_never_speaks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "DIAL_SECONDS", 0.3)
    with listening(tmp_path / "a.sock"):
        assert problems(await findings_of(tmp_path / "a.sock")) == [("options", ERROR)]


@pytest.mark.parametrize("octets", [b"\xff" * 100, b"\x0a\x7f"], ids=["no protobuf", "cut off"])
async def test_lists_that_are_no_messages(tmp_path: Path, octets: bytes) -> None:
    plugin = RawPlugin(tmp_path / "a.sock")
    plugin.answers["ListAndWatch"] = [octets]
    await plugin.start()
    findings = await findings_of(plugin.socket)
    await plugin.stop()
    assert problems(findings) == [("first list", ERROR)]


async def test_a_pod_that_sees_no_files_of_the_host_skips_them(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    socket = await serve(CASES["missing file"].plugin())
    findings = await findings_of(socket, may_allocate=True)
    assert "--host-root" in text_of(findings, "mounts")
    assert problems(await findings_of(socket, may_allocate=True, host_root="/")) == []
    assert problems(findings) == []


# -- registration --------------------------------------------------------------------------------------------------------


async def registered(directory: Path) -> list[Finding]:
    def others(socket: Path) -> AsyncIterator[Finding]:
        return check_plugin(Probe(socket, watch_seconds=0.1))

    return [finding async for finding in Registration(directory).check(others)]


async def test_a_plugin_that_registers_again(tmp_path: Path) -> None:
    async with plugin_process(tmp_path, "example.com/fake", 2):
        findings = await registered(tmp_path)
    assert problems(findings) == []
    assert (findings[0].check, findings[-1].check) == ("registration", "registration again")
    assert not (tmp_path / "kubelet.sock").exists()


@pytest.mark.parametrize(
    ("resource_name", "check", "words"),
    [
        pytest.param("example.com/fake", "registration again", "after a restart of the kubelet", id="accepted"),
        pytest.param("fake", "registration", "must be domain/name", id="rejected"),
    ],
)
async def test_a_plugin_that_registers_once(
    resource_name: str, check: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plugin_probe, "REGISTER_SECONDS", 3.0)
    plugin = FakePlugin(resource_name, DEVICE)

    async def join() -> None:
        await until(lambda: is_served(tmp_path / "kubelet.sock"))
        with suppress(grpc.aio.AioRpcError):
            await plugin.join(tmp_path)

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(join())
        findings = await registered(tmp_path)
    await plugin.stop()
    assert problems(findings) == [(check, ERROR)]
    assert words in text_of(findings, check)


async def test_a_directory_that_is_served_is_left_to_its_kubelet(tmp_path: Path) -> None:
    async with hosted(tmp_path) as manager:
        assert problems(await registered(manager.plugin_dir)) == [("registration", ERROR)]


# -- the command ---------------------------------------------------------------------------------------------------------


def enter(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(command.plugin, ["check", *arguments])
    return done.exit_code, done.output


async def test_the_command_prints_nothing_raw(serve: Serve) -> None:
    """Of a plugin's error with line breaks and control characters, and of a device ID that is too long."""
    plugin = _with(preferred_error=FAILURE)()
    plugin.devices = {"a": FakeDevice(), "b" * 5000: FakeDevice()}
    _, output = await asyncio.to_thread(enter, str(await serve(plugin)))
    assert "out of?[31m order" in output
    assert all(line.isprintable() and len(line) < 500 for line in output.splitlines())


def test_the_command_prints_a_line_for_each_check(tmp_path: Path) -> None:
    status, output = enter(str(tmp_path / "none.sock"))
    assert status == 2
    assert re.match(r"error    options +Dialling .* does not exist .*\. Serve the DevicePlugin service", output)
    assert output.splitlines()[-1] == "errors: 1, warnings: 0, skipped: 1"


@pytest.mark.parametrize(
    ("sockets", "arguments", "words"),
    [
        pytest.param((), ("{dir}",), "name the plugin's socket, or pass --register", id="a directory"),
        pytest.param(("a", "b"), ("{dir}", "--register"), "other sockets (a, b)", id="several sockets"),
        pytest.param(("a",), ("{dir}/b", "--register"), "other sockets (a)", id="another socket"),
        pytest.param((), ("{dir}/none/b", "--register"), "No such file", id="no directory"),
    ],
)
def test_what_cannot_be_checked(
    tmp_path: Path, sockets: tuple[str, ...], arguments: tuple[str, ...], words: str
) -> None:
    opened = [listening(tmp_path / name) for name in sockets]
    status, output = enter(*(each.format(dir=tmp_path) for each in arguments))
    assert (status, words in " ".join(output.split())) == (2, True)
    assert all((tmp_path / name).exists() for name in sockets)
    for each in opened:
        each.close()

"""The plugins of docs/write-a-device-plugin.md, run as their authors run them, with the agent's own registration socket."""

import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Final

import pytest
from nodedevice_agent.cli.plugin_findings import Finding, Severity
from nodedevice_agent.cli.plugin_probe import Probe, Registration, check_plugin
from nodedevice_agent.devicemanager.container_edits import DeviceFile

from tests.cluster.build.binaries import find
from tests.fakes.hosted_manager import HostedManager, hosted, pod

EXAMPLES: Final = Path(__file__).parents[3] / "docs/plugin-examples"
FILE: Final = DeviceFile("/dev/example", "/dev/null", "rw")


@pytest.fixture(params=["python", "go"])
def command(request: pytest.FixtureRequest, progress: Callable[[str], None]) -> tuple[str, list[str]]:
    """Its resource name, and how it is started."""
    if request.param == "python":
        return "example.com/null", [sys.executable, str(EXAMPLES / "plugin.py")]
    name = "example-device-plugin"
    return "example.com/null-go", [str(find([name], progress)[name])]


@contextmanager
def plugin(command: list[str], directory: Path) -> Iterator[None]:
    directory.mkdir(exist_ok=True)
    with subprocess.Popen([*command, str(directory)], env={**os.environ, "GRPC_VERBOSITY": "NONE"}) as process:
        try:
            yield
        finally:
            process.kill()


@asynccontextmanager
async def agent(folder: Path, resource_name: str, *pods: str) -> AsyncIterator[HostedManager]:
    """One life of an agent, once each of these pods has a device."""
    async with hosted(folder, [pod(uid, resource_name, 1) for uid in pods]) as manager:
        await manager.until(lambda: manager.available(resource_name) == 2 - len(pods))
        book = manager.manager.book
        await manager.until(
            lambda: [a.edits is not None for a in book.of_resource(resource_name)] == [True] * len(pods)
        )
        yield manager


async def test_it_registers_lists_allocates_and_registers_again(tmp_path: Path, command: tuple[str, list[str]]) -> None:
    resource_name, arguments = command
    with plugin(arguments, tmp_path / "plugins"):
        async with agent(tmp_path, resource_name, "one") as manager:
            assert manager.manager.resources[resource_name].is_live
            [held] = manager.manager.book.of_resource(resource_name)
            assert held.edits is not None
            assert (held.pod_uid, held.edits.devices) == ("one", (FILE,))
        async with agent(tmp_path, resource_name, "one", "two") as manager:
            held_by = {a.pod_uid: a.device_ids for a in manager.manager.book.of_resource(resource_name)}
            assert sorted(held_by.values()) == [("null-0",), ("null-1",)]


async def test_the_check_finds_nothing_wrong(tmp_path: Path, command: tuple[str, list[str]]) -> None:
    def others(socket: Path) -> AsyncIterator[Finding]:
        return check_plugin(Probe(socket, may_allocate=True, watch_seconds=1.0))

    _, arguments = command
    with plugin(arguments, tmp_path):
        findings = [finding async for finding in Registration(tmp_path).check(others)]
    assert {finding.severity for finding in findings} <= {Severity.OK, Severity.SKIPPED}
    assert findings[-1].check == "registration again"


def test_the_page_has_the_files_and_their_length() -> None:
    page = (EXAMPLES.parent / "write-a-device-plugin.md").read_text()
    for path, language, most in ((EXAMPLES / "plugin.py", "python", 40), (EXAMPLES / "go/main.go", "go", 50)):
        assert f"```{language}\n{path.read_text()}```" in page, f"copy {path.name} into the page"
        assert len(_statements(path.read_text())) <= most
    assert "v0.37.2" in (EXAMPLES / "go/go.mod").read_text()


def _statements(source: str) -> list[str]:
    """Lines that do something: without imports, comments and blank lines."""
    lines = [line.strip() for line in source.splitlines()]
    begin = next(i for i, line in enumerate(lines) if line.startswith(("type plugin", "DEVICES")))
    return [line for line in lines[begin:] if line and not line.startswith(("#", "//"))]

"""The commands that do one thing and end, without a cluster: each says why in a sentence."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import pytest
from click.testing import CliRunner
from nodedevice_operator.__main__ import main

from tests.fakes.virtual_time import VirtualTimeLoop
from tests.unit.operator.kube.api_server import kubeconfig

COMMANDS = (("crds", "apply"), ("cleanup",))


@pytest.mark.parametrize("command", COMMANDS)
def test_a_kubeconfig_that_is_not_there(command: tuple[str, ...], tmp_path: Path) -> None:
    done = CliRunner().invoke(main, [*command, "--kubeconfig", str(tmp_path / "none")])
    assert done.exit_code == 1
    assert done.output.startswith(f"Error: kubeconfig {tmp_path / 'none'}: No such file or directory; ")
    assert len(done.output.splitlines()) == 1


@pytest.fixture
def nobody_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A kubeconfig for an API server that is not there; whoever waits for it does so in virtual time."""

    async def refused(*_: object, **__: object) -> None:
        raise aiohttp.ClientConnectionError("Connection refused")

    # a real refusal may come a moment later, which is any number of virtual seconds
    monkeypatch.setattr(aiohttp.TCPConnector, "connect", refused)
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        monkeypatch.setattr(asyncio, "run", runner.run)
        yield kubeconfig(tmp_path, "http://127.0.0.1:1", token="a")


@pytest.mark.parametrize("command", COMMANDS)
def test_an_api_server_that_is_not_there(command: tuple[str, ...], nobody_there: str) -> None:
    done = CliRunner().invoke(main, [*command, "--kubeconfig", nobody_there, "--timeout-seconds", "60"])
    assert done.exit_code == 1
    assert f"http://127.0.0.1:1 (context here of kubeconfig {nobody_there})" in done.stdout
    waits, error = done.stderr.splitlines()
    assert waits.startswith("waiting for the API server: GET ")
    assert "Connection refused" in waits
    assert error.startswith("Error: not done after 60 s, while ")
    assert "Connection refused" in error

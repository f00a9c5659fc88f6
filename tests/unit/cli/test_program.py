"""The program's start and end, in this process: its streams, what it cannot write, and a part of it that is missing."""

import io
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import kubectl_nodedevice
import pytest

from tests.unit.cli.api_server import OURS, FakeApiServer
from tests.unit.cli.conftest import Run
from tests.unit.cli.objects import node_device


@pytest.fixture
def is_forgotten() -> Iterator[Callable[[], bool]]:
    """Whether what is left in the process's standard output would go nowhere: Python writes it at its end."""
    own, nowhere = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    yield lambda: os.path.sameopenfile(1, nowhere)
    os.dup2(own, 1)
    os.close(own)
    os.close(nowhere)


def test_a_terminal_with_fewer_characters(run: Run, server: FakeApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    server.objects[f"{OURS}/nodedevices"] = [node_device("größe")]
    octets = {name: io.BytesIO() for name in ("stdout", "stderr")}
    for name, stream in octets.items():
        monkeypatch.setattr(sys, name, io.TextIOWrapper(stream, encoding="ascii", write_through=True))
    assert run("devices").status == 0
    assert run("devices", "--node", "maß").status == 2
    assert b"gr??e" in octets["stdout"].getvalue()
    assert b"error: node ma? has no NodeDevices; nodes with NodeDevices: gr" in octets["stderr"].getvalue()


def test_streams_that_are_closed(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("stdout", "stderr"):
        monkeypatch.setattr(sys, name, None)
    assert (run("devices").status, run("devices", "--node", "x").status) == (0, 2)
    for stream in (sys.stdout, sys.stderr):
        assert (stream.name, stream.encoding) == (os.devnull, "utf-8")
        stream.close()


class Full(io.StringIO):
    """A file on a disk that is full, which is noticed as late as it can be."""

    def flush(self) -> None:
        raise OSError(28, "No space left on device")


def test_output_that_cannot_be_written(
    run: Run, monkeypatch: pytest.MonkeyPatch, is_forgotten: Callable[[], bool]
) -> None:
    assert not is_forgotten()
    monkeypatch.setattr(sys, "stdout", Full())
    ran = run("devices")
    words = "error: the output cannot be written: No space left on device; make room for it\n"
    assert (ran.status, ran.err, is_forgotten()) == (2, words, True)


class Closed(io.StringIO):
    """A pipe that nobody reads."""

    def write(self, _: str) -> int:
        raise BrokenPipeError(32, "Broken pipe")


def test_output_that_nobody_reads(run: Run, monkeypatch: pytest.MonkeyPatch, is_forgotten: Callable[[], bool]) -> None:
    assert not is_forgotten()
    monkeypatch.setattr(sys, "stdout", Closed())
    ran = run("devices")
    assert (ran.status, ran.err, is_forgotten()) == (141, "", True)


def test_a_part_that_is_missing(run: Run, new_process: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kubectl_nodedevice.commands.holders", None)
    ran = run("holders")
    where = Path(kubectl_nodedevice.__file__).parents[1]
    problem = "a part of this program is missing: kubectl_nodedevice.commands.holders"
    remedy = f"install it again; it is in {where}, which you can remove"
    assert (ran.status, ran.err) == (2, f"error: {problem}; {remedy}\n")


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("devces", " Did you mean 'devices'?"),
        ("holdrs", " Did you mean 'holders'?"),
        ("complete", " Did you mean 'completion'?"),
        ("zzz", ""),
    ],
)
def test_a_command_that_does_not_exist(run: Run, word: str, hint: str) -> None:
    ran = run(word)
    problem = f"No such command '{word}'." if hint else f"No such command '{word}'"
    assert (ran.status, ran.err) == (2, f"error: {problem}{hint}; kubectl nodedevice --help shows how\n")


@pytest.mark.parametrize("words", [("why",), ("config",)])
def test_a_command_without_the_rest_shows_its_help(run: Run, words: tuple[str, ...]) -> None:
    ran = run(*words)
    assert (ran.status, ran.out) == (2, "")
    assert ran.err == run(*words, "--help").out


def test_its_version(run: Run) -> None:
    assert run("--version").out == f"{kubectl_nodedevice.__version__}\n"

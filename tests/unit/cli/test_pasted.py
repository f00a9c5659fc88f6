"""What a narrow terminal shows to be typed is pasted into a shell: each word reaches the program as it was meant."""

import re
import string
import subprocess
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import click
import pytest
from kubectl_nodedevice import attention
from kubectl_nodedevice.cluster import Cordon, NodeDevice
from kubectl_nodedevice.cordons import lifting
from kubectl_nodedevice.output import Screen
from kubectl_nodedevice.program import root
from kubectl_nodedevice.records import record_of
from kubectl_nodedevice.shell import Typed, typed
from kubectl_nodedevice.why import answer
from kubectl_nodedevice.why.explanation import Explanation, Finding, Obstacle
from kubectl_nodedevice.why.reasons.row import Row
from kubectl_nodedevice.why.reasons.table import TABLE

from tests.unit.cli.api_server import FakeApiServer
from tests.unit.cli.conftest import Run, Terminal
from tests.unit.cli.objects import NODE_DEVICES, device, node_device

_NOW: Final = datetime(2026, 11, 28, 10, tzinfo=UTC)
_SGR: Final = re.compile(r"\x1b\[[0-9;]*m")
_LONG: Final = "a-name-of-a-cloud-that-is-longer-than-many-terminals-are-wide.internal"
# of a device: a plugin may choose any characters
_ODD: Final = "x 'q' \"d\" $HOME `id` \\ ;&|*?!#~{a,b} \x1b[31m\u202e\n\té"


@pytest.fixture(autouse=True)
def _narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")


Paste = Callable[[str], list[str]]


@pytest.fixture
def paste(tmp_path: Path) -> Paste:
    """Type a line into bash; the words that kubectl gets."""
    kubectl, words = tmp_path / "kubectl", tmp_path / "words"
    kubectl.write_text(f'#!/bin/sh\n[ ! -e {words} ] && printf "%s\\0" "$@" > {words}\n')
    kubectl.chmod(0o755)

    def pasted(line: str) -> list[str]:
        words.unlink(missing_ok=True)
        environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "HOME": str(tmp_path), "LC_ALL": "C.UTF-8"}
        assert line.isprintable()
        subprocess.run(["bash", "-n"], input=line.encode(), check=True, env=environment)
        done = subprocess.run(["bash"], input=line.encode(), capture_output=True, check=False, env=environment)
        assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
        return words.read_bytes().decode().removesuffix("\0").split("\0")

    return pasted


def commands(terminal: Terminal) -> list[str]:
    """The lines that are there to be typed."""
    lines = [_SGR.sub("", line).strip() for line in terminal.getvalue().splitlines()]
    return [line for line in lines if line.startswith("kubectl ")]


def as_shown(line: Typed) -> str:
    """On a terminal."""
    terminal = Terminal()
    Screen("", terminal).command(line, indent=5)
    [found] = commands(terminal)
    return found


def shown_line(row: Row, fields: Mapping[str, str]) -> str:
    """What an answer shows to be typed, where the finding has these fields."""
    found = Obstacle(row.code, fields["node"], fields["resource"], "", "", fields)
    explanation = Explanation("x", "waits.", findings=(Finding(row.code, fields["resource"], (found,), 1, fields),))
    terminal = Terminal()
    answer.show(Screen("", terminal), explanation, lambda _: None, _NOW)
    [line] = commands(terminal)
    return line


def parsed(words: list[str]) -> Mapping[str, Any]:
    """Arguments and options, as this program understands them."""
    context = root.make_context("kubectl nodedevice", list(words))
    while isinstance(context.command, click.Group) and (rest := [*context._protected_args, *context.args]):
        name, command, rest = context.command.resolve_command(context, rest)
        assert command is not None
        context = command.make_context(name, rest, parent=context)
    return context.params


def _options(name: str) -> list[str]:
    """Words that a field of that name stands for."""
    known = {"device_options": ["--device", _ODD, "--device", "-x"], "resource_options": ["--resource", _ODD]}
    return known.get(name, [f"--{name}", _ODD])


def _fields(row: Row) -> dict[str, str]:
    names = {name for _, name, _, _ in string.Formatter().parse(row.line.text + row.sentence + row.advice) if name}
    made = {name: typed(*_options(name)) if name.endswith("_options") else f"{name} {_ODD}" for name in names}
    return {**made, "node": _LONG, "pod": _LONG, "resource": _ODD}


def _expected(row: Row, fields: Mapping[str, str]) -> list[str]:
    words = [(each, each[1:-1]) for each in row.line.text.split()[1:]]
    return [
        made
        for word, name in words
        for made in (_options(name) if name.endswith("_options") else [word.format(**fields)])
    ]


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.code)
def test_the_line_that_helps(row: Row, paste: Paste) -> None:
    fields = _fields(row)
    words = paste(shown_line(row, fields))
    assert words == _expected(row, fields)
    if words[0] == "nodedevice":
        parsed(words[1:])


@pytest.mark.parametrize("device_id", [_ODD, "-x", "--help", "gpu-0", "*", "=x", "\x01"])
@pytest.mark.parametrize("flags", [typed(), typed("--context", "my c", "--as", "eve")])
def test_a_broken_device(device_id: str, flags: Any, paste: Paste) -> None:
    found = record_of(NodeDevice, node_device(_LONG, _ODD, [device(device_id, "Unhealthy", reason="Ecc")]))
    [need] = attention.of_devices(found, _NOW)
    terminal = Terminal()
    Screen("", terminal, flags=flags).command(need.command)
    [line] = commands(terminal)
    words = paste(line)
    assert words[0] == "nodedevice"
    params = parsed(words[1:])
    assert (params["node_name"], params["device_id"], params["resource"]) == (_LONG, device_id, _ODD)


def test_what_lifts_cordons(paste: Paste) -> None:
    found = record_of(NodeDevice, node_device(_LONG, _ODD))
    ids = [_ODD, "-x", "all", "*", "\x01"]
    params = parsed(paste(lifting(found, [Cordon(each, by="me") for each in ids], "me"))[1:])
    assert (params["node"], params["resource"], list(params["device_ids"])) == (_LONG, _ODD, ids)
    assert not params["take_over"]
    assert parsed(paste(lifting(found, [Cordon("a", by="me"), Cordon("b")], "me"))[1:])["take_over"]


def test_the_first_screen(run: Run, server: FakeApiServer, paste: Paste, at_terminal: Callable[[], Terminal]) -> None:
    """Each of its commands, for the cluster and the person of this command line."""
    broken = [device(f"{number} {_ODD}", "Unhealthy", reason=f"Ecc{number}") for number in range(25)]
    server.objects[NODE_DEVICES].append(node_device(_LONG, devices=broken, conditions=[]))
    terminal = at_terminal()
    run("--context", "test", "--as", "eve")
    found = [paste(line) for line in commands(terminal)]
    assert len(found) == 21
    for words in found:
        parsed(words[1:])
        assert words[:5] == ["nodedevice", "--context", "test", "--as", "eve"]

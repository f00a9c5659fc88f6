"""The class: whatever a cluster, a kubeconfig or a terminal is like, each command answers with a sentence and a remedy.

Never a traceback, never a character that steers the terminal. A command without an entry here, and a case, fails.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import click
import pytest
from kubectl_nodedevice import program

from tests.fakes.played_api.messages import found
from tests.unit.cli.api_server import Answer, FakeApiServer, Fault, Request, kubeconfig, status
from tests.unit.cli.conftest import Ran, Run, Terminal
from tests.unit.cli.objects import NODE_DEVICES

# each command as somebody types it; of a group each of its commands
COMMANDS: Final[Mapping[str, tuple[str, ...]]] = {
    "": (),
    "nodes": (),
    "devices": (),
    "open": ("--snapshot", "/dev/null"),
    "holders": ("try",),
    "why pod": ("try",),
    "why node": ("node-a",),
    "why device": ("node-a", "gpu-2"),
    "cordon": ("node-a", "--device", "gpu-0", "--reason", "fan", "--wait", "0"),
    "uncordon": ("node-a", "--device", "gpu-1", "--wait", "0"),
    "discover": ("node-a",),
    "check": ("--wait-seconds", "0"),
}
# ask no cluster: they have tests of their own
ALONE: Final = frozenset({"completion", "__complete", "config explain", "config validate"})
_HOSTILE: Final = "\x1b[31m\x07\x9b\u202e\x7f\n"
# of what a terminal obeys nothing may be left: controls, and changes of direction
STEERING: Final = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


def leaves(command: click.Command, name: str = "") -> Iterator[str]:
    """The names of all commands, as they are typed."""
    if not isinstance(command, click.Group):
        yield name
        return
    if command.invoke_without_command:
        yield name
    for each in command.list_commands(click.Context(command)):
        inner = command.get_command(click.Context(command), each)
        assert inner is not None
        yield from leaves(inner, f"{name} {each}".strip())


def test_no_command_is_forgotten() -> None:
    assert COMMANDS.keys() | ALONE == set(leaves(program.root))


def _always(answer: Answer) -> Fault:
    return lambda _: answer


def _forbidden(kind: str) -> Fault:
    answer = status(403, f'{kind} is forbidden: User "eve" cannot list resource "{kind}"')
    return lambda request: answer if f"/{kind}" in request.path else None


_NO_PAGE: Final = Answer(404, b"404 page not found\n")
_ODD_ITEMS: Final[list[Any]] = [None, 3, "x", [], {"metadata": 5, "spec": [], "status": 7}]
_ODD_TYPES: Final = {"metadata": [], "items": _ODD_ITEMS, "rows": [{"cells": 3}, 4]}
_KINDS: Final = (
    *("nodedevices", "poddevices", "nodedeviceconfigs", "pods", "nodes", "leases", "events"),
    *("customresourcedefinitions", "selfsubjectreviews"),
)
FAULTS: Final[Mapping[str, Fault]] = {
    "401": _always(status(401, "Unauthorized")),
    "403": _always(status(403, "forbidden")),
    **{f"403 of {kind}": _forbidden(kind) for kind in _KINDS},
    "no CRDs": lambda request: _NO_PAGE if "nodedevice.io" in request.path else None,
    "nothing is there": _always(_NO_PAGE),
    "409": _always(status(409, "the object has been modified")),
    "410": _always(status(410, "the provided continue parameter is too old")),
    "500": _always(status(500, "etcdserver: no leader")),
    "503 of a balancer": _always(Answer(503, b"<html><body>no backend</body></html>", {"Content-Type": "text/html"})),
    "a log-in page": _always(Answer(200, b"<html>please log in</html>")),
    "no JSON": _always(Answer(200, b'{"items": [')),
    "no UTF-8": _always(Answer(200, b'{"items": ["\xff\xfe"]}')),
    "another value": _always(Answer(200, b"[1, 2]")),
    "nothing in it": _always(Answer(200, b"{}")),
    "null everywhere": _always(found(dict.fromkeys(("metadata", "items", "status", "rows", "spec")))),
    "wrong types": _always(found(_ODD_TYPES)),
    "nested deep": _always(Answer(200, b'{"items":' * 5000 + b"1" + b"}" * 5000)),
    "cut off": _always(Answer(200, b'{"items": []', short=True)),
    "gzip that is none": _always(Answer(200, b'{"items": []}', {"Content-Encoding": "gzip"})),
    "silent": _always(Answer(hold=True)),
    "a redirect": _always(Answer(302, b"", {"Location": "https://login.example.com/"})),
}


def _run(run: Run, command: str, *more: str) -> Ran:
    return run(*command.split(), *COMMANDS[command], *more)


def check_answer(ran: Ran) -> None:
    """A sentence with a remedy where it failed, and nothing that steers a terminal."""
    assert ran.status in (0, 1, 2), ran
    assert not STEERING.search(ran.out + ran.err), ran
    assert "Traceback" not in ran.out + ran.err
    if ran.status == 2:
        [*_, last] = ran.err.strip().splitlines()
        assert last.startswith("error: "), ran
        assert "; " in last, f"no remedy: {last}"


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("command", COMMANDS)
def test_an_api_server_in_trouble(run: Run, server: FakeApiServer, command: str, fault: str) -> None:
    server.fault = FAULTS[fault]
    ran = _run(run, command, "--request-timeout", "200ms" if fault == "silent" else "30s")
    check_answer(ran)
    if fault in ("401", "500", "silent", "no JSON", "a log-in page", "503 of a balancer"):
        assert ran.status == 2, ran
    assert fault != "silent" or "did not respond within 0.2 s" in ran.err


@pytest.mark.parametrize("command", COMMANDS)
def test_what_others_have_named(run: Run, server: FakeApiServer, command: str) -> None:
    """Each text of each object has characters that steer a terminal."""
    for kind, objects in server.objects.items():
        server.objects[kind] = [_hostile(each) for each in objects]
    server.user = f"eve{_HOSTILE}"
    for form in ("", "wide", "json", "yaml"):
        ran = _run(run, command, *(["-o", form] if form else []))
        check_answer(ran)


def _hostile(value: Any, key: str = "") -> Any:
    if isinstance(value, dict):
        return {name: _hostile(each, name) for name, each in value.items()}
    if isinstance(value, list):
        return [_hostile(each, key) for each in value]
    # what they are found by stays
    kept = key in ("name", "namespace", "id", "nodeName", "resourceName", "resourceVersion", "status", "state", "phase")
    return f"{value}{_HOSTILE}" if isinstance(value, str) and not kept else value


@pytest.mark.parametrize("command", COMMANDS)
def test_ids_that_steer(run: Run, server: FakeApiServer, command: str) -> None:
    for each in server.objects[NODE_DEVICES]:
        for device in each["status"]["devices"]:
            device["id"] += _HOSTILE
    check_answer(_run(run, command))


_V1: Final = {"apiVersion": "client.authentication.k8s.io/v1"}
SERVERS: Final[Mapping[str, dict[str, Any]]] = {
    "nobody listens": {"server": "http://127.0.0.1:1"},
    "no address": {"server": "kubernetes"},
    "no name": {"server": "https://name.invalid"},
    "no certificates": {"server": "https://127.0.0.1:1", "client-certificate-data": "%%%"},
    "a token that is none": {"server": "http://127.0.0.1:1", "token": "a\nb"},
    "a login program that is missing": {"server": "http://127.0.0.1:1", "exec": {**_V1, "command": "no-such-program"}},
    "a login program that fails": {"server": "http://127.0.0.1:1", "exec": {**_V1, "command": "false"}},
}


@pytest.mark.parametrize("login", SERVERS)
@pytest.mark.parametrize("command", COMMANDS)
def test_a_login_that_is_none(run: Run, tmp_path: Path, command: str, login: str) -> None:
    given = dict(SERVERS[login])
    file = kubeconfig(tmp_path, given.pop("server"), **given)
    ran = _run(run, command, "--kubeconfig", str(file))
    check_answer(ran)
    assert ran.status == 2


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("columns", [1, 40, 1000])
def test_a_terminal_of_any_width(
    run: Run, at_terminal: Callable[[], Terminal], monkeypatch: pytest.MonkeyPatch, command: str, columns: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    terminal = at_terminal()
    ran = _run(run, command)
    assert ran.status in (0, 1, 2)
    # colours are what this program sends itself
    shown = re.sub(r"\x1b\[[0-9;]*m", "", terminal.getvalue())
    assert not STEERING.search(shown)
    # commands are not broken, so that they can be copied
    wrapped = [line.rstrip() for line in shown.splitlines() if not line.lstrip().startswith("kubectl ")]
    assert columns < 40 or all(len(line) <= columns for line in wrapped)


@pytest.mark.parametrize("command", COMMANDS)
def test_objects_that_are_nested_too_deep_end_nothing(
    run: Run, server: FakeApiServer, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """The API server stores managedFields that are nested so deep in any tenant's pod or claim."""
    plain = _run(run, command)
    for each in (each for objects in server.objects.values() for each in objects):
        each["metadata"]["managedFields"] = "deep"
    usual = server.answer

    def deep(request: Request) -> Answer:
        answer = usual(request)
        return replace(answer, body=answer.body.replace(b'"deep"', b"[" * 1100 + b"]" * 1100))

    monkeypatch.setattr(server, "answer", deep)
    ran = _run(run, command)
    assert (ran.status, ran.err) == (plain.status, plain.err), ran


@pytest.mark.parametrize("command", COMMANDS)
def test_a_cluster_with_nothing_in_it(run: Run, server: FakeApiServer, command: str) -> None:
    server.objects = {kind: [] for kind in server.objects}
    check_answer(_run(run, command))

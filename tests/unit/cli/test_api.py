"""Requests: pages, what a server asks to wait for, connections that end, and as whom they are sent."""

import json
from pathlib import Path
from typing import Any, Final

import pytest
from kubectl_nodedevice.errors import LoginProblem, UsageProblem
from kubectl_nodedevice.session import seconds_of

from tests.unit.cli.api_server import NODES, Answer, FakeApiServer, Request, status
from tests.unit.cli.conftest import ApiOf, Run
from tests.unit.cli.objects import NODE_DEVICES

_V1: Final = "client.authentication.k8s.io/v1"


def _objects(number: int) -> list[dict[str, Any]]:
    return [{"metadata": {"name": f"n{each}"}} for each in range(number)]


def test_a_list_is_read_page_by_page(api_of: ApiOf, server: FakeApiServer) -> None:
    server.objects[NODE_DEVICES] = _objects(1234)
    found: list[Any] = list(api_of().objects("nodedevices", NODE_DEVICES))
    assert [each["metadata"]["name"] for each in found] == [f"n{each}" for each in range(1234)]
    assert ["continue" in each.query for each in server.requests] == [False, True, True]


def test_a_list_that_has_changed_goes_on_by_the_servers_token(api_of: ApiOf, server: FakeApiServer) -> None:
    server.objects[NODE_DEVICES] = _objects(700)

    def compacted(request: Request) -> None:
        if "continue" in request.query and len(server.requests) == 2:
            server.put(NODES, {"metadata": {"name": "another"}})
            server.forget()

    server.fault = compacted
    assert len(list(api_of().objects("nodedevices", NODE_DEVICES))) == 700


def test_as_somebody_else(run: Run, server: FakeApiServer) -> None:
    run("--as", "eve", "--as-group", "a", "--as-group", "b", "--as-uid", "7")
    seen = server.requests[0].headers
    assert (seen["impersonate-user"], seen["impersonate-uid"]) == ("eve", "7")
    assert "impersonate-group" in seen


@pytest.fixture
def login_program(tmp_path: Path) -> dict[str, Any]:
    """That gives token-1, token-2, …"""
    script = tmp_path / "login"
    credential = {"apiVersion": _V1, "kind": "ExecCredential", "status": {"token": "$token"}}
    made = f"echo >> count; token=token-$(wc -l < count)\ncat <<END\n{json.dumps(credential)}\nEND\n"
    script.write_text(f"#!/bin/sh\ncd {tmp_path}\n{made}")
    script.chmod(0o755)
    return {"apiVersion": _V1, "command": str(script), "interactiveMode": "Never"}


def test_a_login_program_is_asked_once_and_again_after_a_refusal(
    api_of: ApiOf, server: FakeApiServer, login_program: dict[str, Any]
) -> None:
    def fault(request: Request) -> Answer | None:
        is_over = request.headers["authorization"] == "Bearer token-1" and len(server.requests) > 2
        return status(401) if is_over else None

    server.fault = fault
    api = api_of(exec=login_program)
    for _ in range(4):
        api.get("nodes", NODES)
    tokens = [each.headers["authorization"].removeprefix("Bearer token-") for each in server.requests]
    assert tokens == ["1", "1", "1", "2", "2"]


def test_one_that_is_refused_ends(api_of: ApiOf, server: FakeApiServer, login_program: dict[str, Any]) -> None:
    server.fault = lambda _: status(401)
    with pytest.raises(LoginProblem):
        api_of(exec=login_program).get("nodes", NODES)
    assert len(server.requests) == 2


@pytest.mark.parametrize(("text", "seconds"), [("", 30.0), ("0", None), ("2", 2.0), ("1m30s", 90.0), ("250ms", 0.25)])
def test_durations(text: str, seconds: float | None) -> None:
    assert seconds_of(text) == seconds


@pytest.mark.parametrize("text", ["x", "1x", "-1", "1m 2s", "nan", "inf", "1e6", "278h"])
def test_durations_that_are_none(text: str) -> None:
    with pytest.raises(UsageProblem) as error:
        seconds_of(text)
    problem = f"--request-timeout {text} is not a duration"
    assert (error.value.problem, error.value.remedy) == (problem, "such as 30s, 2m, or 0 for none")

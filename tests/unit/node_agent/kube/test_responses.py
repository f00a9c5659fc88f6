"""Failures of the library, and errors in a watch, become errors of ours: each kind, its status, and its sentence."""

import asyncio
import json
from typing import Any

import httpx2
import pytest
from lightkube.core.exceptions import ApiError, ConfigError, NotReadyError
from lightkube.models.meta_v1 import Status
from nodedevice_agent import errors
from nodedevice_agent.errors import ApiRequestError
from nodedevice_agent.kube.objects import NodeDeviceObject
from nodedevice_agent.kube.pod_objects import PodObject
from nodedevice_agent.kube.responses import next_line, translated, watch_event
from nodedevice_common.decoding import Undecodable

from tests.fakes.virtual_time import virtual_time

REQUEST = httpx2.Request("GET", "http://server/nodes/n1")
TOO_BIG = "etcdserver: request is too large"


def response(status: int, body: dict[str, Any] | None = None) -> httpx2.Response:
    return httpx2.Response(status, json=body if body is not None else {}, request=REQUEST)


def api_error(code: int = 0, message: str = "", reason: str = "", answered: int = 0) -> ApiError:
    """answered: the status of the response, where the body has no code; 0 for an error inside a watch."""
    if not answered:
        return ApiError(status=Status(code=code or None, message=message or None, reason=reason or None))
    found = ApiError(REQUEST, response(answered, {"message": message, "reason": reason}))
    found.status.message, found.status.reason = message or None, reason or None
    return found


def status_error(status: int) -> httpx2.HTTPStatusError:
    return httpx2.HTTPStatusError("x", request=REQUEST, response=response(status))


def from_within(status: int) -> Exception:
    """The library failing at a proxy's error."""
    found = KeyError("content-type")
    found.__context__ = status_error(status)
    return found


@pytest.mark.parametrize(
    ("failure", "kind", "text", "status"),
    [
        pytest.param(api_error(401, "no token"), "ApiUnauthorized", "no token", 401, id="401"),
        pytest.param(api_error(403, "no right"), "ApiForbidden", "no right", 403, id="403"),
        pytest.param(api_error(404, "no such node"), "ApiNotFound", "no such node", 404, id="404"),
        pytest.param(api_error(410, "too old"), "ApiGone", "too old", 410, id="410"),
        pytest.param(api_error(409, "conflict"), "ApiRefused", "conflict", 409, id="409"),
        pytest.param(api_error(429, "busy"), "ApiUnreachable", "busy", 429, id="429"),
        pytest.param(api_error(499, "odd"), "ApiRefused", "odd", 499, id="499"),
        pytest.param(api_error(500, "etcd"), "ApiUnreachable", "etcd", 500, id="500"),
        pytest.param(api_error(500, TOO_BIG), "ApiRefused", TOO_BIG, 500, id="500 for good"),
        pytest.param(api_error(503, "down"), "ApiUnreachable", "down", 503, id="503"),
        pytest.param(api_error(404, "", "NotFound"), "ApiNotFound", "NotFound", 404, id="a reason alone"),
        pytest.param(api_error(404), "ApiNotFound", "", 404, id="no words"),
        pytest.param(api_error(answered=404, message="x"), "ApiNotFound", "x", 404, id="the response's code"),
        pytest.param(api_error(message="x"), "ApiRefused", "x", 0, id="no code at all"),
        pytest.param(status_error(502), "ApiUnreachable", "Bad Gateway", 502, id="a proxy's"),
        pytest.param(from_within(403), "ApiForbidden", "Forbidden", 403, id="a proxy's, at which the library fails"),
        pytest.param(httpx2.ConnectError("refused"), "ApiDisconnected", "refused", 0, id="no connection"),
        pytest.param(httpx2.ReadError(""), "ApiDisconnected", "ReadError", 0, id="a connection that ends"),
        pytest.param(httpx2.RemoteProtocolError("cut"), "ApiDisconnected", "cut", 0, id="cut"),
        pytest.param(httpx2.ConnectTimeout(""), "ApiDisconnected", "ConnectTimeout", 0, id="connecting"),
        pytest.param(httpx2.ReadTimeout(""), "ApiUnreachable", "timeout: no response in 10 s", 0, id="reading"),
        pytest.param(
            Undecodable(ValueError("no JSON")), "ApiUnreachable", "cannot decode the response: no JSON", 0, id="form"
        ),
        pytest.param(
            NotReadyError("x", "no version"), "ApiUnreachable", "cannot decode the response: ", 0, id="no version"
        ),
        pytest.param(
            KeyError("kind"), "ApiUnreachable", "cannot decode the response: KeyError('kind')", 0, id="the library"
        ),
        pytest.param(OSError("no thread"), "ApiUnreachable", "no thread", 0, id="the system"),
        pytest.param(RuntimeError(), "ApiUnreachable", "RuntimeError", 0, id="no words of the system"),
        pytest.param(ConfigError("no cluster"), "ApiUnreachable", "no cluster", 0, id="configuration"),
    ],
)
def test_a_failure_of_the_library_is_an_error_of_ours(failure: Exception, kind: str, text: str, status: int) -> None:
    with pytest.raises(ApiRequestError) as found, translated("reading node n1"):
        raise failure
    assert type(found.value) is getattr(errors, kind)
    assert found.value.status == status
    if failure.__class__ is NotReadyError:
        assert str(found.value).startswith(f"reading node n1: {text}")
    else:
        assert str(found.value) == f"reading node n1: {text}"


def test_what_is_no_failure_of_a_request_is_passed_on() -> None:
    for failure in (KeyboardInterrupt(), ZeroDivisionError()):
        with pytest.raises(type(failure)), translated("x"):
            raise failure


def line(kind: str, found: Any) -> bytes:
    return json.dumps({"type": kind, "object": found}).encode()


POD = {"metadata": {"name": "p", "namespace": "d", "resourceVersion": "7"}}


def test_a_line_of_a_watch_is_its_type_and_its_object() -> None:
    kind, found = watch_event("watching pods", line("ADDED", POD), PodObject)
    assert (kind, type(found), found.metadata.name) == ("ADDED", PodObject, "p")
    kind, found = watch_event("watching pods", line("BOOKMARK", POD), PodObject)
    assert (kind, found.metadata.resourceVersion) == ("BOOKMARK", "7")


def test_a_pod_of_another_form_keeps_its_name_and_any_other_object_is_refused() -> None:
    kind, found = watch_event("watching pods", line("MODIFIED", {**POD, "spec": 7}), PodObject)
    assert (kind, found.metadata.name) == ("MODIFIED", "p")
    with pytest.raises(Undecodable):
        watch_event("watching nodedevices", line("MODIFIED", {**POD, "status": 7}), NodeDeviceObject)


@pytest.mark.parametrize(
    ("status", "kind", "text"),
    [
        ({"code": 410, "message": "too old"}, "ApiGone", "too old"),
        ({"code": 500, "reason": "InternalError"}, "ApiUnreachable", "InternalError"),
        ({}, "ApiRefused", ""),
    ],
)
def test_an_error_in_a_watch_is_one_of_ours(status: dict[str, Any], kind: str, text: str) -> None:
    with pytest.raises(ApiRequestError) as found:
        watch_event("watching pods", line("ERROR", status), PodObject)
    assert type(found.value) is getattr(errors, kind)
    assert str(found.value) == f"watching pods: {text}"


class Lines:
    """Those of a watch, and then none for ever."""

    def __init__(self, *lines: bytes) -> None:
        self.lines = iter(lines)

    def __aiter__(self) -> "Lines":
        return self

    async def __anext__(self) -> bytes:
        for found in self.lines:
            if not found:
                raise StopAsyncIteration
            return found
        raise await _never()


async def _never() -> Exception:
    await asyncio.Event().wait()
    return StopAsyncIteration()


@virtual_time
async def test_a_watch_that_is_silent_is_an_error_and_one_that_ends_is_none() -> None:
    found = Lines(b"a")
    assert await next_line("watching pods", found) == b"a"
    with pytest.raises(errors.ApiSilent, match=r"^watching pods: nothing has come for \d+ s, not even a bookmark$"):
        await next_line("watching pods", found)
    assert await next_line("watching pods", Lines(b"")) is None

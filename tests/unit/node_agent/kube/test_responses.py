"""Lines of a watch: objects, errors, and silence."""

import asyncio
import json
from typing import Any

import pytest
from nodedevice_agent.kube.objects import NodeDeviceObject
from nodedevice_agent.kube.pod_objects import PodObject
from nodedevice_agent.kube.responses import next_line, watch_event
from nodedevice_common.decoding import Undecodable
from nodedevice_kube.api_errors import ApiError, Gone, Invalid, Silent, Unavailable

from tests.fakes.virtual_time import virtual_time


def line(kind: str, found: Any) -> bytes:
    return json.dumps({"type": kind, "object": found}).encode()


POD = {"metadata": {"name": "p", "namespace": "d", "resourceVersion": "7"}}


def test_a_line_of_a_watch_is_its_type_and_its_object() -> None:
    kind, found = watch_event("pods", line("ADDED", POD), PodObject)
    assert (kind, type(found), found.metadata.name) == ("ADDED", PodObject, "p")
    kind, found = watch_event("pods", line("BOOKMARK", POD), PodObject)
    assert (kind, found.metadata.resourceVersion) == ("BOOKMARK", "7")


def test_a_pod_of_another_form_keeps_its_name_and_any_other_object_is_refused() -> None:
    kind, found = watch_event("pods", line("MODIFIED", {**POD, "spec": 7}), PodObject)
    assert (kind, found.metadata.name) == ("MODIFIED", "p")
    with pytest.raises(Undecodable):
        watch_event("nodedevices", line("MODIFIED", {**POD, "status": 7}), NodeDeviceObject)


@pytest.mark.parametrize(
    ("status", "kind", "text"),
    [
        ({"code": 410, "message": "too old"}, Gone, "too old"),
        ({"code": 500, "reason": "InternalError"}, Unavailable, "InternalError"),
        ({}, Invalid, "HTTP 0"),
        ({"code": "x", "message": 7, "details": []}, Invalid, "HTTP 0"),
    ],
)
def test_an_error_in_a_watch_is_one_of_ours(status: dict[str, Any], kind: type[ApiError], text: str) -> None:
    with pytest.raises(ApiError) as found:
        watch_event("pods", line("ERROR", status), PodObject)
    assert type(found.value) is kind
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
    assert await next_line("pods", found) == b"a"
    with pytest.raises(Silent, match=r"^watching pods: nothing has come for \d+ s, not even a bookmark$"):
        await next_line("pods", found)
    assert await next_line("pods", Lines(b"")) is None

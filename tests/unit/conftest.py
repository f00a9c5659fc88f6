"""The event loops of unit tests; and what a process remembers of its log lines and failures, forgotten before each."""

import asyncio
import io
import sys
from collections.abc import Callable, Iterator, Mapping

import pytest
from nodedevice_common import tasks, undecodable_objects

from tests.fakes import virtual_time


def pytest_asyncio_loop_factories(item: pytest.Item) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """The usual one, but where a test names another: each test runs on all of them."""
    marker = item.get_closest_marker("asyncio")
    if marker is not None and "loop_factories" in marker.kwargs:
        return {virtual_time.NAME: virtual_time.VirtualTimeLoop}
    return {"real time": asyncio.new_event_loop}


@pytest.fixture(scope="session", autouse=True)
def _grpc_ends_with_the_process() -> None:
    """As in an agent, which serves from its start to its end. Else the garbage collector, where it finds the last object of
    grpc.aio, waits in whatever test it runs for calls that nobody awaits any more.
    """
    if aio := sys.modules.get("grpc.aio"):
        aio.init_grpc_aio()


@pytest.fixture(scope="session", autouse=True)
def _no_text_is_read_as_the_locale_has_it() -> Iterator[None]:
    """A file that our programs read or write as text has an encoding of its own: a container's locale knows ASCII alone."""
    chosen = io.text_encoding

    def text_encoding(encoding: str | None, stacklevel: int = 2, /) -> str:
        caller = sys._getframe(2).f_code.co_filename
        assert encoding is not None or "/src/nodedevice_" not in caller, f"{caller}: name the encoding"
        return chosen(encoding, stacklevel)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(io, "text_encoding", text_encoding)
        yield


@pytest.fixture(autouse=True)
def _nothing_was_skipped_yet() -> None:
    undecodable_objects.forget()
    tasks._failing.clear()

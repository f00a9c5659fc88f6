"""The event loops of unit tests; and what a process remembers of its log lines and failures, forgotten before each."""

import asyncio
from collections.abc import Callable, Mapping

import pytest
from nodedevice_common import skipped, tasks

from tests.fakes import virtual_time


def pytest_asyncio_loop_factories(item: pytest.Item) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """The usual one, but where a test names another: each test runs on all of them."""
    marker = item.get_closest_marker("asyncio")
    if marker is not None and "loop_factories" in marker.kwargs:
        return {virtual_time.NAME: virtual_time.VirtualTimeLoop}
    return {"real time": asyncio.new_event_loop}


@pytest.fixture(autouse=True)
def _nothing_was_skipped_yet() -> None:
    skipped.forget()
    tasks._failing.clear()

"""Process IDs that are used up: no thread starts, and what needs one fails in words, or waits until one does."""

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
from nodedevice_common import threads

from tests.fakes.virtual_time import virtual_time


@contextmanager
def no_threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    def refused(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as full:
        full.setattr(threading.Thread, "start", refused)
        yield


def test_a_thread_that_cannot_be_started_is_an_error_of_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    ran = threading.Event()
    with no_threads(monkeypatch), pytest.raises(OSError, match="free process IDs"):
        threads.start(ran.set, "test")
    started = threads.start(ran.set, "test")
    started.join()
    # as debuggers and `top -H` show it
    assert (started.name, started.daemon) == ("test", True)
    assert ran.is_set()


@virtual_time
async def test_a_call_waits_for_a_thread_is_made_once_and_says_so_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
    calls: list[str] = []

    def call() -> str:
        calls.append("made")
        return "done"

    with no_threads(monkeypatch):
        waiting = asyncio.create_task(threads.in_thread(call))
        await asyncio.sleep(5)
        assert not waiting.done()
    assert (await waiting, calls) == ("done", ["made"])
    assert [record.message for record in caplog.records] == ["waiting for a thread"]


@pytest.mark.parametrize("is_long", [True, False])
async def test_what_is_long_has_a_thread(is_long: bool) -> None:
    def fails() -> None:
        raise RuntimeError(threading.current_thread().name)

    # not taken for a thread that cannot be started
    with pytest.raises(RuntimeError) as failed:
        await threads.in_thread_if(is_long, fails)
    assert (str(failed.value) != threading.main_thread().name) == is_long

"""A log-in that takes long, and many requests that need it."""

import asyncio
import threading

import pytest
from nodedevice_common.threads import Shared


async def test_all_that_wait_share_one_thread() -> None:
    runs, is_over = [], threading.Event()

    def log_in() -> str:
        runs.append(threading.current_thread())
        is_over.wait()
        return "token"

    shared = Shared(log_in)
    waiting = [asyncio.create_task(shared.result()) for _ in range(100)]
    await asyncio.sleep(0)
    waiting.pop().cancel()
    # the pool has room for anything else
    assert await asyncio.to_thread(lambda: "else") == "else"
    is_over.set()
    assert await asyncio.gather(*waiting) == ["token"] * 99
    assert len(runs) == 1
    assert await shared.result() == "token"
    assert len(runs) == 2


async def test_they_share_its_failure() -> None:
    def log_in() -> str:
        raise OSError("it hangs")

    shared = Shared(log_in)
    for failed in await asyncio.gather(*(shared.result() for _ in range(3)), return_exceptions=True):
        with pytest.raises(OSError, match="it hangs"):
            raise failed if isinstance(failed, BaseException) else AssertionError

"""kopf's part ends without the rest of the operator: no other task is waited for, or cancelled."""

import asyncio
from typing import Any, NoReturn, cast

import kopf
import pytest
from nodedevice_operator.config_watch import ConfigWatch


class Controller:
    """Knows when all configurations were to be listed again."""

    def __init__(self) -> None:
        self.relisted = asyncio.Event()

    def all_gone(self) -> None:
        self.relisted.set()


class Api:
    async def probe(self) -> None:
        """The kind is there."""


def _no_login() -> NoReturn:
    raise kopf.PermanentError("no login")


async def test_what_began_later_than_kopf_goes_on_when_kopf_has_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    has_begun, is_to_fail = asyncio.Event(), asyncio.Event()

    async def fail() -> None:
        has_begun.set()
        await is_to_fail.wait()
        raise RuntimeError("a line that is no JSON")

    async def spawn(**_: Any) -> list[asyncio.Task[None]]:
        return [asyncio.create_task(fail())]

    monkeypatch.setattr(kopf, "spawn_tasks", spawn)
    controller = Controller()
    watch = ConfigWatch(cast(Any, Api()), cast(Any, controller), _no_login, lambda: None, ())
    work = asyncio.create_task(watch.work())
    await has_begun.wait()
    later = asyncio.create_task(asyncio.Event().wait())
    is_to_fail.set()
    async with asyncio.timeout(60):
        await controller.relisted.wait()
    assert not later.done()
    for task in (work, later):
        task.cancel()
    await asyncio.gather(work, later, return_exceptions=True)

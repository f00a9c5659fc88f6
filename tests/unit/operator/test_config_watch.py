"""kopf's part ends without the rest of the operator: no other task is waited for, or cancelled."""

import asyncio
import logging
from typing import Any, NoReturn, cast

import kopf
import pytest
from nodedevice_operator.config_watch import ConfigWatch
from nodedevice_operator.errors import ApiError, Forbidden, NotFound, Unauthorized, Unreachable

from tests.fakes.log_lines import log_lines


class Controller:
    """Knows when all configurations were to be listed again."""

    def __init__(self) -> None:
        self.relisted = asyncio.Event()

    def all_gone(self) -> None:
        self.relisted.set()


class Api:
    async def probe(self) -> None:
        """The kind is there."""


class Probes(Api):
    """Each is refused with the next of these, and granted after the last."""

    def __init__(self, *refusals: ApiError | None) -> None:
        self.refusals = list(refusals)

    async def probe(self) -> None:
        refusal = self.refusals.pop(0)
        if refusal is not None:
            raise refusal


def _refusal(kind: type[ApiError]) -> ApiError:
    return kind("GET", "nodedeviceconfigs", "no")


async def test_why_configurations_have_no_status_is_logged_when_it_changes(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    kinds = [None, NotFound, NotFound, Unreachable, Unauthorized, NotFound, Forbidden, None, Unreachable, None]
    api = Probes(*(_refusal(kind) if kind is not None else None for kind in kinds))
    watch = ConfigWatch(cast(Any, api), cast(Any, Controller()), _no_login, lambda: None, ())
    found = [await watch._is_there() for _ in kinds]
    # one that is away is not asked about its kinds
    assert found == [True, False, False, False, False, False, False, True, True, True]
    without = "configurations of nodes have no status"
    missing = (
        "the kind NodeDeviceConfig is not there: install the CRDs of this release "
        "(helm upgrade, or as an administrator nodedevice-operator crds apply)"
    )
    assert log_lines(caplog.records) == [
        ("WARNING", without, {"error": missing}),
        ("WARNING", without, {"error": "NodeDeviceConfigs may not be read: install the roles of this release"}),
        ("INFO", "configurations of nodes can be read", {}),
    ]


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

"""Which pools are not of this node: asked by driver, once for each pool, whatever ends meanwhile."""

import asyncio
from collections.abc import Mapping
from typing import cast

import pytest
from nodedevice_agent.dra.devices import PoolKey
from nodedevice_agent.dra.elsewhere import Elsewhere
from nodedevice_agent.kube.client import KubeClient
from nodedevice_kube.api_errors import Unauthorized

from tests.fakes.background import background
from tests.fakes.virtual_time import later, virtual_time

pytestmark = virtual_time

RACK, FABRIC, OTHER = ("net.example.com", "rack"), ("net.example.com", "fabric"), ("gpu.example.com", "gpus")


class Api:
    """answers: by driver; who is not there never gets one."""

    def __init__(self) -> None:
        self.answers: dict[str, bool | Exception] = {}
        self.asked: list[str] = []
        self.known: list[PoolKey] = []
        self.elsewhere = Elsewhere(cast(KubeClient, self))
        self.elsewhere.on_known = self.known.append

    async def exists(self, kind: type, fields: Mapping[str, str]) -> bool:
        driver = fields["spec.driver"]
        self.asked.append(driver)
        found = self.answers.get(driver)
        if found is None:
            await asyncio.Event().wait()
        if isinstance(found, Exception):
            raise found
        return bool(found)


@pytest.fixture
async def api() -> Api:
    return Api()


async def test_pools_of_one_driver_are_one_question(api: Api) -> None:
    api.answers = {RACK[0]: True, OTHER[0]: False}
    async with background(api.elsewhere.run()):
        api.elsewhere.ask({RACK, FABRIC, OTHER})
        assert [api.elsewhere.is_beyond(key) for key in (RACK, FABRIC, OTHER)] == [None] * 3
        await later(0.1)
        assert [api.elsewhere.is_beyond(key) for key in (RACK, FABRIC, OTHER)] == [True, True, False]
        assert (api.asked, {*api.known}) == ([OTHER[0], RACK[0]], {RACK, FABRIC, OTHER})
        api.elsewhere.ask({RACK, FABRIC, OTHER})
        api.elsewhere.ask({RACK})
        await later(0.1)
        assert (len(api.asked), api.elsewhere.is_beyond(OTHER)) == (2, None)


async def test_what_was_not_answered_is_asked_again_after_a_failure(api: Api) -> None:
    async with background(api.elsewhere.run()):
        api.elsewhere.ask({RACK})
        await later(0.1)
    api.answers = {RACK[0]: True}
    async with background(api.elsewhere.run()):
        await later(0.1)
        assert (api.asked, api.elsewhere.is_beyond(RACK)) == ([RACK[0]] * 2, True)


async def test_one_that_nobody_has_meanwhile_is_forgotten(api: Api) -> None:
    api.answers = {RACK[0]: True}
    api.elsewhere.ask({RACK, FABRIC})

    def known(key: PoolKey) -> None:
        api.known.append(key)
        api.elsewhere.ask({key})

    api.elsewhere.on_known = known
    async with background(api.elsewhere.run()):
        await later(0.1)
        assert len(api.known) == 1
        assert api.elsewhere.is_beyond(api.known[0])


async def test_without_valid_credentials_it_is_asked_again(api: Api) -> None:
    api.answers = {RACK[0]: Unauthorized("listing", "x", "token", 401)}
    async with background(api.elsewhere.run()):
        api.elsewhere.ask({RACK})
        await later(60)
        assert api.elsewhere.is_beyond(RACK) is None
        assert len(api.asked) > 1
        api.answers = {RACK[0]: False}
        await later(60)
        assert api.elsewhere.is_beyond(RACK) is False

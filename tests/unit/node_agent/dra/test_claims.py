"""How often claims are read: once for each pod that has one, and what of the API server's refusals becomes of that."""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable
from itertools import pairwise

import pytest
from nodedevice_agent.dra.claims import (
    AT_ONCE,
    LONGEST_WAIT_SECONDS,
    MAX_CLAIMS,
    PER_SECOND,
    RARELY_SECONDS,
    ClaimReader,
)
from nodedevice_agent.dra.holdings import Claim
from nodedevice_kube.api_errors import ApiError, Forbidden, NotFound, TooBig, Unauthorized, Unavailable, Unreachable

from tests.fakes.background import background
from tests.fakes.log_lines import log_lines
from tests.fakes.virtual_time import virtual_time
from tests.unit.node_agent.dra.claimed import DRIVER, POOL, claim

GPU_0, GPU_1 = (DRIVER, POOL, "gpu-0", ""), (DRIVER, POOL, "gpu-1", "")
FORBIDDEN = "the agent may not read claims: consumed capacity and admin access of DRA devices are not shown"
REFUSED = "a claim cannot be read: consumed capacity and admin access of its devices are not shown"
pytestmark = virtual_time


class Api:
    """claims: its answers by name; others do not exist. asked: names, with the loop's seconds since the start."""

    def __init__(self) -> None:
        self.claims: dict[str, Claim | ApiError] = {}
        self.asked: list[tuple[str, float]] = []
        self.started = asyncio.get_running_loop().time()
        self.read = 0
        # that each of them takes
        self.seconds = 0.0
        self.reader = ClaimReader(self._get)
        self.reader.on_read = self._count

    def _count(self) -> None:
        self.read += 1

    async def _get(self, namespace: str, name: str) -> Claim:
        self.asked.append((name, asyncio.get_running_loop().time() - self.started))
        await asyncio.sleep(self.seconds)
        found = self.claims.get(name, NotFound("reading", "x", "no such claim", 404))
        if isinstance(found, ApiError):
            raise found
        return found

    def wanted(self, name: str, *pods: str, devices: Iterable[tuple[str, str, str, str]] = (GPU_0,)) -> None:
        self.reader.wanted({("default", name): (frozenset(pods), frozenset(devices))})

    def all_wanted(self, names: Iterable[str]) -> None:
        """Each by a pod of its name."""
        self.reader.wanted({("default", name): (frozenset({name}), frozenset({GPU_0})) for name in names})

    def of(self, name: str, pod: str) -> Claim | None:
        return self.reader.of("default", name, pod)

    def is_awaited(self, name: str, pod: str) -> bool:
        return self.reader.is_awaited("default", name, pod)

    async def names_asked(self, seconds: float = 1.0) -> list[str]:
        """In the next seconds."""
        count = len(self.asked)
        await asyncio.sleep(seconds)
        return [name for name, _ in self.asked[count:]]


@pytest.fixture
async def api() -> AsyncIterator[Api]:
    made = Api()
    async with background(made.reader.run()):
        yield made


async def test_a_claim_is_read_once_for_a_pod(api: Api) -> None:
    api.claims["c"] = claim("gpu-0")
    api.wanted("c", "p")
    assert api.is_awaited("c", "p")
    assert api.of("c", "p") is None
    assert await api.names_asked() == ["c"]
    assert (api.of("c", "p"), api.read, api.is_awaited("c", "p")) == (claim("gpu-0"), 1, False)
    for _ in range(3):
        api.wanted("c", "p")
        assert await api.names_asked(10_000) == []
    assert api.read == 1


async def test_another_pod_may_have_another_claim_of_that_name(api: Api) -> None:
    api.claims["c"] = claim("gpu-0")
    api.wanted("c", "p")
    await api.names_asked(LONGEST_WAIT_SECONDS)
    api.claims["c"] = claim("gpu-1", uid="other")
    api.wanted("c", "q")
    assert api.of("c", "q") is None
    assert api.is_awaited("c", "q")
    assert await api.names_asked() == ["c"]
    assert api.of("c", "q") == claim("gpu-1", uid="other")
    assert api.of("c", "p") is None


async def test_a_device_that_it_does_not_have_is_a_reason_once(api: Api) -> None:
    api.claims["c"] = claim("gpu-0")
    api.wanted("c", "p")
    await api.names_asked()
    api.wanted("c", "p", devices=[GPU_0, GPU_1])
    assert not api.is_awaited("c", "p")
    assert await api.names_asked(10_000) == ["c"]
    api.wanted("c", "p", devices=[GPU_0])
    assert await api.names_asked(10_000) == []


async def test_without_the_right_it_asks_once_an_hour_for_all(api: Api, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    forbidden = Forbidden("reading", "resourceclaims", "no right", 403)
    api.claims = {f"c{number}": forbidden for number in range(20)}
    api.all_wanted(api.claims)
    assert len(await api.names_asked(600)) == 1
    assert not any(api.is_awaited(name, name) for name in api.claims)
    # nor for a pod that comes
    api.claims["new"] = forbidden
    api.all_wanted(api.claims)
    assert not api.is_awaited("new", "new")
    assert await api.names_asked(600) == []
    # four hours, each give or take a fifth
    assert 3 <= len(await api.names_asked(4 * RARELY_SECONDS)) <= 5
    assert log_lines(caplog.records) == [("INFO", FORBIDDEN, {"error": str(forbidden)})]
    # it is given again
    api.claims = dict.fromkeys(api.claims, claim("gpu-0"))
    assert len(await api.names_asked(2 * RARELY_SECONDS)) == 21
    assert api.of("new", "new") == claim("gpu-0")


async def test_nobody_waits_again_where_the_right_is_given(api: Api) -> None:
    """What containers have is shown without it, and would be missing until each is read."""
    api.claims = {f"c{number}": Forbidden("reading", "resourceclaims", "no right", 403) for number in range(99)}
    api.all_wanted(api.claims)
    await asyncio.sleep(1)
    awaited: list[str] = []
    api.reader.on_read = lambda: awaited.extend(name for name in api.claims if api.is_awaited(name, name))
    api.claims = dict.fromkeys([*api.claims, "late"], claim("gpu-0"))
    # one comes while the first answer is on its way, and is shown without it
    api.seconds = 10.0
    while len(api.asked) == 1:
        await asyncio.sleep(1)
    api.seconds = 0.0
    api.all_wanted(api.claims)
    assert not api.is_awaited("late", "late")
    assert len(await api.names_asked(RARELY_SECONDS)) == 99
    assert awaited == []
    # but for one that comes
    api.all_wanted(["c0", "new"])
    assert [name for name in ("c0", "new") if api.is_awaited(name, name)] == ["new"]


@pytest.mark.parametrize("error", [NotFound("reading", "x", "no", 404), TooBig("reading", "x", "more than 1 byte")])
async def test_an_unreadable_one_is_tried_rarely(api: Api, error: ApiError, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    api.claims["c"] = error
    api.wanted("c", "p")
    assert len(await api.names_asked(RARELY_SECONDS / 2)) == 1
    assert (api.of("c", "p"), api.is_awaited("c", "p"), api.read) == (None, False, 1)
    assert 3 <= len(await api.names_asked(4 * RARELY_SECONDS)) <= 5
    assert log_lines(caplog.records) == [("INFO", REFUSED, {"error": str(error)})]
    # another pod, another claim
    api.claims["c"] = claim("gpu-0")
    api.wanted("c", "q")
    assert await api.names_asked() == ["c"]
    # that was the end of it
    api.claims["c"] = error
    api.wanted("c", "r")
    assert await api.names_asked() == ["c"]
    assert [record.message for record in caplog.records] == [REFUSED] * 2


@pytest.mark.parametrize(
    "error",
    [
        Unreachable("reading", "x", "refused"),
        Unavailable("reading", "x", "timeout"),
        Unauthorized("reading", "x", "token", 401),
    ],
)
async def test_a_server_away_is_asked_ever_later(api: Api, error: ApiError, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    api.claims["c"] = error
    api.wanted("c", "p")
    await asyncio.sleep(2000)
    times = [seconds for _, seconds in api.asked]
    pauses = [later - earlier for earlier, later in pairwise(times)]
    assert [round(pause / 2**n) for n, pause in enumerate(pauses[:8])] == [1] * 8
    assert max(pauses) < 300 * 1.2 + 1
    assert caplog.records == [], "the client has logged it"
    api.claims["c"] = claim("gpu-0")
    await asyncio.sleep(400)
    assert api.of("c", "p") == claim("gpu-0")
    # the next time it is away is a first one again
    count, api.claims["c"] = len(api.asked), error
    api.wanted("c", "q")
    await asyncio.sleep(2)
    assert len(api.asked) == count + 2


async def test_nobody_waits_for_an_api_server_that_does_not_answer(api: Api) -> None:
    api.claims = {name: Unavailable("reading", "x", "timeout") for name in ("a", "b")}
    api.seconds = 1.0
    api.all_wanted(api.claims)
    assert api.is_awaited("b", "b")
    await asyncio.sleep(1.5)
    assert [name for name, _ in api.asked] == ["a", "b"]
    # of which nobody knows yet
    assert not api.is_awaited("b", "b")
    assert not api.is_awaited("a", "a")


async def test_many_claims_are_read_at_a_pace(api: Api) -> None:
    names = [f"c{number:04}" for number in range(200)]
    api.claims = {name: claim("gpu-0") for name in names}
    api.all_wanted(names)
    assert len(await api.names_asked(1.0)) == pytest.approx(AT_ONCE + PER_SECOND, abs=2)
    assert len(await api.names_asked(60)) + AT_ONCE + PER_SECOND == pytest.approx(200, abs=2)


async def test_more_claims_than_a_node_can_have_are_not_read(api: Api, caplog: pytest.LogCaptureFixture) -> None:
    """Those that are known stay; nobody waits for the others."""
    names = [f"c{number:04}" for number in range(MAX_CLAIMS + 50)]
    api.claims = {name: claim("gpu-0") for name in names}
    api.all_wanted(names[50:])
    await asyncio.sleep(600)
    assert caplog.records == [], "as many as there may be"
    for _ in range(2):
        api.all_wanted(names)
    assert api.of(names[-1], names[-1]) == claim("gpu-0")
    assert not api.is_awaited(names[0], names[0])
    assert await api.names_asked(600) == []
    assert [record.message for record in caplog.records] == ["claims are not read"]

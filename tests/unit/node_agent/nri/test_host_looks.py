"""A file system that hangs: whoever asks for its files is refused, and nobody else notices."""

import asyncio
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest
from nodedevice_agent.devicemanager.runtime import InjectionRefused
from nodedevice_agent.nri import host_looks
from nodedevice_agent.nri.host_devices import HostNode, look_up
from nodedevice_agent.nri.host_looks import MAX_LOOKS, HostLooks

from tests.fakes.runtime_handler import PATIENCE_SECONDS

# its own process, as what hangs would hang this one
_ENDS = """
import asyncio, threading
from nodedevice_agent.nri import host_looks

async def main():
    began = threading.Event()
    host_looks.look_up = lambda path: (began.set(), threading.Event().wait())
    asking = asyncio.create_task(host_looks.HostLooks().look_up(["/hangs"]))
    while not began.is_set():
        await asyncio.sleep(0)
    asking.cancel()

asyncio.run(main())
print("ended")
"""


class Hanging:
    """Paths that begin with /hangs do until they are let go; all others are what they are."""

    def __init__(self) -> None:
        self.looked: list[str] = []
        self.gate = threading.Event()

    def __call__(self, path: str) -> tuple[HostNode, ...]:
        self.looked.append(path)
        if path.startswith("/hangs"):
            assert self.gate.wait(PATIENCE_SECONDS)
            return ()
        return look_up(path)


@pytest.fixture
def hanging(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hanging]:
    hanging = Hanging()
    monkeypatch.setattr(host_looks, "look_up", hanging)
    yield hanging
    hanging.gate.set()


async def given_up(looks: HostLooks, hanging: Hanging, *paths: str) -> None:
    """Somebody has asked and waited, as long as he could, for the first path that hangs."""
    first = min(path for path in paths if path.startswith("/hangs"))
    asking = asyncio.create_task(looks.look_up(paths))
    async with asyncio.timeout(PATIENCE_SECONDS):
        while first not in hanging.looked:
            await asyncio.sleep(0)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking


async def test_each_path_by_itself() -> None:
    found = await HostLooks().look_up(["/dev/zero", "/dev/null", "/dev/zero"])
    assert {path: nodes[0].minor for path, nodes in found.items()} == {"/dev/null": 3, "/dev/zero": 5}


async def test_none_needs_no_look(hanging: Hanging) -> None:
    assert await HostLooks().look_up([]) == {}
    assert hanging.looked == []


async def test_one_that_cannot_be_had_is_named() -> None:
    with pytest.raises(InjectionRefused, match="/dev/nodedevice-none"):
        await HostLooks().look_up(["/dev/null", "/dev/nodedevice-none"])


async def test_one_that_hangs_is_looked_at_once_and_refused_at_once(hanging: Hanging) -> None:
    looks = HostLooks()
    await given_up(looks, hanging, "/hangs/a", "/dev/null")
    for _ in range(2 * MAX_LOOKS):
        with pytest.raises(InjectionRefused, match=r"/hangs/a .*still being looked at"):
            await looks.look_up(["/dev/null", "/hangs/a"])
    assert hanging.looked.count("/hangs/a") == 1


async def test_it_harms_no_other(hanging: Hanging) -> None:
    looks = HostLooks()
    for number in range(MAX_LOOKS - 1):
        await given_up(looks, hanging, f"/hangs/{number}")
    assert (await looks.look_up(["/dev/null"]))["/dev/null"][0].minor == 3


async def test_there_is_a_bound_on_what_hangs(hanging: Hanging) -> None:
    looks = HostLooks()
    for number in range(MAX_LOOKS):
        await given_up(looks, hanging, f"/hangs/{number}")
    with pytest.raises(InjectionRefused, match=r"8 looks .* hang, one of them at /hangs/0"):
        await looks.look_up(["/dev/null"])
    hanging.gate.set()
    await passed(looks, "/dev/null")


async def test_one_that_hangs_no_more_is_looked_at_anew(hanging: Hanging) -> None:
    looks = HostLooks()
    await given_up(looks, hanging, "/hangs/a", "/hangs/b")
    hanging.gate.set()
    await passed(looks, "/hangs/a")
    # nobody waited for it any more
    assert "/hangs/b" not in hanging.looked


async def test_a_fault_is_the_askers(monkeypatch: pytest.MonkeyPatch) -> None:
    def fault(path: str) -> tuple[HostNode, ...]:
        raise ZeroDivisionError(path)

    monkeypatch.setattr(host_looks, "look_up", fault)
    with pytest.raises(ZeroDivisionError):
        await HostLooks().look_up(["/dev/null"])


def test_the_agent_ends_all_the_same() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _ENDS], timeout=PATIENCE_SECONDS, capture_output=True, text=True, check=True
    )
    assert (done.stdout, done.stderr) == ("ended\n", "")


async def passed(looks: HostLooks, path: str) -> None:
    """It is looked at again as soon as the thread that hung has ended."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            try:
                await looks.look_up([path])
            except InjectionRefused:
                await asyncio.sleep(0)
            else:
                return

"""What NVIDIA's driver is asked, by a process of its own, and each way in which that ends."""

import asyncio
from typing import Any

import pytest
from nodedevice_agent.plugins.nvml.discover import nvidia_gpus
from nodedevice_agent.plugins.nvml.gpu import Gpu
from nodedevice_agent.plugins.nvml.reader.messages import Alive, Found, Message, Problem, Readings

from tests.fakes.virtual_time import later, virtual_time
from tests.unit.node_agent.plugins.nvml.reader.children import Child
from tests.unit.node_agent.plugins.nvml.reader.children import children as children

pytestmark = virtual_time
GPU = Gpu("GPU-a", "NVIDIA T4")


async def asked(children: list[Child], *messages: Message) -> "asyncio.Task[tuple[tuple[Gpu, ...], str]]":
    """The answer to come, after the reader has sent these."""
    asking = asyncio.create_task(nvidia_gpus((), "/"))
    await later(0.01)
    children[0].say(*messages)
    return asking


@pytest.mark.parametrize(
    ("messages", "gpus", "why_none"),
    [
        ([Found("580", [GPU, Gpu("../../etc"), Gpu("GPU-b")])], (GPU, Gpu("GPU-b")), ""),
        ([Alive(), Readings({}), Found("580", [GPU])], (GPU,), ""),
        ([Found("580", []), Problem("NoGpu", "none")], (), ""),
        ([Problem("DriverNotLoaded", "modprobe nvidia"), Found("580", [GPU])], (), "modprobe nvidia"),
    ],
)
async def test_the_first_answer_counts(
    children: list[Child], messages: list[Message], gpus: tuple[Gpu, ...], why_none: str
) -> None:
    assert await (await asked(children, *messages)) == (gpus, why_none)
    assert [child.kills for child in children] == [1]


@pytest.mark.parametrize(
    ("status", "why_none"), [(0, ""), (1, "NVIDIA's driver cannot be asked: exited with status 1: no memory")]
)
async def test_a_reader_that_ends_without_one(children: list[Child], status: int, why_none: str) -> None:
    asking = await asked(children, Alive())
    children[0].exit(status, b"no memory\n")
    assert await asking == ((), why_none)
    assert children[0].kills == 1


async def test_a_reader_that_lives_and_has_no_answer(children: list[Child]) -> None:
    asking = await asked(children)
    for _ in range(2):
        await asyncio.sleep(9)
        assert not asking.done()
        children[0].say(Alive())
        await later(0.01)
    assert await asking == ((), "NVIDIA's driver cannot be asked: no inventory within 20 s")
    assert children[0].kills == 1


async def test_a_reader_that_cannot_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    async def start(*_: Any, **__: Any) -> Child:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(asyncio, "create_subprocess_exec", start)
    assert await nvidia_gpus((), "/") == ((), "NVIDIA's driver cannot be asked: Resource temporarily unavailable")

"""Who has much to report keeps nobody else waiting."""

from nodedevice_operator.observability.fair_queue import FairQueue

from tests.fakes.virtual_time import virtual_time

pytestmark = virtual_time


async def all_of(queue: FairQueue[str], count: int) -> list[str]:
    return [await queue.get() for _ in range(count)]


async def test_origins_take_turns_and_each_keeps_its_order() -> None:
    queue = FairQueue[str](100)
    for item in ("a1", "a2", "a3", "b1", "c1", "c2"):
        assert queue.put(item, item[0]) is None
    assert await all_of(queue, 3) == ["a1", "b1", "c1"]
    # one that comes again is at the end of those that wait
    queue.put("b2", "b")
    assert await all_of(queue, 4) == ["a2", "c2", "b2", "a3"]


async def test_what_is_too_much_is_taken_from_whoever_has_most() -> None:
    queue = FairQueue[str](4)
    for item in ("b1", "a1", "a2", "a3"):
        assert queue.put(item, item[0]) is None
    assert queue.put("c1", "c") == "a1"
    assert queue.put("a4", "a") == "a2"
    assert await all_of(queue, 4) == ["b1", "a3", "c1", "a4"]

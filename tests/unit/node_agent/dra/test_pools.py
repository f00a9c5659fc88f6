"""Which slices make a pool: its newest generation once it is complete, and the last complete one until then."""

import random

import pytest
from nodedevice_agent.dra import pools
from nodedevice_agent.dra.devices import Device
from nodedevice_agent.dra.pools import Pool, Pools

from tests.unit.node_agent.dra.published import DRIVER, KEY, NODE, Json, a_slice, device, pools_of


def pool_of(found: Pools, key: tuple[str, str] = KEY) -> Pool:
    pool = found.get(key)
    assert pool is not None
    return pool


def names_of(found: Pools) -> list[str]:
    return [*pool_of(found).devices]


def test_one_slice_is_a_pool() -> None:
    found = Pools()
    assert found.get(KEY) is None
    assert found.put(a_slice("s", ["b", "a"])) == {KEY}
    pool = pool_of(found)
    assert ([*pool.devices], pool.key, pool.is_complete, pool.is_whole) == (["a", "b"], KEY, True, True)
    # nothing is wrong with it
    assert pool == Pool(DRIVER, NODE, 1, {name: Device(name) for name in "ab"})
    assert found.put(a_slice("s", ["b", "a"])) == set()
    assert found.remove("s") == {KEY}
    assert found.get(KEY) is None
    assert found.remove("s") == set()


def test_the_last_complete_generation_counts_until_the_next_is_complete() -> None:
    found = pools_of(*(a_slice(name, [f"{name}-old"], count=2) for name in ("s0", "s1")))
    found.put(a_slice("s0", ["s0-new"], count=3, generation=2))
    pool = pool_of(found)
    assert (names_of(found), pool.missing, pool.count, pool.is_whole) == (["s0-old", "s1-old"], 2, 3, True)
    found.put(a_slice("s2", ["s2-new"], count=3, generation=2))
    assert pool_of(found).missing == 1
    # ... also where slices of it are gone
    found.remove("s1")
    assert names_of(found) == ["s0-old", "s1-old"]
    assert found.put(a_slice("s3", ["s3-new"], count=3, generation=2)) == {KEY}
    assert (names_of(found), pool_of(found).missing) == (["s0-new", "s2-new", "s3-new"], 0)


def test_without_a_complete_generation_what_is_published_is_shown() -> None:
    found = pools_of(a_slice("s0", ["a"], count=3))
    pool = pool_of(found)
    assert (names_of(found), pool.missing, pool.is_whole, pool.is_complete) == (["a"], 2, False, False)
    found.put(a_slice("s1", ["b"], count=3, generation=2))
    assert names_of(found) == ["b"]
    found.put(a_slice("s2", ["c"], count=3, generation=2))
    assert names_of(found) == ["b", "c"]


def test_an_older_generation_never_counts_again() -> None:
    found = pools_of(a_slice("s0", ["new"], generation=5))
    assert found.put(a_slice("s1", ["old"], generation=4)) == set()
    assert names_of(found) == ["new"]


def test_a_slice_may_move_to_another_pool() -> None:
    found = pools_of(a_slice("s", ["a"]))
    assert found.put(a_slice("s", ["a"], pool="other")) == {KEY, (DRIVER, "other")}
    assert found.get(KEY) is None


def test_a_device_in_two_slices_is_there_once_and_named() -> None:
    devices = [f"d{n}" for n in range(9)]
    one = a_slice("s1", [*devices, "b"], count=2)
    other = a_slice("s0", [device(name, attributes={"from": "s0"}) for name in devices], count=2)
    pool = pool_of(pools_of(one, other))
    assert [*pool.devices] == ["b", *devices]
    assert pool.twice == ("d0 in s0 and s1", "d1 in s0 and s1", "d2 in s0 and s1")
    assert pool.devices["d0"].attributes == {"from": "s0"}
    assert pool_of(pools_of(other, one)) == pool, "the same whichever came first"


def counted(name: str, *counters: str) -> Json:
    """A device that consumes of these."""
    return device(name, consumesCounters=[{"counterSet": "gpu", "counters": {each: {"value": 1} for each in counters}}])


def counters(*names: str) -> list[Json]:
    return [{"name": "gpu", "counters": {name: {"value": 2} for name in names}}]


def test_a_pool_with_more_slices_than_it_says_is_incomplete() -> None:
    found = pools_of(a_slice("s0", ["s0"]), a_slice("s1", ["s1"]))
    pool = pool_of(found)
    assert (names_of(found), pool.count, pool.missing, pool.surplus) == (["s0", "s1"], 1, 0, 1)
    assert (pool.is_complete, pool.is_whole) == (False, True)
    # a driver that adds one changes the number in one slice after the other
    found.put(a_slice("s1", ["s1"], count=2))
    assert (pool_of(found).surplus, pool_of(found).is_complete) == (0, True)
    found.put(a_slice("s1", ["s1"]))
    found.remove("s0")
    assert (names_of(found), pool_of(found).surplus, pool_of(found).is_complete) == (["s1"], 0, True)


def test_counters_that_are_nowhere_or_twice_make_a_pool_invalid() -> None:
    found = pools_of(a_slice("s0", [counted("a", "memory"), counted("b", "cores", "copies"), "c"], count=2))
    # they may be in the slice that is not there yet
    assert pool_of(found).is_valid
    found.put(a_slice("s1", count=2, sharedCounters=counters("memory", "cores", "copies")))
    assert (pool_of(found).uncounted, pool_of(found).is_valid) == ((), True)
    found.put(a_slice("s1", count=2, sharedCounters=counters("memory")))
    assert (pool_of(found).uncounted, pool_of(found).is_valid) == (("cores of gpu for b", "copies of gpu for b"), False)
    found.put(a_slice("s1", count=3, sharedCounters=counters("memory", "cores")))
    found.put(a_slice("s2", count=3, sharedCounters=counters("copies")))
    assert pool_of(found).uncounted == ("gpu in s1 and s2",)
    # no more than a few are named
    found.put(a_slice("s3", [counted("d", *"123456")], pool="other"))
    assert pool_of(found, (DRIVER, "other")).uncounted == ("1 of gpu for d", "2 of gpu for d", "3 of gpu for d")


def test_one_of_an_unknown_form_is_missing_by_name() -> None:
    found = pools_of(a_slice("s0", ["a"]), a_slice("s0", [{"name": 7}], generation=2))
    pool = pool_of(found)
    assert (names_of(found), pool.missing, pool.unread) == (["a"], 1, ("s0",))
    found.put(a_slice("s1", [{"name": 7}], pool="other"))
    other = pool_of(found, (DRIVER, "other"))
    assert ([*other.devices], other.missing, other.is_whole) == ([], 1, False)
    assert (other.key, other.generation, other.problem) == ((DRIVER, "other"), 1, pool.problem)
    assert "of a form that this release does not know" in pool.problem


def test_whatever_the_order_a_complete_generation_is_shown() -> None:
    chance = random.Random(7)
    for _ in range(50):
        found, slices = Pools(), [(f"s{n}", generation) for n in range(4) for generation in (1, 2, 3)]
        chance.shuffle(slices)
        latest: dict[str, int] = {}
        for name, generation in slices:
            # of one slice a later generation comes later
            if latest.get(name, 0) < generation:
                latest[name] = generation
                found.put(a_slice(name, [f"{name}-{generation}"], generation=generation, count=4))
        shown = {name.rpartition("-")[2] for name in names_of(found)}
        assert len(shown) == 1 if pool_of(found).is_whole else shown
        if set(latest.values()) == {3}:
            assert shown == {"3"}
            assert pool_of(found).is_complete


def test_a_driver_has_so_many_slices_and_leaves_room_for_others() -> None:
    found = Pools()

    def fill(driver: str, most: int) -> int:
        taken = 0
        for n in range(most):
            if found.has_room(f"{driver}-{n}", driver):
                found.put(a_slice(f"{driver}-{n}", ["d"], driver=driver, count=most))
                taken += 1
        return taken

    assert fill("a.com", 500) == pools.MAX_SLICES_OF_DRIVER
    assert found.has_room("a.com-0", "a.com")
    assert pool_of(found, ("a.com", NODE)).missing == 500 - pools.MAX_SLICES_OF_DRIVER
    assert fill("b.com", 500) == pools.MAX_SLICES - pools.MAX_SLICES_OF_DRIVER
    assert [fill(f"c{n}.com", 50) for n in range(20)] == [pools.MIN_SLICES_OF_DRIVER] * 16 + [0] * 4
    found = Pools()
    counts = (pools.MAX_SLICES_OF_DRIVER, 99, pools.MAX_SLICES - pools.MAX_SLICES_OF_DRIVER - 99 - 1)
    assert [fill(f"d{n}.com", count) for n, count in enumerate(counts)] == [*counts]
    # one more is the last that does not have to leave room
    assert fill("d3.com", 1) == 1
    assert not found.has_room("another", "d1.com")


def test_attributes_are_kept_as_long_as_there_is_room() -> None:
    found, taken = Pools(), 0
    many = [device(f"d{n}", attributes={f"a{i}": "x" for i in range(32)}) for n in range(128)]
    while found.has_room_for_attributes(f"s{taken}"):
        found.put(a_slice(f"s{taken}", many, count=99))
        taken += 1
    assert taken == pools.MAX_ATTRIBUTES // (128 * 32)
    # its own are replaced
    assert found.has_room_for_attributes("s0")
    found.remove("s0")
    assert found.has_room_for_attributes("another")


@pytest.mark.parametrize("count", [0, -3])
def test_a_count_below_one_is_one(count: int) -> None:
    assert pool_of(pools_of(a_slice("s", ["a"], count=count))).is_complete

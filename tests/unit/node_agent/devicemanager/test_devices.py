"""Which listed devices are taken: each ID once, the worse health wins, and nothing impossible comes through."""

from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from nodedevice_agent.devicemanager.resources.devices import MAX_DEVICES, MAX_ID_OCTETS, Device, accept
from nodedevice_api.device_ids import MAX_SHOWN, shown_id
from nodedevice_api.parts import PartRules, Placement

SICK = False
LONGEST, TOO_LONG = (shown_id("x" * length) for length in (MAX_ID_OCTETS, MAX_ID_OCTETS + 1))


@pytest.mark.kubelet("weak spot 29")
@pytest.mark.parametrize(
    ("listed", "accepted"),
    [
        pytest.param([], {}, id="nothing"),
        pytest.param([Device("a"), Device("b")], {"a": True, "b": True}, id="plain"),
        pytest.param([Device("a"), Device("a", SICK)], {"a": False}, id="twice: sick after healthy"),
        pytest.param([Device("a", SICK), Device("a")], {"a": False}, id="twice: healthy after sick"),
        pytest.param([Device("a"), Device("a")], {"a": True}, id="twice: the same"),
        pytest.param([Device(shown_id(""))], {"escaped:": True}, id="empty"),
        pytest.param([Device(LONGEST)], {LONGEST: True}, id="longest"),
        pytest.param([Device(TOO_LONG), Device("a")], {"a": True}, id="too long"),
        pytest.param([Device("GPU ☃/0:1")], {"GPU ☃/0:1": True}, id="any printable text"),
    ],
)
def test_accepts_each_id_once(listed: list[Device], accepted: dict[str, bool]) -> None:
    assert {name: device.healthy for name, device in accept(listed).devices.items()} == accepted


@pytest.mark.parametrize(
    ("listed", "parts"),
    [
        pytest.param([Device("a")], [], id="nothing to report"),
        pytest.param([Device("a"), Device("a")], ["1 listed more than once", "'a'"], id="twice"),
        pytest.param([Device(TOO_LONG)], ["1 rejected ('escaped:xx", "an ID has 4 MiB at most"], id="too long"),
        pytest.param([Device(c) for c in "vwxyz" * 2], ["5 listed more", "…"], id="many: some are named"),
        pytest.param([Device(TOO_LONG), Device("a"), Device("a")], ["1 listed more", "1 rejected"], id="both"),
    ],
)
def test_reports_rejected_ids(listed: list[Device], parts: list[str]) -> None:
    error = accept(listed).id_error
    assert all(part in error for part in parts)
    assert bool(error) == bool(parts)


def test_a_list_that_is_too_long_is_refused_whole_and_the_one_before_it_stays() -> None:
    known = accept([Device("a"), Device("b", healthy=False)])
    accepted = accept((Device(f"{number:06}") for number in range(MAX_DEVICES + 1)), known=known)
    assert (accepted.devices, accepted.healthy_ids) == (known.devices, ("a",))
    assert f"may list {MAX_DEVICES} devices in all" in accepted.id_error
    assert (accepted.is_refused, known.is_refused) == (True, False)
    # another one changes nothing
    assert accept((Device(f"x{number}") for number in range(MAX_DEVICES + 1)), known=accepted) is accepted


@pytest.mark.parametrize("device_id", ["", "a"])
def test_a_list_that_does_not_end_is_read_to_the_bound(device_id: str) -> None:
    assert accept(Device(device_id) for _ in count()).is_refused


def test_as_many_devices_as_the_limit_are_no_error() -> None:
    assert accept(Device(str(number)) for number in range(MAX_DEVICES)).id_error == ""


LISTS = st.lists(st.builds(Device, st.sampled_from("abcd"), st.booleans(), st.sampled_from([(), (0,), (1,)])))


@given(LISTS, st.none() | LISTS, st.sampled_from(["", "broken"]))
def test_what_equals_the_list_before_is_reused(first: list[Device], second: list[Device] | None, trouble: str) -> None:
    known, listed = accept(first), first if second is None else second
    plain = accept(map(structs.replace, listed), trouble)
    found = accept(map(structs.replace, listed), trouble, known)
    assert found == plain
    assert (found is known) is (plain == known)
    for name, device in found.devices.items():
        assert (device is known.devices.get(name)) is (device == known.devices.get(name))


@given(LISTS)
def test_ids_are_sorted_and_split_by_health(listed: list[Device]) -> None:
    found = accept(listed)
    healths = [(i, found.devices[i].healthy) for i in sorted(found.devices)]
    assert found.ids == tuple(i for i, _ in healths)
    assert found.healthy_ids == tuple(i for i, healthy in healths if healthy)
    assert found.unhealthy_ids == tuple(i for i, healthy in healths if not healthy)


@pytest.mark.kubelet("weak spot 29")
@given(st.lists(st.builds(Device, st.text(max_size=MAX_SHOWN + 5).map(shown_id), st.booleans())))
def test_whatever_is_listed_counts_and_gives_a_short_printable_error(listed: list[Device]) -> None:
    accepted = accept(listed)
    assert accepted.devices.keys() == {device.id for device in listed}
    assert accepted.id_error.isprintable()
    assert len(accepted.id_error) < 1024
    sick = {device.id for device in listed if not device.healthy}
    assert all(not device.healthy for name, device in accepted.devices.items() if name in sick)


@pytest.mark.parametrize(("is_shared", "kinds"), [(True, [["a", "b"], ["c"]]), (False, [["a"], ["b"], ["c"]])])
def test_shared_devices_that_are_alike_are_of_one_kind(is_shared: bool, kinds: list[list[str]]) -> None:
    devices = [Device(name, identity=(number,), is_shared=is_shared) for name, number in zip("abc", "112", strict=True)]
    assert [ids for _, ids in accept([*devices, Device("d")]).kinds.values()] == kinds


MORE = {
    "plain": {"x": Device("x", SICK)},
    "a part": {"p-1": Device("p-1", SICK, parent="p")},
    "with a node": {"x": Device("x", SICK, numa_nodes=(1,)), "y": Device("y", SICK)},
    "with another ID, and what it is": {"x": Device("x", SICK, identity=("c1:3",), aliases=("y",))},
}
LISTED = {
    "none": [],
    "plain": [Device("a"), Device("z", SICK)],
    "parts": [Device("p-0", parent="p"), Device("p-2", parent="p")],
    "with nodes": [Device("a", numa_nodes=(1,)), Device("b", numa_nodes=(0, 1)), Device("c")],
    "with other IDs, and what they are": [Device("a", identity=("c1:1",), aliases=("b",))],
}


@pytest.mark.parametrize("more", MORE.values(), ids=MORE)
@pytest.mark.parametrize("listed", LISTED.values(), ids=LISTED)
def test_with_unhealthy_devices_all_is_as_if_they_were_listed(listed: list[Device], more: dict[str, Device]) -> None:
    found, expected = accept(listed).with_unhealthy(more), accept([*listed, *more.values()])
    derived = ("devices", "ids", "healthy_ids", "unhealthy_ids", "by_parent", "has_identities", "has_aliases")
    assert all(getattr(found, name) == getattr(expected, name) for name in derived)
    # whether nothing is said, or that it is nowhere
    assert dict(found.at_nodes) == dict(expected.at_nodes)


def test_of_parts_each_has_an_id_of_its_parent() -> None:
    listed = [Device("p-x", parent="p"), Device("q-0", parent="p"), Device("p-0", parent="p")]
    found = accept(listed, part_rules=PartRules(Placement.SAME_PARENT))
    assert found.ids == ("p-0",)
    assert "2 rejected ('p-x', 'q-0'): the ID of a part is its parent's" in found.id_error


def test_sizes() -> None:
    assert accept([Device("d" * 100)]).size.octets == accept([Device("d")]).size.octets + 99
    # Of a long ID what the checkpoint may need counts, in which JSON has six characters for one.
    short, long = (accept([Device(shown_id(c))]).size.octets for c in ("d", "d" * 1000))
    assert long - short >= 6000
    few, many = (accept([Device("d", numa_nodes=tuple(range(count)))]) for count in (1, 9))
    assert few.size.octets < many.size.octets
    assert accept(map(Device, "abc")).size.octets == 3 * accept([Device("a")]).size.octets


def test_a_long_list_is_sorted() -> None:
    """In pieces of 4,096."""
    ids = [f"d{number}" for number in range(3 * 4096 + 7)]
    assert accept(map(Device, reversed(ids))).ids == tuple(sorted(ids))

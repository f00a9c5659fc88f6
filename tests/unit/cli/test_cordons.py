"""What a cordon changes and what follows from it, for each state of a device: patches and sentences."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final

import pytest
from kubectl_nodedevice import cordons
from kubectl_nodedevice.cluster import (
    Allocation,
    Condition,
    Cordon,
    Device,
    Endpoint,
    HeldParts,
    Meta,
    NodeDevice,
    PartCounts,
)
from kubectl_nodedevice.cordons import Change, Done
from kubectl_nodedevice.errors import UsageProblem
from kubectl_nodedevice.shell import NONE

_NOW: Final = datetime(2026, 11, 28, 10, 0, 0, tzinfo=UTC)
_AT: Final = "2026-11-28T09:00:00Z"
_ME: Final = Cordon("", "fan", "alice", _AT)
_VERSION: Final = {"op": "replace", "path": "/metadata/resourceVersion", "value": "7"}
_LIST: Final = "/spec/cordonedDevices"
_PARTS: Final = PartCounts(4, 4, 1, 3)
_GPU: Final = "example.com/gpu"


def node(*devices: str | Device, resource: str = _GPU, **more: Any) -> NodeDevice:
    """Of node n, with healthy devices."""
    made = tuple(Device(each, "Healthy") if isinstance(each, str) else each for each in devices)
    meta = Meta(f"n.{resource}", resource_version="7")
    return NodeDevice(meta, "n", resource, devices=made, **{"endpoint": Endpoint("Running"), **more})


def held(*device_ids: str, pod: str = "p", **more: Any) -> Allocation:
    return Allocation("ns", pod, f"uid-{pod}", "c", device_ids=device_ids, **more)


# -- which --------------------------------------------------------------------------------------------------------------------


def test_each_id_is_of_the_resource_that_has_it() -> None:
    gpu, nic = node("g0", "g1"), node("n0", resource="example.com/nic", cordons=(Cordon("old"),))
    split = node(Device("s", parts=_PARTS), resource="example.com/part")
    found = [gpu, nic, split]
    ids = ["g0", "n0", "g1", "old", "s::3", "s"]
    assert cordons.targets(found, ids) == [(gpu, ["g0", "g1"]), (nic, ["n0", "old"]), (split, ["s::3", "s"])]
    assert cordons.targets([gpu], ["*", "all"]) == [(gpu, ["*", "all"])]


@pytest.mark.parametrize(
    ("device_id", "code", "problem", "remedy"),
    [
        ("x", "NoSuchDevice", "n has no device x", f"it has d, g ({_GPU}); d (example.com/nic); none (a.b/c)"),
        ("d", "AmbiguousDevice", f"d may be a device of {_GPU}, example.com/nic", "name one of them by --resource"),
    ],
)
def test_an_id_that_means_nothing_or_too_much(device_id: str, code: str, problem: str, remedy: str) -> None:
    with pytest.raises(UsageProblem) as error:
        cordons.targets([node("d", "g"), node("d", resource="example.com/nic"), node(resource="a.b/c")], [device_id])
    assert (error.value.code, error.value.problem, error.value.remedy) == (code, problem, remedy)


def test_parts_of_a_device() -> None:
    found = node(Device("s", parts=_PARTS))
    assert [cordons.has(found, each) for each in ("s::3", "s-3", "s::x", "t::3")] == [True, True, False, False]


@pytest.mark.parametrize("more", [{"endpoint": Endpoint("Stopped")}, {"devices_omitted": 1}])
def test_an_id_may_be_of_a_device_that_is_not_listed(more: dict[str, Any]) -> None:
    known, unknown = node("d", endpoint=Endpoint("")), node("d", **more)
    assert (cordons.knows_all(known), cordons.knows_all(unknown)) == (True, False)
    assert cordons.targets([unknown], ["x"]) == [(unknown, ["x"])]
    with pytest.raises(UsageProblem):
        cordons.targets([known], ["x"])


# -- what is changed ----------------------------------------------------------------------------------------------------------

_THEIRS: Final = Cordon("a", "ecc", "bob", _AT)
_OWN: Final = Cordon("a", "fan", "alice", "2026-01-01T00:00:00Z")
_BY_FORCE: Final = "with --take-over the cordon becomes yours"


@pytest.mark.parametrize(
    ("there", "takes_over", "code", "text", "is_replaced"),
    [
        (_OWN, False, "Unchanged", "cordoned already by alice: fan", False),
        (replace(_OWN, reason="old"), False, "Cordoned", "cordoned; it was cordoned by alice: old", True),
        (_THEIRS, False, "OthersCordon", f"cordoned already by bob: ecc; {_BY_FORCE}", False),
        (_THEIRS, True, "Cordoned", "cordoned; it was cordoned by bob: ecc", True),
        (Cordon("a"), False, "OthersCordon", f"cordoned already; {_BY_FORCE}", False),
    ],
)
def test_a_cordon_that_is_there(there: Cordon, takes_over: bool, code: str, text: str, is_replaced: bool) -> None:
    found = node("a", "b", cordons=(Cordon("b"), there))
    change = cordons.cordon(found, ["a"], _ME, takes_over=takes_over)
    entry = {"id": "a", "reason": "fan", "by": "alice", "at": _AT}
    patch: list[Mapping[str, Any]] = [_VERSION, {"op": "replace", "path": f"{_LIST}/1", "value": entry}]
    assert change == Change([Done("a", code, text, there)], patch if is_replaced else [])


def test_several_are_lifted_from_the_last_one_on_and_each_once() -> None:
    def lifted(*ids: str, **of: Any) -> Change:
        there = tuple(Cordon(each, by="alice") for each in "xab")
        return cordons.uncordon(node("a", "b", **{"cordons": there, **of}), ids, "alice", takes_over=False)

    change = lifted("a", "b", "a", "x")
    assert [each["path"] for each in change.patch[1:]] == [f"{_LIST}/{at}" for at in (2, 1, 0)]
    assert [each.code for each in change.done] == ["Uncordoned"] * 4
    assert [each.code for each in lifted("none", "a").done] == ["Unchanged", "Uncordoned"]
    theirs, mine = lifted("a", "b", cordons=(_THEIRS, Cordon("b", by="alice"))).done
    words = "cordoned by bob: ecc; --take-over lifts it all the same"
    assert (theirs.code, theirs.text, mine.code) == ("OthersCordon", words, "Uncordoned")


_WHOLE: Final = Cordon("all", "fan", "bob")
_REMEMBERED = (
    "its agent remembers a cordon, which the operator will set again; "
    "uncordon it then, or cordon it and uncordon it now"
)


@pytest.mark.parametrize(
    ("more", "code", "text", "cordon"),
    [
        ({}, "Unchanged", "not cordoned", None),
        ({"cordons": (_WHOLE,)}, "NotCordoned", "not cordoned by its own ID, but with all devices by bob: fan", _WHOLE),
        ({"remembered_cordons": (Cordon("a"),)}, "NotCordoned", _REMEMBERED, None),
        ({"remembered_cordons": (Cordon("b"),)}, "Unchanged", "not cordoned", None),
    ],
)
def test_what_is_not_cordoned(more: dict[str, Any], code: str, text: str, cordon: Cordon | None) -> None:
    change = cordons.uncordon(node("a", **more), ["a"], "alice", takes_over=True)
    [done] = change.done
    assert (replace(done, command=NONE), change.patch) == (Done("a", code, text, cordon), [])
    lifts = "kubectl nodedevice uncordon n --resource example.com/gpu --device all --take-over"
    assert done.command == (lifts if cordon else "")


_ALICES: Final = Cordon("b", "fan", "alice")
_BOTH: Final = "--device b --device a --take-over"


@pytest.mark.parametrize(
    ("there", "what", "one_by_one", "options"),
    [
        ((_ALICES,), "not cordoned as a whole", "b by alice: fan", "--device b"),
        ((_ALICES, _THEIRS), "not cordoned as a whole", "b by alice: fan, a by bob: ecc", _BOTH),
        ((Cordon("all", by="alice"), _ALICES), "uncordoned", "b by alice: fan", "--device b"),
        ((), "not cordoned", "", ""),
    ],
)
def test_all_devices_are_lifted_but_those_that_are_cordoned_one_by_one(
    there: tuple[Cordon, ...], what: str, one_by_one: str, options: str
) -> None:
    [done] = cordons.uncordon(node("a", "b", cordons=there), ["*"], "alice", takes_over=False).done
    assert done.code == ("Uncordoned" if what == "uncordoned" else "Unchanged")
    assert done.text == (f"{what}; cordoned one by one: {one_by_one}" if one_by_one else what)
    assert done.command == (f"kubectl nodedevice uncordon n --resource example.com/gpu {options}" if options else "")
    # ... also where they are asked for with it
    both = cordons.uncordon(node("a", "b", cordons=there), ["*", "a", "b"], "alice", takes_over=True)
    assert not any(each.left for each in both.done)


# -- what follows -------------------------------------------------------------------------------------------------------------


_CUT: Final = Device("a", "Healthy", cordoned_since=_AT)


@pytest.mark.parametrize(
    ("found", "device_id", "code", "before", "is_in_force"),
    [
        pytest.param(node(_CUT), "a", "Cordoned", node("a"), True, id="cordoned"),
        pytest.param(node(cordoned=1), "x", "Cordoned", node(cordoned=1), False, id="one that is not listed"),
        pytest.param(node("a", total=2, cordoned=1), "*", "Cordoned", node("a"), False, id="not yet all"),
        pytest.param(node(_CUT), "a", "Uncordoned", node(_CUT), False, id="not yet lifted"),
        pytest.param(node(_CUT, cordons=(Cordon("*"),)), "a", "Uncordoned", node(_CUT), True, id="by another cordon"),
        pytest.param(node(_CUT, "b"), "all", "Uncordoned", node("a"), False, id="not yet all are lifted"),
    ],
)
def test_when_it_is_in_force(
    found: NodeDevice, device_id: str, code: str, before: NodeDevice, is_in_force: bool
) -> None:
    assert cordons.is_in_force(found, Done(device_id, code, ""), before) is is_in_force


_SPLIT: Final = Device("s", "Healthy", parts=_PARTS)
_PARTLY = "partly in use by ns/p (1): each part leaves when its pod ends"
_IN_PART: Final = Allocation("ns", "p", "u", "c", parts=(HeldParts("s", 1),))
_OF_TWO: Final = node("a", "b", allocations=(held("b", pod="q"), held("a")))


@pytest.mark.parametrize(
    ("found", "device_id", "code", "words"),
    [
        (node("a"), "a", "Cordoned", "free, so it is out of service now"),
        (node("a", allocations=(held("a"),)), "a", "Cordoned", "in use until ns/p ends, then out of service"),
        (node(_SPLIT, allocations=(_IN_PART,)), "s", "Cordoned", _PARTLY),
        (node(_SPLIT, allocations=(_IN_PART,)), "s::1", "Cordoned", _PARTLY),
        (node("a"), "x", "Cordoned", "takes effect when a device of that ID appears"),
        (node("a"), "a", "Uncordoned", "free now"),
        (node(_SPLIT), "s::1", "Uncordoned", "3 of 4 free now"),
        (node("a", allocations=(held("a"),)), "a", "Uncordoned", "in use by ns/p now"),
        (node("a", cordons=(Cordon("*", by="bob"),)), "a", "Uncordoned", "cordoned by bob now"),
        (node(Device("a", "Unhealthy", message="hot"), allocations=(held("a"),)), "a", "Uncordoned", "unhealthy: hot; in use now"),
        (node("a", total=3, available=2), "*", "Uncordoned", "2 of 3 available now"),
        (node("a"), "*", "Cordoned", "none is in use: all are out of service now"),
        (_OF_TWO, "*", "Cordoned", "in use until ns/p, ns/q ended; no device is free"),
    ],
)  # fmt: skip
def test_what_follows(found: NodeDevice, device_id: str, code: str, words: str) -> None:
    assert cordons.effect(found, Done(device_id, code, ""), _NOW) == words


@pytest.mark.parametrize(("status", "is_alive"), [("True", True), ("", True), ("False", False), ("Unknown", False)])
def test_an_agent_that_is_silent_honours_it_later(status: str, is_alive: bool) -> None:
    for since, words in ((_AT, " (1 h)"), ("", "")):
        conditions = {"AgentReady": Condition("AgentReady", status, since=since)} if status else {}
        found = node("a", conditions=conditions)
        later = f"takes effect when the agent on n reports again; it is silent{words}"
        for code in ("Cordoned", "Uncordoned"):
            assert (cordons.effect(found, Done("a", code, ""), _NOW) == later) is not is_alive
        assert cordons.is_alive(found) is is_alive

"""The comparison itself: what it takes for a difference, and what it allows. No oracle is asked here."""

from typing import Any

import pytest

from tests.oracle.differences import KEEPS, WHOLE_POD, Situation, differences, is_any_of_reused, is_chance_passed_on
from tests.oracle.maker import Verdict, Why
from tests.oracle.sides import Asked, Seen
from tests.oracle.steps import Ctr
from tests.oracle.strategies import GPU

_APP = (Ctr("app", {GPU: 2}),)
_REUSE = (Ctr("init", {GPU: 2}), Ctr("app", {GPU: 1}))
_NUMBERS = {GPU: (4, 4)}


def _seen(ids: str, *, verdict: Verdict | None = None, **more: Any) -> Seen:
    """ids: the devices of each container of pod p, as `ab|c`."""
    held = {("p", f"c{index}", GPU): dict.fromkeys(names, (0,)) for index, names in enumerate(ids.split("|")) if names}
    return Seen(held, _NUMBERS, {"p": verdict or Verdict(True)}, **more)


def _found(theirs: Seen, ours: Seen, containers: tuple[Ctr, ...] = _APP, **more: Any) -> list[tuple[str, str]]:
    now = Situation({"p": containers}, **{"advising": frozenset({GPU}), **more})
    return [(difference.what, difference.paragraph) for difference in differences(theirs, ours, now)]


_WHICH = f"which {GPU} of p the pod holds"
_ON_TWO_NODES = Seen({("p", "c0", GPU): {"a": (0,), "b": (1,)}}, _NUMBERS, {"p": Verdict(True)})
_FEWER_FREE = Seen(_seen("ab").held, {GPU: (4, 3)}, {"p": Verdict(True)})
_THREE = (Ctr("init", {GPU: 2}), Ctr("app", {GPU: 3}))


@pytest.mark.parametrize(
    ("theirs", "ours", "containers", "what"),
    [
        pytest.param(_seen("ab"), _seen("ab"), _APP, [], id="equal"),
        pytest.param(_seen("ab"), _seen("a"), _APP, [f"how many {GPU} of p each container holds"], id="fewer"),
        pytest.param(_seen("ab"), _seen("ac"), _APP, [_WHICH], id="others"),
        pytest.param(_seen("ab"), _ON_TWO_NODES, _APP, [_WHICH], id="of other NUMA nodes"),
        pytest.param(
            _seen("ab|a"),
            _seen("ab|c"),
            _REUSE,
            [f"how many {GPU} of p are an init container's, too"],
            id="not used again",
        ),
        pytest.param(_seen("ab|a"), _seen("ab|b"), _REUSE, [], id="any of an init container's"),
        pytest.param(_seen("ab|abc"), _seen("ab|abd"), _THREE, [_WHICH], id="other new ones"),
        pytest.param(_seen("ab"), _FEWER_FREE, _APP, ["capacity and allocatable"], id="numbers"),
        pytest.param(
            _seen("ab", allocated={GPU: [2]}),
            _seen("ab", allocated={GPU: [1, 1]}),
            _APP,
            ["sizes of the Allocate calls"],
            id="calls",
        ),
        pytest.param(
            _seen("ab", asked={GPU: [Asked(2, 0, ("a", "b"))]}),
            _seen("ab", asked={GPU: [Asked(2, 0, ("a", "b", "c"))]}),
            _APP,
            [f"GetPreferredAllocation of {GPU}"],
            id="advice",
        ),
    ],
)
def test_what_is_a_difference(theirs: Seen, ours: Seen, containers: tuple[Ctr, ...], what: list[str]) -> None:
    assert _found(theirs, ours, containers) == [(each, "") for each in what]


def test_without_advice_others_of_the_same_number_will_do() -> None:
    assert _found(_seen("ab"), _seen("cd"), advising=frozenset()) == []


def test_any_of_an_init_containers_devices_are_used_again() -> None:
    assert is_any_of_reused(_REUSE, GPU)


_LACKING, _PLUGIN, _TOPOLOGY = (Verdict(False, why) for why in (Why.LACKING, Why.PLUGIN, Why.TOPOLOGY))
_HELD = Verdict(True)
_FAILING = {"failing": frozenset({GPU})}
_RESTART = {"is_restart": True}


@pytest.mark.parametrize(
    ("theirs", "ours", "containers", "situation", "paragraph"),
    [
        (_HELD, _LACKING, _APP, {}, ""),
        (_LACKING, _HELD, _APP, {}, ""),
        (_PLUGIN, _LACKING, _APP, {}, ""),
        (_PLUGIN, _LACKING, _APP, _FAILING, WHOLE_POD),
        (_LACKING, _PLUGIN, _APP, _FAILING, ""),
        (_TOPOLOGY, _LACKING, _APP, {}, WHOLE_POD),
        (_LACKING, _HELD, _APP, _RESTART, ""),
        (_LACKING, _HELD, _REUSE, _RESTART, KEEPS),
        (_TOPOLOGY, _HELD, _APP, _RESTART, KEEPS),
        (_HELD, _LACKING, _REUSE, _RESTART, ""),
    ],
)
def test_verdicts(
    theirs: Verdict, ours: Verdict, containers: tuple[Ctr, ...], situation: dict[str, object], paragraph: str
) -> None:
    found = _found(_seen("", verdict=theirs), _seen("", verdict=ours), containers, **situation)
    assert found == [("verdict on p", paragraph)]


@pytest.mark.parametrize(
    ("counts", "expected"),
    [((2, 1, 1), True), ((2, 1, 0), False), ((2, 2, 1), False), ((2, 0, 1), False), ((0, 2, 1), False)],
)
def test_chance_is_passed_on_to_a_later_container_that_asks(counts: tuple[int, int, int], *, expected: bool) -> None:
    init, sidecar, app = ({GPU: count} if count else {} for count in counts)
    containers = (Ctr("init", init), Ctr("sidecar", sidecar), Ctr("app", app))
    assert is_chance_passed_on(containers, GPU) is expected

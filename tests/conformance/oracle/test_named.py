"""Situations that have a name, through both makers; the marker of each names the rows it shows.

`allowed` are the paragraphs of docs/differences.md that the case must meet, and the only ones it may.
"""

from collections.abc import Set

import pytest
from _pytest.mark import ParameterSet

from tests.conformance.oracle.conftest import Both, Compare
from tests.oracle.differences import KEEPS, VANISHED, WAITS, WHOLE_POD
from tests.oracle.sides import Side
from tests.oracle.steps import Admit, Case, Ctr, Dev, End, Failing, Machine, Register, Restart, Step, Stop, Update
from tests.oracle.strategies import GPU, NIC


def _devices(count: int, healthy: bool = True, nodes: int = 1) -> tuple[Dev, ...]:
    """d0, d1, ... spread over so many NUMA nodes."""
    return tuple(Dev(f"d{index}", healthy, (index % nodes,)) for index in range(count))


def _app(gpus: int, nics: int = 0) -> Ctr:
    return Ctr("app", {name: count for name, count in ((GPU, gpus), (NIC, nics)) if count})


def _init(gpus: int) -> Ctr:
    return Ctr("init", {GPU: gpus})


def _sidecar(gpus: int) -> Ctr:
    return Ctr("sidecar", {GPU: gpus})


def _pod(*containers: Ctr) -> Admit:
    return Admit(containers)


def _gpus(count: int) -> Admit:
    """A pod of one container with so many GPUs."""
    return _pod(_app(count))


_FOUR = Register(GPU, _devices(4))
_TWO_BY_TWO = Register(GPU, _devices(4, nodes=2))
_BROKEN = Register(GPU, _devices(4, healthy=False))
_TEXTS = ("\0", "\1", "", "*", "all", "a\nb", "<&>", "\u2028", "escaped:%00", "x" * 129, "y" * 10_240, "é\0", "\\", '"')
_ANY_TEXT = tuple(Dev(text, True, (0,)) for text in _TEXTS)
_ALIGNING = ("best-effort", "restricted", "single-numa-node")


def _case(label: str, rows: str, steps: tuple[Step, ...], allowed: Set[str] = frozenset()) -> ParameterSet:
    """rows: of the kubelet's behaviour, that it shows, with commas between them."""
    return pytest.param(steps, allowed, id=label, marks=pytest.mark.kubelet(*rows.split(", ")))


# what happens, and what of it may differ
_CASES = (
    _case("newer plugin replaces the list", "behaviour 12, scenario 4", (_FOUR, Register(GPU, _devices(2)), _gpus(2))),
    _case("old plugin's end leaves the new one", "behaviour 13", (_FOUR, Register(GPU, _devices(4)), _gpus(4))),
    _case("stopped plugin: none can be had", "behaviour 14", (_FOUR, Stop(GPU), _gpus(1)), {WAITS}),
    _case("plugin comes back", "behaviour 14", (_FOUR, Stop(GPU), _FOUR, _gpus(1))),
    _case(
        "a list replaces the former",
        "behaviour 18",
        (_FOUR, Update(GPU, (Dev("x"), Dev("y"))), _gpus(2), _gpus(1)),
        {WAITS},
    ),
    _case(
        "unhealthy ones count in capacity",
        "behaviour 19, scenario 6",
        (Register(GPU, (Dev("a"), Dev("b", False))), _gpus(2)),
        {WAITS},
    ),
    _case(
        "a device breaks, and recovers",
        "behaviour 21, scenario 8",
        (_FOUR, Update(GPU, _devices(4, healthy=False)), Update(GPU, _devices(4))),
    ),
    _case("numbers while stopped", "behaviour 22, scenario 13", (_FOUR, Update(GPU, _devices(3)), Stop(GPU))),
    _case("after a restart", "behaviour 26, scenario 14", (_FOUR, _gpus(2), Restart(), _gpus(2), _gpus(1)), {WAITS}),
    _case(
        "a name nobody registered",
        "behaviour 27, scenario 24",
        (_FOUR, _pod(Ctr("app", {GPU: 1, "example.com/other": 1}))),
    ),
    _case(
        "two resources in one container",
        "behaviour 29, scenario 20",
        (_FOUR, Register(NIC, _devices(2)), _pod(_app(2, 1)), _pod(_app(2, 1))),
    ),
    _case("init containers share", "behaviour 31, scenario 28", (_FOUR, _pod(_init(2), _init(4), _app(1)))),
    _case(
        "sidecars keep theirs",
        "behaviour 32, scenario 29, scenario 92",
        (_FOUR, _pod(_init(2), _sidecar(1), _sidecar(1), _app(1))),
    ),
    _case("apps share with no other", "behaviour 33, scenario 28", (_FOUR, _pod(_init(2), _app(1), _app(1), _app(2)))),
    _case(
        "surplus stays until the end",
        "behaviour 35",
        (_FOUR, _pod(_init(4), _app(1)), _gpus(1), End(0), _gpus(4)),
        {WAITS},
    ),
    _case("nothing healthy", "behaviour 39, scenario 23", (_BROKEN, _gpus(1)), {WAITS}),
    _case("not enough", "behaviour 42, scenario 21, scenario 22", (_FOUR, _gpus(3), _gpus(2), _gpus(1)), {WAITS}),
    _case("more than advice knows", "behaviour 43", (Register(GPU, _devices(4), advice=False), _gpus(2), _gpus(2))),
    _case("Allocate fails", "behaviour 47", (_FOUR, Failing(GPU), _gpus(2), Failing(GPU, False), _gpus(4)), {WAITS}),
    _case(
        "it fails for the second resource",
        "behaviour 47",
        (_FOUR, Register(NIC, _devices(1)), Failing(NIC), _pod(_app(2), _app(0, 1)), Failing(NIC, False), _gpus(4)),
        {WAITS},
    ),
    _case(
        "refused for either reason",
        "behaviour 48",
        (_FOUR, Register(NIC, _devices(1)), Failing(GPU), _pod(_app(1), _app(0, 2))),
        {WAITS, WHOLE_POD},
    ),
    _case(
        "device of two NUMA nodes",
        "behaviour 50, scenario 47, scenario 104",
        (Register(GPU, (Dev("a", numa=(0, 1)), Dev("b"))), _gpus(2), Restart()),
    ),
    # both read the other's checkpoint at the end
    _case(
        "any text is an ID",
        "weak spot 29",
        (Register(GPU, _ANY_TEXT), _gpus(len(_ANY_TEXT) - 2), _gpus(1), Restart(), _gpus(1)),
    ),
    _case(
        "the kubelet prefers among any texts too",
        "weak spot 29",
        (Register(GPU, _ANY_TEXT, advice=False), _gpus(len(_ANY_TEXT)), End(0), _gpus(len(_ANY_TEXT))),
    ),
    _case("earlier containers of a refused pod", "behaviour 51", (_FOUR, _pod(_app(3), _app(3)), _gpus(4)), {WAITS}),
    _case(
        "restarted: same devices, no call",
        "behaviour 36, behaviour 41, behaviour 64, scenario 86",
        (_FOUR, _pod(_init(1), _app(2)), Restart(), Restart()),
    ),
    _case(
        "it breaks under a pod",
        "behaviour 65, scenario 97",
        (_FOUR, _gpus(4), Update(GPU, _devices(2)), End(0), _gpus(2)),
    ),
    _case("a pod ends", "behaviour 66", (_FOUR, _gpus(4), End(0), _gpus(4))),
    _case(
        "init container's device broke",
        "behaviour 40, behaviour 71, scenario 25, weak spot 5",
        (_FOUR, _pod(_init(1), _app(1)), Update(GPU, _devices(4, healthy=False)), Restart()),
        {WAITS, KEEPS},
    ),
)


@pytest.mark.parametrize(("steps", "allowed"), _CASES)
def test_row(compare: Compare, steps: tuple[Step, ...], allowed: set[str]) -> None:
    assert {difference.paragraph for difference in compare(Case(steps))} == allowed


_PLACED: dict[str, tuple[Step, ...]] = {
    "only one node has room": (_TWO_BY_TWO, _gpus(1), _gpus(2), _gpus(1)),
    "two of one node": (_TWO_BY_TWO, _gpus(2), _gpus(2)),
    "three of two nodes": (_TWO_BY_TWO, _gpus(3), _gpus(1)),
    "forced apart": (_TWO_BY_TWO, _gpus(1), _gpus(1), _gpus(2)),
    "two resources that agree": (_TWO_BY_TWO, Register(NIC, _devices(2, nodes=2)), _pod(_app(2, 1)), _pod(_app(2, 1))),
    "two resources that cannot agree": (
        Register(GPU, (Dev("a", numa=(0,)),)),
        Register(NIC, (Dev("b", numa=(1,)),)),
        _pod(_app(1, 1)),
    ),
    "devices without a node": (Register(GPU, (Dev("a"), Dev("b", numa=(1,)))), _gpus(1), _gpus(1)),
    "nodes that the machine lacks": (Register(GPU, (Dev("a", numa=(7,)), Dev("b", numa=(1,)))), _gpus(1)),
    "an init container's are near": (_TWO_BY_TWO, _pod(_init(2), _app(1), _app(1)), _gpus(2)),
    "devices on both nodes": (Register(GPU, (Dev("a", numa=(0, 1)), Dev("b", numa=(1,)))), _gpus(2)),
    "a sidecar and an app": (_TWO_BY_TWO, _pod(_sidecar(1), _app(2)), _gpus(1)),
}


@pytest.mark.kubelet("behaviour 43", "behaviour 54", "scenario 54", "scenario 55", "scenario 56")
@pytest.mark.parametrize("scope", ["container", "pod"])
@pytest.mark.parametrize("policy", _ALIGNING)
@pytest.mark.parametrize("steps", _PLACED.values(), ids=_PLACED)
def test_placement(compare: Compare, steps: tuple[Step, ...], policy: str, scope: str) -> None:
    met = compare(Case(steps, Machine(policy, scope)))
    assert {difference.paragraph for difference in met} <= {WAITS, WHOLE_POD}


@pytest.mark.kubelet("behaviour 65", "weak spot 25")
def test_a_held_device_that_vanished_ends_the_kubelet(compare: Compare) -> None:
    """Under a topology policy, when the pod is seen again: a nil dereference in its hints, at every start again."""
    steps = (_FOUR, _gpus(1), Update(GPU, _devices(2)), Restart())
    (met,) = compare(Case(steps, Machine("best-effort")))
    assert met.paragraph == VANISHED


def test_what_a_finished_init_container_held_stays_the_pods_over_a_restart(compare: Compare) -> None:
    """Where no container of any pod ran, and another pod is seen first: nobody is asked again."""
    steps = (
        Register(GPU, _devices(2), advice=True),
        _pod(Ctr("init", {})),
        _pod(_init(1)),
        Register(GPU, (Dev("d0", numa=(0,)), Dev("d1", numa=(1,))), advice=True),
        Restart(),
    )
    assert compare(Case(steps, Machine("best-effort"))) == []


def test_advice_that_leaves_nothing_near_for_another_container_is_not_heeded(compare: Compare) -> None:
    """The plugin advises the near device for the container that could do without; the kubelet refuses the pod."""
    near, far = Dev("d1", numa=(0,)), Dev("d0")
    steps = (
        Register(NIC, (far, *(Dev(f"d{n}", numa=(0,)) for n in (2, 3, 4)), near), advice=True),
        Register(GPU, _devices(2), advice=True),
        _pod(_app(0, 3), _app(1, 1), _app(1, 1)),
    )
    met = compare(Case(steps, Machine("single-numa-node", numa=(0,))))
    assert {difference.paragraph for difference in met} == {WAITS, WHOLE_POD}


def test_advice_that_leaves_something_near_for_another_container_is_heeded(compare: Compare) -> None:
    """The plugin advises the device of both nodes, near to what the app has; the one of the first node alone is not."""
    spread = (Dev("d0", numa=(0,)), *(Dev(f"d{n}", numa=(1,)) for n in (1, 2)), Dev("d3", numa=(0, 1)))
    steps = (Register(GPU, spread, advice=True), _pod(_init(1), _app(3)))
    assert compare(Case(steps, Machine("restricted"))) == []


@pytest.mark.kubelet("behaviour 49")
def test_of_several_container_responses_the_first_one_counts(both: Both) -> None:
    async def play(kubelet: Side, ours: Side) -> None:
        for side in (kubelet, ours):
            await side.register(GPU, _devices(1), advice=True)
            side.plugins[GPU].knobs.allocate_more = 2
            assert (await side.admit("p", _gpus(1))).is_admitted
            assert await side.maker.held() == {("p", "c0", GPU): {"d0": (0,)}}

    both.play(play, Machine())

"""Situations that have a name, through both makers; the marker of each names the rows it shows.

`allowed` are the paragraphs of docs/differences.md that the case must meet, and the only ones it may.
"""

import pytest
from _pytest.mark import ParameterSet

from tests.conformance.oracle.conftest import Compare
from tests.oracle.differences import KEEPS, VANISHED, WAITS, WHOLE_POD
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


_FOUR = Register(GPU, _devices(4))
_TWO_BY_TWO = Register(GPU, _devices(4, nodes=2))
_BROKEN = Register(GPU, _devices(4, healthy=False))
_ALIGNING = ("best-effort", "restricted", "single-numa-node")


def _case(label: str, steps: tuple[Step, ...], allowed: set[str], *rows: str) -> ParameterSet:
    """rows: of the kubelet's behaviour, that it shows."""
    return pytest.param(steps, allowed, id=label, marks=pytest.mark.kubelet(*rows))


# what happens, and what of it may differ
_CASES = (
    _case(
        "newer plugin replaces the list",
        (_FOUR, Register(GPU, _devices(2)), _pod(_app(2))),
        set(),
        "behaviour 12",
        "scenario 4",
    ),
    _case(
        "old plugin's end leaves the new one", (_FOUR, Register(GPU, _devices(4)), _pod(_app(4))), set(), "behaviour 13"
    ),
    _case("stopped plugin: none can be had", (_FOUR, Stop(GPU), _pod(_app(1))), {WAITS}, "behaviour 14"),
    _case("plugin comes back", (_FOUR, Stop(GPU), _FOUR, _pod(_app(1))), set(), "behaviour 14"),
    _case(
        "a list replaces the former",
        (_FOUR, Update(GPU, (Dev("x"), Dev("y"))), _pod(_app(2)), _pod(_app(1))),
        {WAITS},
        "behaviour 18",
    ),
    _case(
        "unhealthy ones count in capacity",
        (Register(GPU, (Dev("a"), Dev("b", False))), _pod(_app(2))),
        {WAITS},
        "behaviour 19",
        "scenario 6",
    ),
    _case(
        "a device breaks, and recovers",
        (_FOUR, Update(GPU, _devices(4, healthy=False)), Update(GPU, _devices(4))),
        set(),
        "behaviour 21",
        "scenario 8",
    ),
    _case("numbers while stopped", (_FOUR, Update(GPU, _devices(3)), Stop(GPU)), set(), "behaviour 22", "scenario 13"),
    _case(
        "after a restart",
        (_FOUR, _pod(_app(2)), Restart(), _pod(_app(2)), _pod(_app(1))),
        {WAITS},
        "behaviour 26",
        "scenario 14",
    ),
    _case(
        "a name nobody registered",
        (_FOUR, _pod(Ctr("app", {GPU: 1, "example.com/other": 1}))),
        set(),
        "behaviour 27",
        "scenario 24",
    ),
    _case(
        "two resources in one container",
        (_FOUR, Register(NIC, _devices(2)), _pod(_app(2, 1)), _pod(_app(2, 1))),
        set(),
        "behaviour 29",
        "scenario 20",
    ),
    _case("init containers share", (_FOUR, _pod(_init(2), _init(4), _app(1))), set(), "behaviour 31", "scenario 28"),
    _case(
        "sidecars keep theirs",
        (_FOUR, _pod(_init(2), _sidecar(1), _sidecar(1), _app(1))),
        set(),
        "behaviour 32",
        "scenario 29",
        "scenario 92",
    ),
    _case(
        "apps share with no other",
        (_FOUR, _pod(_init(2), _app(1), _app(1), _app(2))),
        set(),
        "behaviour 33",
        "scenario 28",
    ),
    _case(
        "surplus stays until the end",
        (_FOUR, _pod(_init(4), _app(1)), _pod(_app(1)), End(0), _pod(_app(4))),
        {WAITS},
        "behaviour 35",
    ),
    _case("nothing healthy", (_BROKEN, _pod(_app(1))), {WAITS}, "behaviour 39", "scenario 23"),
    _case(
        "not enough",
        (_FOUR, _pod(_app(3)), _pod(_app(2)), _pod(_app(1))),
        {WAITS},
        "behaviour 42",
        "scenario 21",
        "scenario 22",
    ),
    _case(
        "more than advice knows",
        (Register(GPU, _devices(4), advice=False), _pod(_app(2)), _pod(_app(2))),
        set(),
        "behaviour 43",
    ),
    _case(
        "Allocate fails",
        (_FOUR, Failing(GPU), _pod(_app(2)), Failing(GPU, False), _pod(_app(4))),
        {WAITS},
        "behaviour 47",
    ),
    _case(
        "it fails for the second resource",
        (
            _FOUR,
            Register(NIC, _devices(1)),
            Failing(NIC),
            _pod(_app(2), _app(0, 1)),
            Failing(NIC, False),
            _pod(_app(4)),
        ),
        {WAITS},
        "behaviour 47",
    ),
    _case(
        "refused for either reason",
        (_FOUR, Register(NIC, _devices(1)), Failing(GPU), _pod(_app(1), _app(0, 2))),
        {WAITS, WHOLE_POD},
        "behaviour 48",
    ),
    _case(
        "device of two NUMA nodes",
        (Register(GPU, (Dev("a", numa=(0, 1)), Dev("b"))), _pod(_app(2)), Restart()),
        set(),
        "behaviour 50",
        "scenario 47",
        "scenario 104",
    ),
    _case(
        "earlier containers of a refused pod", (_FOUR, _pod(_app(3), _app(3)), _pod(_app(4))), {WAITS}, "behaviour 51"
    ),
    _case(
        "restarted: same devices, no call",
        (_FOUR, _pod(_init(1), _app(2)), Restart(), Restart()),
        set(),
        "behaviour 36",
        "behaviour 41",
        "behaviour 64",
        "scenario 86",
    ),
    _case(
        "it breaks under a pod",
        (_FOUR, _pod(_app(4)), Update(GPU, _devices(2)), End(0), _pod(_app(2))),
        set(),
        "behaviour 65",
        "scenario 97",
    ),
    _case("a pod ends", (_FOUR, _pod(_app(4)), End(0), _pod(_app(4))), set(), "behaviour 66"),
    _case(
        "init container's device broke",
        (_FOUR, _pod(_init(1), _app(1)), Update(GPU, _devices(4, healthy=False)), Restart()),
        {WAITS, KEEPS},
        "behaviour 40",
        "behaviour 71",
        "scenario 25",
        "weak spot 5",
    ),
)


@pytest.mark.parametrize(("steps", "allowed"), _CASES)
def test_row(compare: Compare, steps: tuple[Step, ...], allowed: set[str]) -> None:
    assert {difference.paragraph for difference in compare(Case(steps))} == allowed


_PLACED: dict[str, tuple[Step, ...]] = {
    "only one node has room": (_TWO_BY_TWO, _pod(_app(1)), _pod(_app(2)), _pod(_app(1))),
    "two of one node": (_TWO_BY_TWO, _pod(_app(2)), _pod(_app(2))),
    "three of two nodes": (_TWO_BY_TWO, _pod(_app(3)), _pod(_app(1))),
    "forced apart": (_TWO_BY_TWO, _pod(_app(1)), _pod(_app(1)), _pod(_app(2))),
    "two resources that agree": (_TWO_BY_TWO, Register(NIC, _devices(2, nodes=2)), _pod(_app(2, 1)), _pod(_app(2, 1))),
    "two resources that cannot agree": (
        Register(GPU, (Dev("a", numa=(0,)),)),
        Register(NIC, (Dev("b", numa=(1,)),)),
        _pod(_app(1, 1)),
    ),
    "devices without a node": (Register(GPU, (Dev("a"), Dev("b", numa=(1,)))), _pod(_app(1)), _pod(_app(1))),
    "nodes that the machine lacks": (Register(GPU, (Dev("a", numa=(7,)), Dev("b", numa=(1,)))), _pod(_app(1))),
    "an init container's are near": (_TWO_BY_TWO, _pod(_init(2), _app(1), _app(1)), _pod(_app(2))),
    "devices on both nodes": (Register(GPU, (Dev("a", numa=(0, 1)), Dev("b", numa=(1,)))), _pod(_app(2))),
    "a sidecar and an app": (_TWO_BY_TWO, _pod(_sidecar(1), _app(2)), _pod(_app(1))),
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
    steps = (_FOUR, _pod(_app(1)), Update(GPU, _devices(2)), Restart())
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

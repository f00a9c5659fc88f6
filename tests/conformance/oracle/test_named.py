"""Situations that have a name, through both makers: each id carries its row of the behaviour table.

`allowed` are the paragraphs of docs/differences.md that the case must meet, and the only ones it may.
"""

import pytest

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

# what happens, and what of it may differ
_CASES: dict[str, tuple[tuple[Step, ...], set[str]]] = {
    "12-newer plugin replaces the list": ((_FOUR, Register(GPU, _devices(2)), _pod(_app(2))), set()),
    "13-old plugin's end leaves the new one": ((_FOUR, Register(GPU, _devices(4)), _pod(_app(4))), set()),
    "14-stopped plugin: none can be had": ((_FOUR, Stop(GPU), _pod(_app(1))), {WAITS}),
    "14-plugin comes back": ((_FOUR, Stop(GPU), _FOUR, _pod(_app(1))), set()),
    "18-a list replaces the former": (
        (_FOUR, Update(GPU, (Dev("x"), Dev("y"))), _pod(_app(2)), _pod(_app(1))),
        {WAITS},
    ),
    "19-unhealthy ones count in capacity": ((Register(GPU, (Dev("a"), Dev("b", False))), _pod(_app(2))), {WAITS}),
    "21-a device breaks, and mends": (
        (_FOUR, Update(GPU, _devices(4, healthy=False)), Update(GPU, _devices(4))),
        set(),
    ),
    "22-numbers while stopped": ((_FOUR, Update(GPU, _devices(3)), Stop(GPU)), set()),
    "26-after a restart": ((_FOUR, _pod(_app(2)), Restart(), _pod(_app(2)), _pod(_app(1))), {WAITS}),
    "27-a name nobody registered": ((_FOUR, _pod(Ctr("app", {GPU: 1, "example.com/other": 1}))), set()),
    "29-two resources in one container": (
        (_FOUR, Register(NIC, _devices(2)), _pod(_app(2, 1)), _pod(_app(2, 1))),
        set(),
    ),
    "31-init containers share": ((_FOUR, _pod(_init(2), _init(4), _app(1))), set()),
    "32-sidecars keep theirs": ((_FOUR, _pod(_init(2), _sidecar(1), _sidecar(1), _app(1))), set()),
    "33-apps share with no other": ((_FOUR, _pod(_init(2), _app(1), _app(1), _app(2))), set()),
    "35-surplus stays until the end": ((_FOUR, _pod(_init(4), _app(1)), _pod(_app(1)), End(0), _pod(_app(4))), {WAITS}),
    "39-nothing healthy": ((_BROKEN, _pod(_app(1))), {WAITS}),
    "42-not enough": ((_FOUR, _pod(_app(3)), _pod(_app(2)), _pod(_app(1))), {WAITS}),
    "43-more than advice knows": ((Register(GPU, _devices(4), advice=False), _pod(_app(2)), _pod(_app(2))), set()),
    "47-Allocate fails": ((_FOUR, Failing(GPU), _pod(_app(2)), Failing(GPU, False), _pod(_app(4))), {WAITS}),
    "47-it fails for the second resource": (
        (
            _FOUR,
            Register(NIC, _devices(1)),
            Failing(NIC),
            _pod(_app(2), _app(0, 1)),
            Failing(NIC, False),
            _pod(_app(4)),
        ),
        {WAITS},
    ),
    "48-refused for either reason": (
        (_FOUR, Register(NIC, _devices(1)), Failing(GPU), _pod(_app(1), _app(0, 2))),
        {WAITS, WHOLE_POD},
    ),
    "50-device of two NUMA nodes": (
        (Register(GPU, (Dev("a", numa=(0, 1)), Dev("b"))), _pod(_app(2)), Restart()),
        set(),
    ),
    "51-earlier containers of a refused pod": ((_FOUR, _pod(_app(3), _app(3)), _pod(_app(4))), {WAITS}),
    "64-restarted: same devices, no call": ((_FOUR, _pod(_init(1), _app(2)), Restart(), Restart()), set()),
    "65-it breaks under a pod": ((_FOUR, _pod(_app(4)), Update(GPU, _devices(2)), End(0), _pod(_app(2))), set()),
    "66-a pod ends": ((_FOUR, _pod(_app(4)), End(0), _pod(_app(4))), set()),
    "71-weak spot 5, init container's device broke": (
        (_FOUR, _pod(_init(1), _app(1)), Update(GPU, _devices(4, healthy=False)), Restart()),
        {WAITS, KEEPS},
    ),
}


@pytest.mark.parametrize(("steps", "allowed"), _CASES.values(), ids=_CASES)
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


@pytest.mark.parametrize("scope", ["container", "pod"])
@pytest.mark.parametrize("policy", _ALIGNING)
@pytest.mark.parametrize("steps", _PLACED.values(), ids=_PLACED)
def test_placement(compare: Compare, steps: tuple[Step, ...], policy: str, scope: str) -> None:
    """Rows 54 and 43, and section 4 of the behaviour table."""
    met = compare(Case(steps, Machine(policy, scope)))
    assert {difference.paragraph for difference in met} <= {WAITS, WHOLE_POD}


def test_a_held_device_that_vanished_ends_the_kubelet(compare: Compare) -> None:
    """Under a topology policy, when the pod is seen again: a nil dereference in its hints, at every start anew."""
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

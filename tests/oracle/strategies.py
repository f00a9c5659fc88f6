"""Random cases: machines of up to four NUMA nodes, two resources of a few devices, and what may befall them.

ORACLE_SEQUENCES: how many in all (default 150). ORACLE_SEED: which ones (default: as tests/examples.py says).
"""

import os

from hypothesis import strategies as st

from tests.examples import seed
from tests.oracle.differences import is_chance_passed_on
from tests.oracle.steps import Admit, Case, Ctr, Dev, End, Failing, Machine, Register, Restart, Step, Stop, Update

SEQUENCES = int(os.environ.get("ORACLE_SEQUENCES") or "150")
SEED = seed("ORACLE_SEED", in_gate=1)

GPU = "example.com/gpu"
NIC = "example.com/nic"
_RESOURCES = st.sampled_from((GPU, NIC))
_MOST_DEVICES = 8
_MOST_PODS = 8
_KINDS = st.sampled_from(("app", "app", "init", "sidecar"))


def devices_on(numa: tuple[int, ...]) -> st.SearchStrategy[tuple[Dev, ...]]:
    """IDs of a small set, so that lists overlap; mostly healthy; on one node, on two, or on an unknown one."""
    nodes = st.one_of(
        st.sampled_from([(node,) for node in numa]),
        st.sets(st.sampled_from(numa), max_size=2).map(lambda found: tuple(sorted(found))),
    )
    healthy = st.sampled_from((*[True] * 7, False))

    def device(index: int) -> st.SearchStrategy[Dev]:
        return st.builds(Dev, st.just(f"d{index}"), healthy, nodes)

    # mostly many, or most pods would be refused for want of devices alone
    sizes = st.sampled_from((0, 2, _MOST_DEVICES - 1, _MOST_DEVICES, _MOST_DEVICES))
    indices = sizes.flatmap(lambda size: st.permutations(range(_MOST_DEVICES)).map(lambda order: sorted(order[:size])))
    return indices.flatmap(lambda found: st.tuples(*map(device, found)))


def _limits() -> st.SearchStrategy[dict[str, int]]:
    return st.dictionaries(_RESOURCES, st.sampled_from((1, 1, 2, 2, 3, 5)), max_size=2)


def _pods(policy: str) -> st.SearchStrategy[Admit]:
    """Init containers and sidecars first, as in a pod."""
    containers = st.lists(st.builds(Ctr, _KINDS, _limits()), min_size=1, max_size=3)
    pods = containers.map(lambda found: Admit(tuple(sorted(found, key=lambda container: container.kind == "app"))))
    if policy == "none":
        return pods
    return pods.filter(lambda pod: not any(is_chance_passed_on(pod.containers, name) for name in (GPU, NIC)))


def _common(policy: str) -> list[st.SearchStrategy[Step]]:
    pods = _pods(policy)
    return [
        pods,
        pods,
        pods,
        st.builds(End, st.integers(0, _MOST_PODS - 1)),
        st.builds(End, st.integers(0, _MOST_PODS - 1)),
        st.builds(Failing, _RESOURCES, st.sampled_from((True, False, False))),
        st.builds(Stop, _RESOURCES),
        st.just(Restart()),
    ]


def _advised(machine: Machine) -> st.SearchStrategy[Case]:
    """Plugins give advice, so both sides choose the same devices, and every ID can be compared."""
    devices = devices_on(machine.numa)
    changes: list[st.SearchStrategy[Step]] = [
        st.builds(Register, _RESOURCES, devices),
        st.builds(Update, _RESOURCES, devices),
        st.builds(Update, _RESOURCES, devices),
    ]
    steps = st.lists(st.one_of(*_common(machine.policy), *changes), min_size=6, max_size=20)
    first = st.tuples(st.builds(Register, st.just(GPU), devices), st.builds(Register, st.just(NIC), devices))
    return st.builds(lambda begin, rest: Case((*begin, *rest), machine), first, steps)


def _alike(machine: Machine) -> st.SearchStrategy[Case]:
    """Plugins give no advice and all devices are alike, so each side may choose others, and counts are compared."""

    def devices(count: int, healthy: bool) -> tuple[Dev, ...]:
        return tuple(Dev(f"d{index}", healthy) for index in range(count))

    counts = st.integers(1, _MOST_DEVICES)

    def steps_of(gpus: int, nics: int) -> st.SearchStrategy[Case]:
        numbers = {GPU: gpus, NIC: nics}
        both = st.tuples(_RESOURCES, st.booleans())
        changes: list[st.SearchStrategy[Step]] = [
            both.map(lambda drawn: Register(drawn[0], devices(numbers[drawn[0]], drawn[1]), advice=False)),
            both.map(lambda drawn: Update(drawn[0], devices(numbers[drawn[0]], drawn[1]))),
        ]
        begin = tuple(Register(name, devices(count, True), advice=False) for name, count in numbers.items())
        steps = st.lists(st.one_of(*_common(machine.policy), *changes), min_size=6, max_size=20)
        return steps.map(lambda rest: Case((*begin, *rest), machine))

    return st.tuples(counts, counts).flatmap(lambda found: steps_of(*found))


NUMA = st.sampled_from(((0,), (0, 1), (0, 1, 2, 3)))


def advised() -> st.SearchStrategy[Case]:
    return NUMA.flatmap(lambda numa: _advised(Machine(numa=numa)))


def alike() -> st.SearchStrategy[Case]:
    return _alike(Machine())


def aligned() -> st.SearchStrategy[Case]:
    """Under a topology policy."""
    policies = st.sampled_from(("best-effort", "restricted", "single-numa-node"))
    scopes = st.sampled_from(("container", "pod"))
    return st.builds(Machine, policies, scopes, NUMA).flatmap(_advised)

"""A request about many nodes gives others their turn, and its answer is the same as if it did not."""

from collections.abc import Generator

from nodedevice_operator.extender.preemption import choose

from tests.unit.operator.extender.fleets import bind, finished, fleet, needs, node

NODES = [f"n{number}" for number in range(40)]


def turns(steps: Generator[None, None, object]) -> int:
    return sum(1 for _ in steps)


def test_a_filter_of_many_containers_has_a_turn_every_few_nodes() -> None:
    """Each container of each node is planned."""
    known = fleet(*(node(name, *[80] * 8) for name in NODES))
    many = needs(*[1] * 64)
    assert turns(known.filter("p", many, NODES, 0)) == 9
    assert turns(known.filter("p", many, NODES[:3], 0)) == 0
    assert finished(known.filter("p", many, NODES, 0)).fitting == NODES


def test_a_pod_that_is_asked_about_again_meanwhile_is_held_once() -> None:
    """kube-scheduler asks again when an answer has taken too long for it."""
    known = fleet(*(node(name, 80) for name in NODES))
    last = NODES[-1]
    for name in NODES[1:]:
        known.node_changed(node(name, 0), 0)
    first = known.filter("p", needs(*[1] * 64), NODES, 0)
    next(first)
    known.node_changed(node(NODES[0], 0), 0)
    known.node_changed(node(last, 80), 0)
    assert finished(known.filter("p", needs(*[1] * 64), [last], 0)).fitting == [last]
    known.node_changed(node(NODES[0], 80), 0)
    known.node_changed(node(last, 0), 0)
    finished(first)
    known.node_changed(node(last, 80), 0)
    # what is held ends, and nothing of it is left over
    known.expire(10_000)
    for name in (NODES[0], last):
        assert finished(known.filter("q", needs(80), [name], 10_000)).fitting == [name]
        known.expire(20_000)


def test_a_pod_that_is_bound_meanwhile_counts_once() -> None:
    known = fleet(*(node(name, 80 if name == NODES[0] else 0) for name in NODES))
    first = known.filter("p", needs(*[1] * 60), NODES, 0)
    next(first)
    bind(known, "p", needs(20), NODES[0])
    finished(first)
    assert finished(known.filter("q", needs(60), NODES, 0)).fitting == [NODES[0]]


def test_a_preemption_has_one_at_each_plan() -> None:
    known = fleet(*(node(name, *[8] * 8) for name in NODES))
    victims = {name: ["gone"] for name in NODES}
    many = needs(*[1] * 65)
    assert turns(choose(known, "p", many, 9, victims)) >= len(NODES)
    assert finished(choose(known, "p", many, 9, victims)) == {}, "each node has 64 units"

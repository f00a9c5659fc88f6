"""A filter in steps, during which its pod is requested again or bound: the pod is counted once."""

from tests.unit.operator.extender.fleets import bind, finished, fleet, needs, node

NODES = [f"n{number}" for number in range(40)]


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

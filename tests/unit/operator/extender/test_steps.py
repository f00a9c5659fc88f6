"""A request about many nodes gives others their turn, and its answer is the same as if it did not."""

from collections.abc import Generator

from nodedevice_operator.extender.preemption import choose, choose_in_turns
from nodedevice_operator.extender.steps import finished
from nodedevice_operator.extender.verbs import in_turns

from tests.unit.operator.extender.fleets import fleet, needs, node

NODES = [f"n{number}" for number in range(40)]


def turns(steps: Generator[None, None, object]) -> int:
    return sum(1 for _ in steps)


def test_a_filter_of_many_containers_has_a_turn_every_few_nodes() -> None:
    """Each container of each node is planned."""
    known = fleet(*(node(name, *[80] * 8) for name in NODES))
    many = needs(*[1] * 64)
    assert turns(known.filter_in_turns("p", many, NODES, 0)) == 10
    assert known.filter("p", many, NODES, 0).fitting == NODES
    assert turns(known.filter_in_turns("p", needs(1), NODES, 0)) == 0, "of one container nothing is planned"


def test_a_preemption_has_one_at_each_plan() -> None:
    known = fleet(*(node(name, *[8] * 8) for name in NODES))
    victims = {name: ["gone"] for name in NODES}
    many = needs(*[1] * 65)
    assert turns(choose_in_turns(known, "p", many, 9, victims)) >= len(NODES)
    assert finished(choose_in_turns(known, "p", many, 9, victims)) == choose(known, "p", many, 9, victims)


async def test_what_the_steps_return_is_awaited() -> None:
    def steps() -> Generator[None, None, str]:
        yield
        yield
        return "found"

    assert await in_turns(steps()) == "found"
    assert finished(steps()) == "found"

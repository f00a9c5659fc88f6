"""What goes wrong when: rounds of trouble from a seed. Equal seeds, equal rounds. Does nothing by itself."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

OPERATOR = "operator killed"
AGENT = "agent killed"
API_SERVER = "API server killed"
ETCD = "etcd paused"
ZEROED = "capacity zeroed"
CONFLICT = "capacity changed by another writer"
CUT = "watches cut"
HEALTH = "device broken or healthy again"
DELETED = "NodeDevice deleted"

# What lasts until it is ended, and what is done in a moment.
_LASTING = (OPERATOR, AGENT, API_SERVER, ETCD)
_MOMENTARY = (ZEROED, CONFLICT, CUT, HEALTH, DELETED)
# An API server takes seconds to come back: it shall not take all of the time.
_WEIGHTS = (4, 4, 1, 2)


@dataclass(frozen=True)
class Step:
    """One thing that goes wrong. node: which; where it is about one. chance: from 0 to 1, to choose with."""

    what: str
    node: str
    chance: float


@dataclass(frozen=True)
class Round:
    """lasting begin together, the momentary come one after the other while they last, and calm follows.

    pause_seconds: between two steps.
    """

    lasting: tuple[Step, ...]
    momentary: tuple[Step, ...]
    pause_seconds: float


def rounds(seed: int, nodes: Sequence[str]) -> Iterator[Round]:
    """Rounds without end. So that a short run sees all: the first have one lasting trouble each, and all have every other."""
    chance = random.Random(seed)

    def step(what: str) -> Step:
        return Step(what, chance.choice(nodes), chance.random())

    first = chance.sample(_LASTING, len(_LASTING))
    while True:
        lasting = {first.pop()} if first else set(chance.choices(_LASTING, _WEIGHTS, k=chance.randrange(3)))
        momentary = chance.sample(_MOMENTARY, len(_MOMENTARY)) + chance.choices(_MOMENTARY, k=chance.randint(0, 4))
        yield Round(
            tuple(step(what) for what in sorted(lasting)),
            tuple(step(what) for what in momentary),
            chance.uniform(0.0, 0.6),
        )

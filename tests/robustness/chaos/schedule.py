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
ENDED = "watches ended at once"
FROZEN = "watches frozen"
EXPIRED = "watches answered with 410"
OLD = "API server with an old cache"
HEALTH = "device broken or healthy again"
DELETED = "NodeDevice deleted"

# What lasts until it is ended, and what is done in a moment. The proxies are between the programs and the API server.
PROCESSES = (OPERATOR, AGENT, API_SERVER, ETCD)
PROXIES = (ENDED, FROZEN, EXPIRED, OLD)
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
    """Rounds without end. So that a short run sees all: the first have one lasting trouble of each sort, and all every other."""
    chance = random.Random(seed)

    def step(what: str) -> Step:
        return Step(what, chance.choice(nodes), chance.random())

    processes, proxies = chance.sample(PROCESSES, len(PROCESSES)), chance.sample(PROXIES, len(PROXIES))
    while True:
        if processes:
            lasting = {processes.pop(), proxies.pop()}
        else:
            lasting = {
                *chance.choices(PROCESSES, _WEIGHTS, k=chance.randrange(3)),
                *chance.sample(PROXIES, chance.randrange(2)),
            }
        momentary = chance.sample(_MOMENTARY, len(_MOMENTARY)) + chance.choices(_MOMENTARY, k=chance.randint(0, 4))
        yield Round(
            tuple(step(what) for what in sorted(lasting)),
            tuple(step(what) for what in momentary),
            chance.uniform(0.0, 0.6),
        )

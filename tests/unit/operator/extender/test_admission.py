"""Which connections may begin a handshake: a flood delays its own address, and others wait for a turn at most."""

from collections import Counter
from itertools import count

import pytest
from nodedevice_operator.extender.admission import (
    HANDSHAKES_PER_SECOND,
    MOST_HANDSHAKES,
    MOST_HANDSHAKES_OF_PEER,
    MOST_WAITING_OF_PEER,
    Admission,
)

FLOOD, OTHER = "10.0.0.1", "10.0.0.2"


class Scene:
    """A port with a clock of its own. A connection is "ADDRESS NUMBER"."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.admission: Admission[str] = Admission(self.now)
        self.begun: list[str] = []
        self.gone: list[str] = []
        self._numbers = count()

    def arrive(self, peer: str, speaks: bool = True) -> str:
        connection = f"{peer} {next(self._numbers)}"
        gone = [self.admission.arrive(connection, peer)]
        if speaks:
            gone.append(self.admission.speak(connection))
        self.gone += filter(None, gone)
        return connection

    def begin(self) -> str | None:
        """The next handshake, if it is time for it."""
        chosen = self.admission.next(self.now)
        if chosen is None:
            return None
        self.begun.append(chosen[0])
        gone = self.admission.begin(*chosen, self.now)
        if gone is not None:
            self.gone.append(gone)
        return chosen[0]

    def prove(self, peer: str) -> None:
        """That address shows a certificate."""
        connection = self.arrive(peer)
        assert self.begin() == connection
        self.begun.remove(connection)
        self.admission.prove(connection)

    def flood(self, seconds: float, per_second: int, *peers: str, speaks: bool = True) -> None:
        """Each address connects so often; handshakes begin as soon as they may, and none of them ends."""
        for _ in range(round(seconds * per_second)):
            self.now += 1 / per_second
            for peer in peers:
                self.arrive(peer, speaks)
            while self.begin() is not None:
                pass


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_handshakes_have_a_rate(scene: Scene) -> None:
    scene.flood(2.0, 5000, FLOOD)
    assert len(scene.begun) == pytest.approx(2 * HANDSHAKES_PER_SECOND, abs=20)
    assert 0.0 < (scene.admission.wait_seconds(scene.now) or 0.0) <= 1 / HANDSHAKES_PER_SECOND


def test_nothing_waits_where_nothing_was_sent(scene: Scene) -> None:
    scene.flood(2.0, 500, FLOOD, speaks=False)
    assert scene.begun == []
    assert scene.admission.wait_seconds(scene.now) is None
    # the oldest gave way, and one that sends something is next
    assert len(scene.gone) == 1000 - MOST_WAITING_OF_PEER
    last = scene.arrive(FLOOD)
    assert scene.begin() == last


@pytest.mark.parametrize("is_known", [False, True])
@pytest.mark.parametrize("flooding", [1, 20])
def test_another_address_waits_for_its_turn_alone(scene: Scene, is_known: bool, flooding: int) -> None:
    if is_known:
        scene.prove(OTHER)
    peers = [f"10.0.1.{number}" for number in range(flooding)]
    scene.flood(1.0, 1000, *peers)
    before, mine = len(scene.begun), scene.arrive(OTHER)
    scene.flood(0.2, 1000, *peers)
    assert mine not in scene.gone
    assert scene.begun.index(mine) - before <= (1 if is_known else flooding)


def test_handshakes_of_one_address_have_places_and_those_of_others_stay(scene: Scene) -> None:
    scene.prove(OTHER)
    mine = scene.arrive(OTHER)
    scene.begin()
    scene.flood(2.0, 500, FLOOD)
    assert mine not in scene.gone
    assert len(set(scene.begun) - set(scene.gone)) == 1 + MOST_HANDSHAKES_OF_PEER
    scene.flood(2.0, 100, *(f"10.0.1.{number}" for number in range(100)))
    assert mine not in scene.gone, "its address is known"
    assert len(set(scene.begun) - set(scene.gone)) == MOST_HANDSHAKES
    held = Counter(each.split()[0] for each in set(scene.begun) - set(scene.gone))
    assert max(held.values()) <= 4

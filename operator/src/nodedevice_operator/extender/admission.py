"""Decides which connections of the extender's port may begin a TLS handshake, and which give way. Pure: `now` is monotonic seconds.

A handshake costs up to a millisecond of CPU, and its client may be anybody. So handshakes have a rate and places, and addresses
take turns: a client that connects without pause delays its own address. A connection that sends nothing costs no handshake.
"""

from collections.abc import Hashable
from typing import Final, Generic, TypeVar

from nodedevice_common.pacing import TokenBucket
from nodedevice_common.peer_places import PeerPlaces

Connection = TypeVar("Connection", bound=Hashable)

# More than the 500 a second that one client may come with; where handshakes are whole, they get half of the CPU (`connections`).
HANDSHAKES_PER_SECOND: Final = 600
_AT_ONCE: Final = 16
MOST_HANDSHAKES: Final = 256
# A third of a second for each at that rate, before it gives way to the next of its address.
MOST_HANDSHAKES_OF_PEER: Final = 192
# That have sent nothing yet; as many that wait for their turn.
MOST_WAITING: Final = 128
MOST_WAITING_OF_PEER: Final = 96
# The schedulers of a cluster, several times.
_MOST_KNOWN: Final = 64


class Admission(Generic[Connection]):
    """The waiting connections of one port. An address is known once a client there has shown a certificate."""

    def __init__(self, now: float) -> None:
        # least recently seen first
        self._known: dict[str, None] = {}
        self._silent: PeerPlaces[Connection] = PeerPlaces(MOST_WAITING, MOST_WAITING_OF_PEER, self._known)
        self._ready: PeerPlaces[Connection] = PeerPlaces(MOST_WAITING, MOST_WAITING_OF_PEER, self._known)
        self._handshakes: PeerPlaces[Connection] = PeerPlaces(MOST_HANDSHAKES, MOST_HANDSHAKES_OF_PEER, self._known)
        self._pace = TokenBucket(HANDSHAKES_PER_SECOND, _AT_ONCE, now)
        self._is_turn_of_known = True

    def arrive(self, connection: Connection, peer: str) -> Connection | None:
        """Adds an accepted connection that has sent nothing yet. Returns the one that gives way."""
        return self._silent.add(connection, peer)

    def speak(self, connection: Connection) -> Connection | None:
        """Queues a connection whose first bytes have arrived. Returns the one that gives way."""
        peer = self._silent.remove(connection)
        return self._ready.add(connection, peer) if peer is not None else None

    def next(self, now: float) -> tuple[Connection, str] | None:
        """Takes the next connection and its address; then call `begin`, unless it is closed. None: none waits, or too early."""
        if not self._ready or self._pace.wait_seconds(now) > 0.0:
            return None
        is_turn_of_known = self._is_turn_of_known
        self._is_turn_of_known = not is_turn_of_known
        wanted = self._ready.pop(lambda peer: (peer in self._known) == is_turn_of_known)
        return wanted or self._ready.pop(lambda _: True)

    def begin(self, connection: Connection, peer: str, now: float) -> Connection | None:
        """Notes that its handshake begins. Returns the handshake that gives way."""
        self._pace.take(now)
        return self._handshakes.add(connection, peer)

    def wait_seconds(self, now: float) -> float | None:
        """Seconds until the next handshake may begin; None if no connection waits."""
        return self._pace.wait_seconds(now) if self._ready else None

    def prove(self, connection: Connection) -> None:
        """Its client has shown an allowed certificate: the address is known from now on, and the connection needs no place."""
        peer = self._handshakes.remove(connection)
        if peer is not None:
            self._known.pop(peer, None)
            self._known[peer] = None
            if len(self._known) > _MOST_KNOWN:
                del self._known[next(iter(self._known))]

    def end(self, connection: Connection) -> None:
        for places in (self._silent, self._ready, self._handshakes):
            places.remove(connection)

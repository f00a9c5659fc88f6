"""Shares places for connections among peers' addresses: the address with the most connections loses one. Pure."""

from collections.abc import Callable, Container, Hashable
from typing import Generic, TypeVar

Connection = TypeVar("Connection", bound=Hashable)


class PeerPlaces(Generic[Connection]):
    """most: places in all; of_peer: of one address. spared: addresses that lose connections last."""

    def __init__(self, most: int, of_peer: int, spared: Container[str] = ()) -> None:
        self._most = most
        self._of_peer = of_peer
        self._spared = spared
        self._peers: dict[Connection, str] = {}
        # by address, oldest first; the next address in turn comes first
        self._connections: dict[str, dict[Connection, None]] = {}

    def __len__(self) -> int:
        return len(self._peers)

    def __contains__(self, connection: Connection) -> bool:
        return connection in self._peers

    def add(self, connection: Connection, peer: str) -> Connection | None:
        """Give it a place. Return the connection that lost its place: the oldest of an address, maybe this one."""
        self._peers[connection] = peer
        self._connections.setdefault(peer, {})[connection] = None
        if len(self._connections[peer]) > self._of_peer:
            return self._pop_oldest(peer)
        if len(self) > self._most:
            return self._pop_oldest(max(self._connections, key=self._excess))
        return None

    def remove(self, connection: Connection) -> str | None:
        """Free its place. Return the address; None if it had no place."""
        peer = self._peers.pop(connection, None)
        if peer is not None:
            del self._connections[peer][connection]
            if not self._connections[peer]:
                del self._connections[peer]
        return peer

    def pop(self, is_wanted: Callable[[str], bool]) -> tuple[Connection, str] | None:
        """Return the oldest connection of a wanted address, and the address. Addresses take turns. None if no address is wanted."""
        for peer in self._connections:
            if is_wanted(peer):
                connection = self._pop_oldest(peer)
                if peer in self._connections:
                    self._connections[peer] = self._connections.pop(peer)
                return connection, peer
        return None

    def _excess(self, peer: str) -> tuple[bool, int]:
        return peer not in self._spared, len(self._connections[peer])

    def _pop_oldest(self, peer: str) -> Connection:
        oldest = next(iter(self._connections[peer]))
        self.remove(oldest)
        return oldest

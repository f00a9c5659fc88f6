"""The connections of one resource's plugins, and the device lists that are kept of them."""

from itertools import dropwhile, takewhile
from typing import Final

from msgspec import Struct

from nodedevice_agent.devicemanager.resources.devices import ListedDevices, Size

# The prefix of the scope of a built-in plugin's resource; the ID space of its parents follows.
BUILT_IN = "built-in "


class PluginOptions(Struct, frozen=True):
    """scope: set for a built-in plugin, by the agent and not by the plugin itself; see BUILT_IN."""

    pre_start_required: bool = False
    get_preferred_allocation_available: bool = False
    holdings_required: bool = False
    scope: str = ""


NO_OPTIONS: Final = PluginOptions()


class Connection(Struct):
    """listed: the latest accepted list of this connection. refusal: replaces its latest list if that is refused. is_awaited: the
    refused list is being read again, as it fits now. has_listed_devices: an accepted list had a device in it; some plugins send an
    empty list first.
    """

    endpoint: int | None
    options: PluginOptions
    socket: str = ""
    listed: ListedDevices | None = None
    refusal: ListedDevices | None = None
    is_awaited: bool = False
    has_listed_devices: bool = False

    @property
    def has_listed(self) -> bool:
        return self.listed is not None or self.refusal is not None

    @property
    def sizes(self) -> tuple[Size, ...]:
        """Sizes of its kept list, and of the refused list that is being read again."""
        awaited = self.refusal if self.is_awaited else None
        return tuple(each.size for each in (self.listed, awaited) if each is not None)


NO_CONNECTION: Final = Connection(None, NO_OPTIONS)


class Connections(Struct, eq=False):
    """live: from the oldest to the newest, which receives the calls. silent: connections whose plugin does not respond; their lists
    count again once it does.
    """

    live: list[Connection] = []
    silent: tuple[Connection, ...] = ()

    def find(self, endpoint: int) -> Connection | None:
        return next((c for c in (*self.live, *self.silent) if c.endpoint == endpoint), None)

    def newest(self) -> Connection:
        return self.live[-1] if self.live else NO_CONNECTION

    def with_list(self) -> Connection | None:
        """Return the newest live connection with an accepted list: its list is in force."""
        return next((c for c in reversed(self.live) if c.listed is not None), None)

    def sockets(self) -> tuple[str, ...]:
        """Sockets of the connected plugins, each once, the newest plugin's last; a plugin that registers again has one."""
        return tuple(reversed(dict.fromkeys(connection.socket for connection in reversed(self.live))))

    def ended(self, connection: Connection, *, is_silent: bool) -> bool:
        """Remove a connection that ended or does not respond. Returns whether it was silent before."""
        was_silent = connection in self.silent
        self.silent = tuple(c for c in self.silent if c is not connection) + ((connection,) if is_silent else ())
        if not was_silent:
            self.live.remove(connection)
        return was_silent

    def clear(self) -> None:
        self.live.clear()
        self.silent = ()

    def kept(self, besides: int | None = None, *, besides_older: bool = False) -> list[Connection]:
        """The connections with kept lists. besides: excludes that connection; besides_older: also excludes those before it."""
        own = dropwhile(lambda one: besides_older and one.endpoint != besides, self.live)
        return [c for c in (*own, *self.silent) if c.endpoint != besides]

    def size_of(self, endpoint: int) -> Size:
        """The size of that connection's list; 0 before its first accepted list."""
        connection = self.find(endpoint)
        return connection.listed.size if connection is not None and connection.listed is not None else Size()

    def refused(self) -> list[tuple[Connection, int, Size]]:
        """Connections with a refused latest list that is not being read again; their numbers, and the sizes of these lists."""
        waiting = ((c, c.endpoint, c.refusal.size) for c in self.live if c.refusal is not None and not c.is_awaited)
        return [(c, endpoint, size) for c, endpoint, size in waiting if endpoint is not None]

    def is_awaited(self, endpoint: int) -> bool:
        connection = self.find(endpoint)
        return connection is not None and connection.is_awaited

    def forget_older_lists(self, endpoint: int) -> None:
        """Drop lists of connections older than that one, which is about to list. Their plugins list again if needed."""
        if self.find(endpoint) is None:
            # a late list of an ended connection
            return
        for connection in takewhile(lambda one: one.endpoint != endpoint, self.live):
            connection.listed = connection.refusal = None

    def answers_again(self, endpoint: int) -> tuple[ListedDevices, ...]:
        """Remove a silent connection whose plugin is about to be connected again. Returns its lists, which count again."""
        found = [c for c in self.silent if c.endpoint == endpoint]
        self.silent = tuple(c for c in self.silent if c.endpoint != endpoint)
        return tuple(each for c in found for each in (c.listed, c.refusal) if each is not None)

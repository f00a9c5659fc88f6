"""Lets the device manager of a process recognize plugins of the same process: by the sockets that these created.

A plugin cannot claim this by anything it sends: another plugin may take over a path, a name or a message, but not the file that
was created here.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct

from nodedevice_agent.lib.deviceplugin_server.values import Injector, NodeLabels
from nodedevice_agent.lib.filesystem import FileIdentity, file_identity


class BuiltIn(Struct, frozen=True):
    """A plugin of this process. scope: what the IDs of its parents are IDs of."""

    resource_name: str
    scope: str


class UnmatchedGroups:
    """Groups of device files without a device on the node: their indexes, by resource name. Use in one thread.

    changed: called at each change.
    """

    def __init__(self) -> None:
        self.by_resource: dict[str, Sequence[int]] = {}
        self.changed: Callable[[], None] = lambda: None

    def note(self, resource_name: str, groups: Sequence[int] | None) -> None:
        """groups: None while unknown."""
        if self.by_resource.get(resource_name) == groups:
            return
        self.by_resource.pop(resource_name, None)
        if groups is not None:
            self.by_resource[resource_name] = groups
        self.changed()


class BuiltInSockets:
    """The sockets that are served now. Use in one thread."""

    def __init__(self) -> None:
        self.injector = Injector()
        self.node_labels = NodeLabels()
        self.unmatched = UnmatchedGroups()
        self._plugins: dict[FileIdentity, BuiltIn] = {}

    @contextmanager
    def made(self, socket: FileIdentity, resource_name: str, scope: str) -> Iterator[None]:
        """For as long as this socket is served."""
        self._plugins[socket] = BuiltIn(resource_name, scope)
        try:
            yield
        finally:
            del self._plugins[socket]

    def find(self, socket: Path, resource_name: str) -> BuiltIn | None:
        """The plugin of this process that serves there now; None for anybody else's, or for another resource."""
        identity = file_identity(socket)
        plugin = self._plugins.get(identity) if identity is not None else None
        return plugin if plugin is not None and plugin.resource_name == resource_name else None

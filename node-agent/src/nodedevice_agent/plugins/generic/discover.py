"""Matches the agent's settings with a node's device files."""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import partial

from nodedevice_agent.lib.deviceplugin_server.values import AllocationRefused
from nodedevice_agent.lib.file_reads import FileReads
from nodedevice_agent.lib.file_watcher import FileWatcher
from nodedevice_agent.plugins.contract import Discovered
from nodedevice_agent.plugins.generic.files import kernel_path
from nodedevice_agent.plugins.generic.settings import GenericSettings
from nodedevice_agent.plugins.generic.source import GenericSource

# of one resource; who configures more needs no hint
_MAX_DEVICES = 1024


async def discover(configured: Sequence[GenericSettings], host_root: str, reads: FileReads) -> Discovered:
    """Raises OSError."""
    return await reads.run(partial(offered, configured, host_root.rstrip("/")))


def offered(configured: Sequence[GenericSettings], root: str) -> Discovered:
    """Found as the agent itself finds it, with no memory of earlier plugs. root: without a trailing slash."""
    by_file: dict[str, tuple[str, ...]] = {}
    missing = {}
    for resource in configured:
        source = GenericSource(resource, root, FileWatcher())
        source.refresh()
        name = resource.resource_name
        if not source.devices.latest and source.devices.trouble[1]:
            missing[name] = source.devices.trouble[1]
        for path in _paths(source, root):
            if name not in by_file.get(path, ()):
                by_file[path] = (*by_file.get(path, ()), name)
    return Discovered(offered_as=by_file, missing=missing)


def _paths(source: GenericSource, root: str) -> Iterable[str]:
    """The kernel's, of all device files of its devices."""
    found: dict[str, None] = {}
    for device in source.devices.latest[:_MAX_DEVICES]:
        # a file may have gone since
        with suppress(AllocationRefused, OSError):
            nodes = source.allocate([device.id], None).device_nodes
            found |= dict.fromkeys(kernel_path(root, node.host_path) for node in nodes)
    return found

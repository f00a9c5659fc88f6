"""Serves a resource of device files."""

from nodedevice_agent.lib.file_reads import FileReads
from nodedevice_agent.plugins.generic.settings import GenericSettings
from nodedevice_agent.plugins.generic.source import GenericSource
from nodedevice_agent.plugins.generic.sysfs import Sysfs
from nodedevice_agent.plugins.run import Node


async def run(settings: GenericSettings, node: Node) -> None:
    sysfs = node.common(Sysfs, node.host_root.rstrip("/"))
    source = GenericSource(
        settings, node.host_root, node.watcher, node.state_dir, node.common(FileReads), node.room, sysfs
    )
    source.note_unmatched = node.sockets.unmatched.note
    await node.serve(source, source.reconfigure)

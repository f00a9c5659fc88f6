"""Serves a resource of device files."""

from nodedevice_agent.lib.file_reads import FileReads
from nodedevice_agent.plugins.contract import Node
from nodedevice_agent.plugins.generic.settings import GenericSettings
from nodedevice_agent.plugins.generic.shared_sysfs import SharedSysfs
from nodedevice_agent.plugins.generic.source import GenericSource


async def run(settings: GenericSettings, node: Node) -> None:
    sysfs = node.common(SharedSysfs, node.host_root.rstrip("/"))
    source = GenericSource(
        settings, node.host_root, node.watcher, node.state_dir, node.common(FileReads), node.room, sysfs
    )
    source.note_unmatched = node.sockets.unmatched.note
    await node.serve(source, source.reconfigure)

"""A source of device files on a made-up host."""

from pathlib import Path
from typing import Any

import msgspec
from nodedevice_agent.lib.file_watcher import FileWatcher
from nodedevice_agent.plugins.generic.settings import GenericSettings, GroupSettings
from nodedevice_agent.plugins.generic.source import GenericSource


def settings_of(*groups: GroupSettings | dict[str, Any]) -> GenericSettings:
    """Of the resource example.com/x."""
    made = [each if isinstance(each, GroupSettings) else msgspec.convert(each, GroupSettings) for each in groups]
    return GenericSettings("example.com/x", made)


def source_of(root: Path, *groups: GroupSettings | dict[str, Any]) -> GenericSource:
    """After its first scan."""
    source = GenericSource(settings_of(*groups), str(root), FileWatcher())
    source.refresh()
    return source

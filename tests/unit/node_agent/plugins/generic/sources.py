"""A source of device files on a made-up host."""

from pathlib import Path
from typing import Any

import msgspec
from nodedevice_agent.lib.file_watcher import FileWatcher
from nodedevice_agent.plugins.generic.settings import GenericSettings, GroupSettings
from nodedevice_agent.plugins.generic.source import GenericSource

Group = GroupSettings | dict[str, Any]


def paths(*patterns: str, **more: Any) -> dict[str, Any]:
    """A group whose devices have a file of each of these."""
    return {"paths": [{"path": each} for each in patterns], **more}


def settings_of(*groups: Group, name: str = "example.com/x") -> GenericSettings:
    made = [each if isinstance(each, GroupSettings) else msgspec.convert(each, GroupSettings) for each in groups]
    return GenericSettings(name, made)


def unread_source(
    root: Path, *groups: Group, name: str = "example.com/x", watcher: FileWatcher | None = None, **options: Any
) -> GenericSource:
    """Before its first scan. options: of the source."""
    return GenericSource(settings_of(*groups, name=name), str(root), watcher or FileWatcher(), **options)


def source_of(root: Path, *groups: Group, **options: Any) -> GenericSource:
    """After its first scan."""
    source = unread_source(root, *groups, **options)
    source.refresh()
    return source

"""Devices from groups of paths and the files that match them. Pure.

A group's plain paths belong to each of its devices. Its wildcard paths are joined by what the wildcards match: `/dev/video*`
with `/dev/media*` makes one device of video0 and media0, and unplugging one camera never re-pairs the files of two others.
Where a group selects instead, the files of each physical device are found together.
As in a shell, a wildcard stays within one directory level, and a leading dot is matched only by a leading dot.
"""

from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct

from nodedevice_agent.lib.deviceplugin_server.values import device_id
from nodedevice_agent.plugins.generic.settings import GroupSettings, PathSettings
from nodedevice_agent.plugins.patterns import WILDCARD, Captures, is_match, wildcard_count


class FoundFile(Struct, frozen=True):
    """A file of the host that matches a pattern; it may be a directory, which is never a device.

    kernel_path: the path after links. number: of a device file, such as c188:0. tokens: identify the device (see identity.py);
    empty for a file that only comes with devices (is_shared_file). is_unread: its device could not be read.
    """

    path: str
    captures: Captures = ()
    is_device: bool = True
    numa_nodes: tuple[int, ...] = ()
    is_directory: bool = False
    kernel_path: str = ""
    number: str = ""
    tokens: tuple[str, ...] = ()
    is_shared_file: bool = False
    is_unread: bool = False


class FoundFunction(Struct, frozen=True):
    """A device and all its files. attributes: sorted by name. paths: the setting of each file; empty for what a group selects.

    aliases: other IDs of it. port: the place in sysfs of the USB port that it is selected by; empty for others.
    """

    id: str
    files: tuple[FoundFile, ...]
    attributes: tuple[tuple[str, str], ...] = ()
    paths: tuple[PathSettings, ...] = ()
    aliases: tuple[str, ...] = ()
    port: str = ""

    @property
    def own_files(self) -> tuple[FoundFile, ...]:
        """Files that belong to this device alone: not the plain paths of a group with wildcards, and not optional plain paths."""
        if not self.paths:
            return self.files
        wild = tuple(file for file in self.files if file.captures)
        return wild or tuple(file for file, path in zip(self.files, self.paths, strict=True) if not path.optional)


class Incomplete(Struct, frozen=True):
    """A device that is not listed, as files of it are missing. name: a file that is there, or the ID of what a group selects."""

    name: str
    missing: tuple[str, ...]


Found = Mapping[str, Iterable[FoundFile]]
Selected = Mapping[int, Iterable[FoundFunction]]


def found_functions(group: GroupSettings, found: Found) -> Iterator[FoundFunction]:
    """Devices of a group's paths. found: the files that match each pattern."""
    named_after = group.named_after if group.paths else None
    for _, files in _file_sets(group, found):
        by_path = [*zip(group.paths, files, strict=True)]
        if all(file is not None or path.optional for path, file in by_path):
            present = {path: file for path, file in by_path if file is not None}
            # named after a path that differs between the group's devices, and not after an optional file
            distinct = next(file for path, file in present.items() if path == named_after)
            yield FoundFunction(device_id(distinct.path), tuple(present.values()), paths=tuple(present))


def incomplete_devices(groups: Iterable[GroupSettings], found: Found) -> Iterator[Incomplete]:
    """Devices that have some of their files, and not all but the optional ones. found: as above."""
    for group in groups:
        for captures, files in _file_sets(group, found):
            required = [(path.path, file) for path, file in zip(group.paths, files, strict=True) if not path.optional]
            present = [file for _, file in required if file is not None]
            missing = [path for path, file in required if file is None]
            has_no_match = not captures and any(wildcard_count(path) for path in missing)
            if not missing or not present or has_no_match:
                continue
            named = [_filled(path, captures) for path in missing]
            # video7 is not meant if the group pairs it with media[0-3]
            if all(path == name or is_match(path, name) for path, name in zip(missing, named, strict=True)):
                yield Incomplete(max(present, key=lambda file: bool(file.captures)).path, tuple(named))


def is_usable(group: GroupSettings, file: FoundFile) -> bool:
    """Whether a container can be given this file."""
    return file.is_device or (group.allow_files and not file.is_directory)


def _filled(pattern: str, captures: Captures) -> str:
    """The path in which the wildcards match these texts. captures: one for each wildcard."""
    texts = iter(captures)
    return "/".join(WILDCARD.sub(lambda _: next(texts), part) for part in pattern.split("/"))


def _file_sets(group: GroupSettings, found: Found) -> Iterator[tuple[Captures, list[FoundFile | None]]]:
    """What the wildcards match for each device of the group, and its files in the order of the group's paths."""
    if not group.paths:
        return
    per_path = [
        {file.captures: file for file in found.get(path.path, ()) if is_usable(group, file)} for path in group.paths
    ]
    wild = [
        matches
        for path, matches in zip(group.paths, per_path, strict=True)
        if wildcard_count(path.path) and not path.optional
    ]
    for captures in sorted({captures for matches in wild for captures in matches}) or [()]:
        # a plain path captures nothing, and belongs to each device
        yield captures, [matches.get(captures) or matches.get(()) for matches in per_path]

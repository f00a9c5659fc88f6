"""Explains to people why configured devices are not listed: the missing files, and similar ones on the node. Pure.

Texts are bounded: a condition has room for a few names.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec import structs

from nodedevice_agent.lib.deviceplugin_server.values import some
from nodedevice_agent.plugins.generic.found import Found, FoundFile, Incomplete, incomplete_devices, is_usable
from nodedevice_agent.plugins.generic.functions import (
    RAW_USB,
    Function,
    Node,
    Properties,
    candidates,
    in_subsystems,
    is_usb_match,
)
from nodedevice_agent.plugins.generic.offers import NotListed
from nodedevice_agent.plugins.generic.settings import GroupSettings, SelectSettings

_MAX_PRESENT = 5
# characters of a name or value from outside
_LONGEST = 48


def not_readable(errors: Mapping[str, str]) -> str:
    """errors: by path, why it could not be read. Returns "" without errors."""
    remedy = "its last state counts for now: disconnect and connect the device again, or see the kernel log (dmesg)"
    return _sentence("cannot read", [f"{path} ({why})" for path, why in errors.items()], remedy)


def incomplete(devices: Sequence[Incomplete]) -> str:
    """Names devices that lack files; "" if each device has all its files."""
    if not devices:
        return ""
    named = some([f"{device.name} lacks {listed(device.missing)}" for device in devices], "; ")
    remedy = "connect the missing device, correct its path, or set optional: true there"
    return f"incomplete devices are not listed: {named}: {remedy}"


def wrong_paths(groups: Iterable[GroupSettings], found: Found) -> str:
    """Names paths that match only directories, or only regular files that are not allowed; otherwise ""."""
    reasons: dict[str, str] = {}
    for path, files in _useless(groups, found):
        if files and all(file.is_directory for file in files):
            reasons[path] = f"{path} is a directory: name its files, such as {path}/*, or use select with subsystems"
        elif files:
            reasons[path] = f"{path} is not a device file: correct the path, or set allowFiles: true to mount it"
    return listed([*reasons.values()], "; ")


def not_shared(not_listed: Iterable[NotListed]) -> str:
    """Names shared devices that another group of the resource offers exclusively; otherwise ""."""
    names = [
        f"{each.offer.id} of groups[{each.offer.group}], as groups[{each.listed.group}] has it for one container at a time "
        f"({each.listed.id})"
        for each in not_listed
        if each.offer.is_shared != each.listed.is_shared
    ]
    return _sentence("shared devices are not listed:", names, "set shared: true in both groups, or name it in one")


def same_device(not_listed: Iterable[NotListed]) -> str:
    """Names devices that are part of another one, contain it, or have its ID; otherwise ""."""
    names = [
        f"{each.offer.id} of groups[{each.offer.group}], as groups[{each.listed.group}] has other files of it"
        if each.offer.id == each.listed.id
        else f"{each.offer.id}, the same device as {each.listed.id}"
        for each in not_listed
        if each.offer.is_shared == each.listed.is_shared
    ]
    return _sentence(
        "each device is listed once, and these are not:", names, "name its files in one group, and no others"
    )


def no_match(groups: Iterable[GroupSettings], found: Found) -> str:
    """Names paths that match no file at all; otherwise "". Paths of incomplete devices are named there."""
    rest = [group for group in groups if not any(incomplete_devices([group], found))]
    missing = [*dict.fromkeys(path for path, files in _useless(rest, found) if not files)]
    return _sentence("no file of the host matches", missing, "connect the device, or correct the path", ", ")


def unmatched(select: SelectSettings, functions: Sequence[Function], properties: Callable[[Node], Properties]) -> str:
    """Explains a selection without matches by the node's devices: names the first key that excludes all the remaining ones.

    properties: udevd's of a device file.
    """
    of_usb = [function for function in functions if is_usb_match(select, function)]
    nodes = [node for function in of_usb for node in in_subsystems(select, function)]
    real = [node for function in of_usb for node in candidates(select, function)]
    if select.usb is not None and not of_usb:
        wanted = ", ".join(f"{key} {value}" for key, value in structs.asdict(select.usb).items() if value)
        problem, present = f"no USB device has {wanted}", _usb_devices(functions)
    elif not nodes:
        wanted = " or ".join(select.subsystems) or f"a subsystem other than {RAW_USB}"
        problem, present = f"no device file is in {wanted}", _subsystems(of_usb)
    elif not real:
        wanted = " or ".join(select.subsystems)
        problem = f"no device of {wanted} has hardware, and one without is named by paths or select.udev"
        present = [node.path for node in nodes]
    else:
        wanted = ", ".join(f"{key}={value}" for key, value in select.udev.items())
        problem, present = f"no device file has {wanted}", _values(select.udev, real, properties)
    shown = listed(present, most=_MAX_PRESENT) or "none"
    bounded = problem[: _MAX_PRESENT * _LONGEST]
    return f"select matches nothing: {bounded}; present: {shown}; connect the device, or correct select"


def _useless(groups: Iterable[GroupSettings], found: Found) -> Iterable[tuple[str, list[FoundFile]]]:
    """Paths without a file for a container, but for optional ones that match nothing."""
    for group in groups:
        for path in group.paths:
            files = [*found.get(path.path, ())]
            if not any(is_usable(group, file) for file in files) and (files or not path.optional):
                yield path.path, files


def _usb_devices(functions: Iterable[Function]) -> list[str]:
    """USB devices, with the ones that have a driver first: hubs have none."""
    in_order = sorted(functions, key=lambda function: all(node.subsystem == RAW_USB for node in function.nodes))
    return [
        f"{usb.vendor}:{usb.product} ({f'serial {usb.serial[:_LONGEST]}, ' if usb.serial else ''}port {usb.port})"
        for usb in (function.usb for function in in_order)
        if usb is not None
    ]


def _subsystems(functions: Iterable[Function]) -> list[str]:
    """Each with one of its files; those with hardware first."""
    nodes = sorted((node for each in functions for node in each.nodes), key=lambda node: (node.is_virtual, node.path))
    first = {node.subsystem: node.path for node in reversed(nodes)}
    return [f"{name} ({first[name][:_LONGEST]})" for name in dict.fromkeys(node.subsystem for node in nodes)]


def _values(wanted: Iterable[str], nodes: Iterable[Node], properties: Callable[[Node], Properties]) -> list[str]:
    """udevd's values of these properties."""
    texts = []
    for node in sorted(nodes, key=lambda node: node.path):
        present = properties(node)
        values = [f"{key}={present[key][:_LONGEST]}" for key in wanted if key in present]
        texts += [f"{node.path} with {' and '.join(values)}"] if values else []
    return texts


def _sentence(problem: str, names: Sequence[str], remedy: str, separator: str = "; ") -> str:
    return f"{problem} {listed(names, separator)}: {remedy}" if names else ""


def listed(names: Sequence[str], separator: str = ", ", most: int = 3) -> str:
    """The first names, and whether there are more."""
    return separator.join(names[:most]) + (f"{separator}…" if len(names) > most else "")

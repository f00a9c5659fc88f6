"""Which devices of a node could be offered, and the settings of the built-in plugins that offer each. Pure.

The settings name exactly the device: by vendor, product and serial (else the port) on USB, elsewhere by the names that udev keeps
over a reboot. A candidate is one physical device with all its files, as `select` has it.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, Literal, get_args

from msgspec import Struct, field
from msgspec.structs import replace

from nodedevice_agent.plugins.contract import Discovered, Reported
from nodedevice_agent.plugins.generic.functions import RAW_USB, Function, Node, UsbDevice
from nodedevice_agent.plugins.patterns import WILDCARD
from nodedevice_agent.plugins.shared_files import SHARED_FILES

Kind = Literal["serial", "video", "gpu", "usb", "other"]

# virtual devices that are worth offering: several pods may have each
_SOFTWARE: Final = ("/dev/fuse", "/dev/kvm", "/dev/net/tun", "/dev/vhost-net", "/dev/vhost-vsock")
_SHARES: Final = 4
# files of the machine itself, or a second way to another file's device
_NOBODYS: Final = frozenset({"bsg", "cpuid", "mem", "msr", "rtc", "vc", "watchdog"})
_OF_GPUS: Final = frozenset({"accel", "drm"})
_AMD_COMPUTE: Final = "/dev/kfd"
_AMD_DRIVER: Final = "amdgpu"
# in this order
_SUBSYSTEMS: Final[Mapping[str, Kind]] = {"tty": "serial", "video4linux": "video", "drm": "gpu", "accel": "gpu"}
_NO_FILE: Final = "it has no device file: no driver of the kernel serves it, or /dev of the host is not mounted here"
_MAX_SLUG: Final = 40
_DISK: Final = "it has a disk, which the node itself may have mounted"
_CONSOLE: Final = "it is a console of the node: what the kernel and its log-in write goes there"


class FileFacts(Struct, frozen=True):
    """A device file. links: its udev links, the best first. driver: "" if unknown."""

    node: Node
    links: tuple[str, ...] = ()
    mode: int = 0
    group: int = 0
    driver: str = ""


class PciDevice(Struct, frozen=True):
    """A display controller or an accelerator. vendor, device: four hexadecimal digits. driver: empty for none."""

    address: str
    sysfs: str
    vendor: str
    device: str
    driver: str = ""


class Facts(Struct, frozen=True):
    """The facts read from a node.

    files: the files in /dev, by path. labels: the name that a USB device reports, by place in sysfs. has_own_serial: whether no
    other USB device has its serial. usb_drivers: by place, the kernel drivers of a USB device's interfaces. consoles: serial
    ports and terminals of the kernel's console, such as ttyS0. discovered: devices that plugins know. notes: things that cannot
    be seen from here.
    """

    functions: tuple[Function, ...] = ()
    files: Mapping[str, FileFacts] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    pci_devices: tuple[PciDevice, ...] = ()
    discovered: tuple[Discovered, ...] = ()
    has_own_serial: Callable[[UsbDevice], bool] = lambda usb: bool(usb.serial)
    usb_drivers: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    consoles: frozenset[str] = frozenset()
    notes: tuple[str, ...] = ()


class CandidateFile(Struct, frozen=True, rename="camel", omit_defaults=True):
    """stable: the name that survives a reboot, if udev has one. mode: as for chmod, such as 0660."""

    path: str
    subsystem: str
    mode: str
    group: int
    stable: str = ""
    driver: str = ""


class Candidate(Struct, frozen=True, rename="camel", omit_defaults=True):
    """identity: usb: vendor:product, serial, port; pci: vendor:device, address; uuid: of a GPU.

    plugins: settings that offer it; empty if none can. offered_as: resources of this agent that already include it.
    supplemental_groups: groups that a non-root process needs to open all its files. only_root: only root can open one of its
    files.
    """

    kind: Kind
    name: str
    identity: dict[str, str] = {}
    files: list[CandidateFile] = []
    offered_as: list[str] = []
    supplemental_groups: list[int] = []
    only_root: bool = False
    plugins: dict[str, Any] = {}
    notes: list[str] = []


def candidates(facts: Facts) -> list[Candidate]:
    """Candidates by kind, then by identity; each resource in their settings has a different name."""
    gpus = list(_gpus(facts))
    of_gpus = {file.path for gpu in gpus for file in gpu.files}
    others = (
        _of_function(facts, each) for each in facts.functions if of_gpus.isdisjoint(node.path for node in each.nodes)
    )
    order = get_args(Kind)
    found = [*gpus, *(each for each in others if each is not None)]
    found.sort(key=lambda each: (order.index(each.kind), each.name, [*each.identity.values()]))
    return [*_with_own_names(found)]


def _of_function(facts: Facts, function: Function) -> Candidate | None:
    """Returns None for devices that are never offered: hubs, the machine's disks, and virtual devices without a use."""
    if function.usb is not None:
        # a hub has only its own files; a device plugged into it is another one
        return None if function.usb.is_hub else _usb(facts, function, function.usb)
    if any(node.number.startswith("b") for node in function.nodes):
        return None
    files = _files(facts, function.nodes)
    if files and all(file.node.path in _SOFTWARE for file in files):
        path = files[0].node.path
        plugins = _generic({"paths": [{"path": path}], "count": _SHARES})
        notes = [f"{SHARED_FILES[path]}: count is how many pods of the node may have it"]
        return _made(facts, "other", path.removeprefix("/dev/"), files, plugins=plugins, notes=notes)
    real = [file for file in files if not file.node.is_virtual and file.node.subsystem not in _NOBODYS]
    if not real:
        return None
    paths = [{"path": _pattern(_lasting(file))} for file in real]
    name, plugins = real[0].node.path.removeprefix("/dev/"), _generic({"paths": paths})
    is_console = any(file.node.path.rpartition("/")[2] in facts.consoles for file in real)
    return _made(facts, _kind(real, "other"), name, real, plugins=plugins, notes=[_CONSOLE] if is_console else [])


def _usb(facts: Facts, function: Function, usb: UsbDevice) -> Candidate:
    """Selects by serial if it is unique, otherwise by port. Offers raw access only if no driver uses the device."""
    every = [facts.files[node.path] for node in function.nodes if node.path in facts.files]
    useful = [file for file in every if file.node.subsystem != RAW_USB]
    select: dict[str, Any] = {"usb": {"vendor": usb.vendor, "product": usb.product}}
    own = facts.has_own_serial(usb)
    select["usb"] |= {"serial": _pattern(usb.serial)} if own else {"port": usb.port}
    identity = {"usb": f"{usb.vendor}:{usb.product}", "serial": usb.serial, "port": usb.port}
    files = useful or every
    if not useful:
        select["subsystems"] = [RAW_USB]
    notes = [_DISK] if any(file.node.number.startswith("b") for file in useful) else []
    drivers = facts.usb_drivers.get(usb.sysfs)
    if drivers and not useful:
        notes.append(f"the kernel's {', '.join(drivers)} serves it: a program with raw access takes it from the node")
    if usb.serial and not own:
        notes.append("another USB device has the same serial, so its port is named")
    return _made(
        facts,
        _kind(files, "usb"),
        facts.labels.get(usb.sysfs, "") or identity["usb"],
        files,
        identity={key: value for key, value in identity.items() if value},
        plugins=_generic({"select": select}) if files else {},
        notes=notes if files else [_NO_FILE],
    )


def _gpus(facts: Facts) -> Iterator[Candidate]:
    """One for each display controller and accelerator on the PCI bus, and for each further one that a plugin's driver reports."""
    reported = [(maker, device) for maker in facts.discovered for device in maker.reported]
    by_address = {device.pci_bus_id: (maker, device) for maker, device in reported if device.pci_bus_id}
    by_vendor = {maker.pci_vendor: maker for maker in facts.discovered}
    by_place = {function.sysfs: function for function in facts.functions if function.usb is None}
    for pci in facts.pci_devices:
        function = by_place.get(pci.sysfs)
        files = _files(facts, function.nodes) if function else []
        maker, device = by_address.pop(pci.address, (by_vendor.get(pci.vendor), None))
        yield _gpu(facts, pci, maker, device, files)
    known = {pci.address for pci in facts.pci_devices}
    for maker, device in reported:
        if device.pci_bus_id not in known:
            yield _gpu(facts, None, maker, device, [])


def _gpu(
    facts: Facts, pci: PciDevice | None, maker: Discovered | None, device: Reported | None, files: list[FileFacts]
) -> Candidate:
    identity = (
        {"pci": f"{pci.vendor}:{pci.device}", "address": pci.address, "driver": pci.driver} if pci is not None else {}
    )
    if device is not None:
        identity |= device.identity
    # if its driver has no name for it: the first part of its identity
    name = (device.name if device is not None else "") or next(iter(identity.values()))
    made = _made(facts, "gpu", name, files)
    offered = {*made.offered_as, *(device.offered_as if device is not None else ())}
    made = replace(made, identity={key: value for key, value in identity.items() if value}, offered_as=sorted(offered))
    if maker is not None:
        return replace(made, plugins=dict(maker.settings), notes=[] if device is not None else [maker.unreported])
    paths: list[dict[str, Any]] = [
        {"path": _pattern(_lasting(file))} for file in files if file.node.subsystem in _OF_GPUS
    ]
    if not paths:
        return replace(made, notes=[_NO_FILE])
    if pci is not None and pci.driver == _AMD_DRIVER:
        paths.append({"path": _AMD_COMPUTE, "optional": True})
    return replace(made, plugins=_generic({"paths": paths}))


def _made(facts: Facts, kind: Kind, name: str, files: list[FileFacts], **more: Any) -> Candidate:
    """Returns the candidate with facts about its files. more: its other fields."""
    shown = [
        CandidateFile(
            file.node.path,
            file.node.subsystem,
            f"{file.mode & 0o7777:04o}",
            file.group,
            next(iter(file.links), ""),
            file.driver,
        )
        for file in files
    ]
    paths = [file.node.path for file in files]
    offered = {name for each in facts.discovered for path in paths for name in each.offered_as.get(path, ())}
    closed = [file for file in files if file.mode & 0o006 != 0o006]
    groups = {file.group for file in closed if _is_groups(file)}
    return Candidate(
        kind,
        name,
        files=shown,
        offered_as=sorted(offered),
        supplemental_groups=sorted(groups),
        only_root=not all(map(_is_groups, closed)),
        **more,
    )


def _is_groups(file: FileFacts) -> bool:
    """Whether its group, which is not root's, may read and write it."""
    return file.group != 0 and file.mode & 0o060 == 0o060


def _files(facts: Facts, nodes: Iterable[Node]) -> list[FileFacts]:
    """Character devices that are in /dev."""
    return [facts.files[node.path] for node in nodes if node.path in facts.files and node.number.startswith("c")]


def _kind(files: Iterable[FileFacts], otherwise: Kind) -> Kind:
    subsystems = {file.node.subsystem for file in files}
    return next((kind for subsystem, kind in _SUBSYSTEMS.items() if subsystem in subsystems), otherwise)


def _lasting(file: FileFacts) -> str:
    return next(iter(file.links), file.node.path)


def _pattern(text: str) -> str:
    """One that matches this text alone."""
    return re.sub(r"[*?\[]", r"[\g<0>]", text) if WILDCARD.search(text) else text


def _generic(group: dict[str, Any]) -> dict[str, Any]:
    """The name of the resource comes last, when all candidates are known."""
    return {"generic": [{"resourceName": "", "groups": [group]}]}


def _with_own_names(found: Iterable[Candidate]) -> Iterator[Candidate]:
    taken: set[str] = set()
    for each in found:
        if "generic" not in each.plugins:
            yield each
            continue
        slug = re.sub(r"[^a-z0-9]+", "-", each.name.lower())[:_MAX_SLUG].strip("-") or each.kind
        name, number = slug, 2
        while name in taken:
            name, number = f"{slug}-{number}", number + 1
        taken.add(name)
        [resource] = each.plugins["generic"]
        yield replace(each, plugins={"generic": [{**resource, "resourceName": f"example.com/{name}"}]})

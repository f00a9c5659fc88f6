"""Values of a device plugin: the devices it lists, and what a container needs to use them; and the names that it makes: device IDs
from paths; sockets, files and environment variables from resource names.

Device IDs are stable over restarts and hot-plug, readable, at most 63 characters, and no two paths share one.
"""

import hashlib
import re
from collections.abc import Callable, Container, Iterable, Mapping, Sequence, Set

from msgspec import Struct, field
from nodedevice_api.parts import part_id

# The device plugin API asks for at most 63 characters; IDs also travel in environment variables and file names.
MAX_DEVICE_ID = 63
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
_DEV = "/dev/"
# an ID of a share may have one character more
_MAX_INDEX_DIGITS = len("-999")
_INDEXED = re.compile(r".*-\d+")
_MAX_SOCKET_SLUG = 16
_MAX_FILE_SLUG = 200


class PluginDevice(Struct, frozen=True, gc=False):
    """One device as a plugin lists it.

    reason and message: why it is unhealthy. attributes: further properties, sorted by name. parent: ID of the physical device
    that it is a part of, its own ID for a whole one; "" if several resources may use a physical device. part_size: the
    size of one part, such as 1Gi, on the physical device of parts.
    identity, files, is_shared, aliases: see DeviceDetails; files sorted by path. They count only from this program's own plugins.
    """

    id: str
    is_healthy: bool = True
    numa_nodes: tuple[int, ...] = ()
    reason: str = ""
    message: str = ""
    attributes: tuple[tuple[str, str], ...] = ()
    parent: str = ""
    part_size: str = ""
    identity: tuple[str, ...] = ()
    files: tuple[tuple[str, str], ...] = ()
    is_shared: bool = False
    aliases: tuple[str, ...] = ()


class ContainerIdentity(Struct, frozen=True, gc=False):
    """A container that gets devices. annotations: its pod's in nodedevice.io/, as their author wrote them."""

    pod_namespace: str
    pod_name: str
    pod_uid: str
    container: str
    annotations: Mapping[str, str] = field(default_factory=dict)


class HeldDevices(Struct, frozen=True, gc=False):
    """One container's devices, until it has ended. env: the plugin's variables; empty if lost or not known yet."""

    pod_uid: str
    container: str
    device_ids: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)


class DeviceNode(Struct, frozen=True, gc=False):
    host_path: str
    container_path: str
    permissions: str


class Mount(Struct, frozen=True, gc=False):
    host_path: str
    container_path: str
    read_only: bool = False


class ContainerAllocation(Struct, frozen=True, gc=False):
    """Additions to one container for its devices. cdi_devices: fully qualified names, vendor/class=device."""

    device_nodes: tuple[DeviceNode, ...] = ()
    mounts: tuple[Mount, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    cdi_devices: tuple[str, ...] = ()


class Injector(Struct):
    """The program that injects devices of this process's plugins, according to the device manager of the process.

    is_kubelet: the kubelet; otherwise the agent does it, by NRI. takes_cdi: whether the runtime would inject CDI devices.
    """

    is_kubelet: bool = False
    takes_cdi: bool = True


class NodeLabels:
    """The labels of the Node, as far as the device manager of this process knows them. Use in one thread."""

    def __init__(self) -> None:
        self.latest: Mapping[str, str] = {}
        self._subscribers: list[Callable[[], None]] = []

    def are(self, labels: Mapping[str, str]) -> None:
        self.latest = labels
        for changed in list(self._subscribers):
            changed()

    def subscribe(self, changed: Callable[[], None]) -> None:
        self._subscribers.append(changed)

    def unsubscribe(self, changed: Callable[[], None]) -> None:
        self._subscribers.remove(changed)


class AllocationRefused(Exception):
    """The request cannot be served; the text names the reason."""

    def __init__(self, resource_name: str, message: str) -> None:
        super().__init__(f"{resource_name}: {message}")
        self.resource_name = resource_name


def some(names: Sequence[str], separator: str = ", ", most: int = 3) -> str:
    """The first names, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return separator.join(names[:most]) + more


def known_ids(resource_name: str, device_ids: Iterable[str], known: Container[str]) -> list[str]:
    """These device IDs, sorted, each once. Raises AllocationRefused for others."""
    wanted = sorted(set(device_ids))
    unknown = [ascii(device_id[:80]) for device_id in wanted if device_id not in known]
    if unknown:
        shown = some(unknown, most=10)
        raise AllocationRefused(resource_name, f"no such device: {shown}; ask for devices of the latest list")
    return wanted


def free_ids(resource_name: str, known: Set[str], available: Iterable[str], must: list[str], size: int) -> set[str]:
    """The devices to choose from besides `must`: a caller's list may be older than ours, so removed devices are ignored.

    Raises AllocationRefused when they are too few for `size`, or `size` is too small for `must`.
    """
    free = set(available).intersection(known).difference(must)
    if not 0 <= size - len(must) <= len(free):
        raise AllocationRefused(
            resource_name, f"{size} devices requested, but {len(free)} are available and {len(must)} must be included"
        )
    return free


def device_id(path: str) -> str:
    """`/dev/ttyUSB0` becomes `ttyUSB0`; a path that has to be altered gets eight digits of its hash as a suffix.

    A name that ends like an index gets the hash too: `tty-0` is then always the first share of `/dev/tty`.
    """
    tail = path.removeprefix(_DEV)
    slug = _UNSAFE.sub("-", tail).strip("-.")
    room = MAX_DEVICE_ID - _MAX_INDEX_DIGITS
    if path.startswith(_DEV) and slug == tail and len(slug) <= room and not _INDEXED.fullmatch(slug):
        return slug
    return hashed_id(tail, path)


def hashed_id(name: str, identity: str) -> str:
    """A name that may have to be altered or shortened, with eight digits of a hash: no two identities share one."""
    digest = _digest(identity)
    slug = _UNSAFE.sub("-", name).strip("-.")[: MAX_DEVICE_ID - _MAX_INDEX_DIGITS - len(digest) - 1].strip("-.")
    return f"{slug}-{digest}" if slug else digest


def shared_ids(base_id: str, count: int) -> tuple[str, ...]:
    """IDs under which `count` containers may hold one device: the device's own ID for one, otherwise `<id>::0`, `<id>::1`, ..."""
    return (base_id,) if count == 1 else tuple(part_id(base_id, index) for index in range(count))


def natural_key(text: str) -> tuple[tuple[str, int], ...]:
    """Sorts `gpu-2` before `gpu-10`."""
    return tuple((word, int(number or -1)) for word, number in re.findall(r"(\D*)(\d*)", text))


def socket_name(resource_name: str) -> str:
    """File name of the socket a plugin serves this resource on: at most 30 characters, equal name, equal socket.

    Short, because the kernel limits the whole path of a Unix socket to 107 bytes, and the directory is configured.
    """
    slug = re.sub(r"[^a-z0-9]+", "-", resource_name.partition("/")[2].lower()).strip("-")[:_MAX_SOCKET_SLUG]
    return f"{slug.rstrip('-')}-{_digest(resource_name)}.sock"


def file_slug(resource_name: str) -> str:
    """A readable file name, without suffix, that no two resource names share.

    `example.com/gpu` gives `example.com_gpu`: a domain has no underscore, so the first one is always the slash.
    """
    slug = resource_name.replace("/", "_")
    return slug if len(slug) <= _MAX_FILE_SLUG else f"{slug[:_MAX_FILE_SLUG]}-{_digest(resource_name)}"


def env_name(resource_name: str) -> str:
    """The environment variable with a container's device IDs: `EXAMPLE_COM_GPU` for `example.com/gpu`."""
    name = re.sub(r"[^A-Z0-9]", "_", resource_name.upper())
    return f"_{name}" if name[:1].isdigit() else name


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()[:8]

"""The reader's messages, one JSON object per line. Both processes have one version: no compatibility needed."""

import msgspec
from msgspec import Struct, field

from nodedevice_agent.plugins.nvml.fleet import Inventory
from nodedevice_agent.plugins.nvml.gpu import Gpu
from nodedevice_agent.plugins.nvml.health.health import Reading
from nodedevice_agent.plugins.nvml.links import Ancestor, Pair, Ports, links


class ReaderOptions(Struct):
    """The reader's only argument. Seconds."""

    poll_seconds: float
    call_seconds: float
    host_root: str


class FoundGpu(Struct):
    """A GPU and its own links."""

    gpu: Gpu
    ports: Ports = field(default_factory=Ports)


class FoundAncestor(Struct):
    """The common ancestor of two GPUs; level: see links.Ancestor."""

    one: str
    other: str
    level: Ancestor


class Found(Struct, tag="found"):
    """The inventory. unnamed, lost, is_partial: see fleet.Inventory."""

    driver_version: str
    gpus: list[FoundGpu]
    ancestors: list[FoundAncestor] = field(default_factory=list)
    unnamed: list[str] = field(default_factory=list)
    lost: int = 0
    is_partial: bool = False

    def inventory(self) -> Inventory:
        ancestors: dict[Pair, Ancestor] = {(each.one, each.other): each.level for each in self.ancestors}
        joined = links({found.gpu.uuid: found.ports for found in self.gpus}, ancestors)
        gpus = tuple(found.gpu for found in self.gpus)
        return Inventory(gpus, joined, tuple(self.unnamed), self.lost, self.is_partial)


class Problem(Struct, tag="problem"):
    """Why the driver cannot be read. is_absent: the node may well have no GPU."""

    reason: str
    message: str
    is_absent: bool = False


class Readings(Struct, tag="readings"):
    """One reading of each GPU, by UUID."""

    readings: dict[str, Reading]


class Xid(Struct, tag="xid"):
    """count: since the last such message. uuid: "" where the driver did not report the GPU."""

    uuid: str
    xid: int
    count: int


class EccError(Struct, tag="ecc"):
    """A double bit error was reported."""

    uuid: str


class Changed(Struct, tag="changed"):
    """The GPUs differ from the inventory; only a new NVML session shows how."""


class Lacking(Struct, tag="lacking"):
    """Features that each GPU does not support, by UUID; see gpu.Gpu."""

    not_supported: dict[str, tuple[str, ...]]


class Alive(Struct, tag="alive"):
    """Nothing new; the reader does not hang."""


Message = Found | Problem | Readings | Xid | EccError | Changed | Lacking | Alive

_decoder = msgspec.json.Decoder(Message)
_encoder = msgspec.json.Encoder()


def encode(message: Message) -> bytes:
    """As one line."""
    return _encoder.encode(message) + b"\n"


def decode(line: bytes) -> Message:
    """Raises msgspec.DecodeError."""
    decoded: Message = _decoder.decode(line)
    return decoded

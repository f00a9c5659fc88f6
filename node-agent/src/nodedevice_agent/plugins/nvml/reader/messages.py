"""What the reader tells, one JSON object a line. Both processes are of one version: nothing here has to be kept compatible."""

import msgspec
from msgspec import Struct, field

from nodedevice_agent.plugins.nvml.fleet import Inventory
from nodedevice_agent.plugins.nvml.gpu import Gpu
from nodedevice_agent.plugins.nvml.health.health import Reading
from nodedevice_agent.plugins.nvml.links import Ancestor, Pair, Ports, links


class ReaderOptions(Struct):
    """What the reader is told when it starts, as its only argument. Seconds."""

    poll_seconds: float
    call_seconds: float
    host_root: str


class FoundGpu(Struct):
    """A GPU with the links that it has itself."""

    gpu: Gpu
    ports: Ports = field(default_factory=Ports)


class FoundAncestor(Struct):
    """Of two GPUs; level: see links.Ancestor."""

    one: str
    other: str
    level: Ancestor


class Found(Struct, tag="found"):
    """The driver answered: all there is. unnamed, lost, is_partial: see fleet.Inventory."""

    driver_version: str
    gpus: list[FoundGpu]
    ancestors: list[FoundAncestor] = field(default_factory=list)
    unnamed: list[str] = field(default_factory=list)
    lost: int = 0
    is_partial: bool = False

    def inventory(self) -> Inventory:
        ancestors: dict[Pair, Ancestor] = {(told.one, told.other): told.level for told in self.ancestors}
        joined = links({found.gpu.uuid: found.ports for found in self.gpus}, ancestors)
        gpus = tuple(found.gpu for found in self.gpus)
        return Inventory(gpus, joined, tuple(self.unnamed), self.lost, self.is_partial)


class Problem(Struct, tag="problem"):
    """The driver cannot be read, and why. is_absent: there may well be no GPU here at all."""

    reason: str
    message: str
    is_absent: bool = False


class Readings(Struct, tag="readings"):
    """A look at the GPUs, by UUID."""

    readings: dict[str, Reading]


class Xid(Struct, tag="xid"):
    """So often since the last time that it was told. uuid: "" where the driver did not say."""

    uuid: str
    xid: int
    count: int


class EccError(Struct, tag="ecc"):
    """A double bit error was reported."""

    uuid: str


class Changed(Struct, tag="changed"):
    """The GPUs are no longer those that were found; NVML tells which only to who starts anew."""


class Lacking(Struct, tag="lacking"):
    """What each GPU was found not to support, by UUID; see gpu.Gpu."""

    not_supported: dict[str, tuple[str, ...]]


class Alive(Struct, tag="alive"):
    """Nothing new, but not hanging either."""


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

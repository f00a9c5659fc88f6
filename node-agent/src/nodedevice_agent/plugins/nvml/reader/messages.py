"""The reader's messages, one JSON object per line. Both processes have one version: no compatibility needed."""

from msgspec import Struct, field

from nodedevice_agent.plugins.nvml.driver_troubles import Reading
from nodedevice_agent.plugins.nvml.gpu import Ancestor, Gpu, Ports
from nodedevice_agent.plugins.nvml.health import Place


class ReaderOptions(Struct):
    """The reader's only argument. Times in seconds. library_dir: the folder of NVIDIA's library; "" for the loader's default."""

    poll_seconds: float
    call_seconds: float
    host_root: str
    library_dir: str = ""


class Orders(Struct):
    """A line on the reader's standard input. energy: seconds between readings of a GPU's energy counter, by UUID; others: never."""

    energy: dict[str, float] = field(default_factory=dict)


class Found(Struct, tag="found"):
    """The inventory of one NVML session.

    ports: by UUID. ancestors: of pairs of UUIDs, each in order. unnamed: a sentence for each GPU whose UUID cannot be read.
    lost: how many GPUs the driver lists and reports as lost; it does not report which ones, so that has to be inferred.
    is_partial: links of some GPU are unknown because a call hung.
    """

    driver_version: str
    gpus: list[Gpu]
    ports: dict[str, Ports] = field(default_factory=dict)
    ancestors: list[tuple[str, str, Ancestor]] = field(default_factory=list)
    unnamed: list[str] = field(default_factory=list)
    lost: int = 0
    is_partial: bool = False


class Problem(Struct, tag="problem"):
    """Why the driver cannot be read. is_absent: the node may well have no GPU."""

    reason: str
    message: str
    is_absent: bool = False


class Readings(Struct, tag="readings"):
    """One reading of each GPU, by UUID; of some GPUs alone after an Xid."""

    readings: dict[str, Reading]


class Xid(Struct, tag="xid"):
    """count: since the last such message. uuid: "" if unknown. place: if named. Readings follow at once and after a second."""

    uuid: str
    xid: int
    count: int
    place: Place | None = None


class EccError(Struct, tag="ecc"):
    """A double bit error was reported."""

    uuid: str


class Changed(Struct, tag="changed"):
    """The GPUs differ from the inventory; only a new NVML session shows how."""


class Described(Struct, tag="described"):
    """The MIG instances of a GPU, or the features that it lacks, have changed, or are first known. gpus: all of them."""

    gpus: list[Gpu]


class Alive(Struct, tag="alive"):
    """A heartbeat: nothing has changed, and the reader does not hang."""


Message = Found | Problem | Readings | Xid | EccError | Changed | Described | Alive

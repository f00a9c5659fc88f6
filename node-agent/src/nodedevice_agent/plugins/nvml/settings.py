"""Settings of the nvml plugin, and what each GPU of a node is used as.

An error names the key, the value and the remedy.
"""

import re
from collections.abc import Iterator
from dataclasses import replace
from fnmatch import fnmatchcase
from itertools import combinations
from typing import Annotated, Final, Literal

from msgspec import Meta, Struct, field, structs
from nodedevice_api import extended_resources
from nodedevice_api.parts import PartRules, Placement

from nodedevice_agent.lib import cdi_specification
from nodedevice_agent.plugins.checks import check_path, check_resource_name
from nodedevice_agent.plugins.nvml.conditions import EFFECTS, Effect
from nodedevice_agent.plugins.nvml.health import EccErrors, HealthRules
from nodedevice_agent.plugins.nvml.mig import mig_prefix
from nodedevice_agent.plugins.nvml.xids import APPLICATION_XIDS
from nodedevice_agent.plugins.parts import PartChoiceSettings

# one item of LD_LIBRARY_PATH; a NUL would end the environment variable
LIBRARY_DIR = re.compile(r"/[^:;\x00-\x1f\x7f]*")
QUANTITY = re.compile(r"[0-9]{1,15}(Mi|Gi)")
# of one GPU; as many as the generic plugin shares a device between
MAX_PARTS: Final = 1000
# of units of memory, by the gpushare plugins
GPUSHARE_NAME: Final = "aliyun.com/gpu-mem"
# shell patterns of a namespace and, behind a slash, of a pod
EXEMPT = re.compile(r"[a-z0-9*?\[\]!.-]{1,253}(/[a-z0-9*?\[\]!.-]{1,253})?")
_SHARED = ".shared"

HandOver = Literal["auto", "env", "deviceNodes", "cdi"]
XidNumbers = Annotated[list[Annotated[int, Meta(ge=0, le=65535)]], Meta(max_length=1000)]


class WholeSettings(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """A container gets the GPU for itself."""

    # what pods request; empty: as without a rule, from nvml.resourceName and nvml.modelResourceNames
    resource_name: str = ""


class LimitSettings(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """What a container with parts of GPUs is limited to. The administrator's library enforces it; without one, it is advice."""

    # CUDA_DEVICE_MEMORY_LIMIT_n: of units their size; of a share, its part of the GPU's memory
    memory: bool = True
    # CUDA_DEVICE_SM_LIMIT: percent of a GPU's multiprocessors for each part; 0: no limit
    sm_percent: Annotated[int, Meta(ge=0, le=100)] = 0
    # CUDA_OVERSUBSCRIBE: whether a container may use host memory beyond its limit, as far as the library can
    oversubscribe: bool = True
    # the enforcing library on the node, such as /usr/local/vgpu/libvgpu.so; empty: none, and nothing is mounted
    library: str = ""
    # file on the node that names the library, mounted at /etc/ld.so.preload
    preload: str = "/usr/local/vgpu/ld.so.preload"
    # directory on the node in which each container gets one of its own
    directory: str = "/usr/local/vgpu/containers"
    # where a container sees its own directory, and its cache
    mount_path: str = "/tmp/vgpu"
    # directory on the node for the library's lock, the same for all containers
    lock: str = "/tmp/vgpulock"

    def __post_init__(self) -> None:
        for key in ("library", "preload", "directory", "mountPath", "lock"):
            path = getattr(self, "mount_path" if key == "mountPath" else key)
            if path or key == "mountPath":
                check_path(f"limits.{key}", path)


class MpsSettings(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """The MPS daemon that the administrator runs for the shared GPUs; the agent starts none. Paths are the host's."""

    # CUDA_MPS_PIPE_DIRECTORY of the daemon; its own default
    pipe_directory: str = "/tmp/nvidia-mps"
    # the shared memory of the daemon: the host's, unless it runs in a container
    shm_directory: str = "/dev/shm"

    def __post_init__(self) -> None:
        check_path("pipeDirectory", self.pipe_directory)
        check_path("shmDirectory", self.shm_directory)


class SharesSettings(PartChoiceSettings, frozen=True, kw_only=True):
    """Several containers use the GPU: in turns (time slices), or at the same time (MPS)."""

    # how many containers may hold a GPU at once
    replicas: Annotated[int, Meta(ge=2, le=MAX_PARTS)]
    # what pods request; empty: the name that the whole GPU would have
    resource_name: str = ""
    # whether .shared is appended to that name
    rename_by_default: bool = False
    # whether Allocate refuses more than one share: more shares are not more time
    fail_requests_greater_than_one: bool = False
    # the containers use the GPU at the same time, each with its share of memory and threads, through an MPS daemon
    mps: MpsSettings | None = None
    # memory of each GPU that is in no share's limit, in Mi or Gi
    reserve: str = "0Gi"
    # what a container is limited to; unset: nothing, as with time slices of NVIDIA's plugin
    limits: LimitSettings | None = None

    def __post_init__(self) -> None:
        _check_quantity("reserve", self.reserve)

    @property
    def reserve_bytes(self) -> int:
        return extended_resources.count(self.reserve) or 0

    def rules(self) -> PartRules:
        return _with_limits(self.part_rules(Placement.DISTINCT_PARENTS), self.limits)

    def names(self, whole_names: tuple[str, ...]) -> tuple[str, ...]:
        """The resource names of shares of GPUs with these names."""
        if self.resource_name:
            return (self.resource_name,)
        return tuple(name + _SHARED for name in whole_names) if self.rename_by_default else whole_names

    def alike(self) -> "SharesSettings":
        """Equal for settings that one resource can have at the same time."""
        return structs.replace(self, replicas=MAX_PARTS, resource_name="", rename_by_default=False, reserve="0Gi")


class MemorySettings(PartChoiceSettings, frozen=True, kw_only=True):
    """Containers share the GPU's memory in units."""

    # what pods request, as the gpushare plugins name it
    resource_name: str = GPUSHARE_NAME
    # memory of one part, in Mi or Gi
    unit: str = "1Gi"
    # memory of each GPU that is in no part, in Mi or Gi; 640Mi is what one CUDA program takes besides what it allocates
    reserve: str = "640Mi"
    # what a container is limited to; null: nothing
    limits: LimitSettings | None = field(default_factory=LimitSettings)

    def __post_init__(self) -> None:
        _check_quantity("unit", self.unit)
        _check_quantity("reserve", self.reserve)
        if not self.unit_bytes:
            raise ValueError(f"unit: {self.unit!r} is no memory; use 1Gi or another amount")

    @property
    def unit_bytes(self) -> int:
        return extended_resources.count(self.unit) or 0

    @property
    def reserve_bytes(self) -> int:
        return extended_resources.count(self.reserve) or 0

    def rules(self) -> PartRules:
        return _with_limits(self.part_rules(Placement.SAME_PARENT), self.limits)

    def names(self, whole_names: tuple[str, ...]) -> tuple[str, ...]:
        return (self.resource_name,)

    def alike(self) -> "MemorySettings":
        """Equal for settings that one resource can have at the same time."""
        return structs.replace(self, reserve="640Mi")


def _with_limits(rules: PartRules, limits: LimitSettings | None) -> PartRules:
    return rules if limits is None else replace(rules, sm_percent=limits.sm_percent)


def _check_quantity(key: str, text: str) -> None:
    if not QUANTITY.fullmatch(text):
        raise ValueError(f"{key}: {text[:400]!r} must be a whole number of Mi or Gi, such as 512Mi or 1Gi")


PartsOf = SharesSettings | MemorySettings


class SharingRule(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """What some GPUs are used as: exactly one of whole, shares and memory."""

    # shell patterns of the model; models and indexes: GPUs that match both; neither: all GPUs that no other rule matches
    models: list[str] = field(default_factory=list)
    # as nvidia-smi numbers GPUs
    indexes: list[Annotated[int, Meta(ge=0)]] = field(default_factory=list)
    # one of whole, shares and memory: each GPU is one device
    whole: WholeSettings | None = None
    # several containers use a GPU, each with a share
    shares: SharesSettings | None = None
    # containers request units of memory
    memory: MemorySettings | None = None

    def __post_init__(self) -> None:
        chosen = [key for key in ("whole", "shares", "memory") if getattr(self, key) is not None]
        if len(chosen) != 1:
            named = " and ".join(chosen) or "none"
            raise ValueError(f"a GPU has one use, and {named} is named; name one of whole, shares and memory")

    @property
    def is_for_others(self) -> bool:
        """Whether it is for all GPUs that no other rule matches."""
        return not self.models and not self.indexes

    @property
    def parts(self) -> PartsOf | None:
        """None: whole."""
        return self.shares or self.memory

    def text(self) -> str:
        """What it selects, in words."""
        models = f"models {' '.join(self.models)}" if self.models else ""
        indexes = f"indexes {' '.join(map(str, self.indexes))}" if self.indexes else ""
        return ", ".join(filter(None, (models, indexes)))

    def matches(self, model: str, index: int | None) -> bool:
        """Whether it selects this GPU."""
        is_model = not self.models or any(fnmatchcase(model, pattern) for pattern in self.models)
        return not self.is_for_others and is_model and (not self.indexes or index in self.indexes)

    def overlaps(self, other: "SharingRule") -> bool:
        """Whether both select GPUs of the same model or index, as far as the settings alone show."""
        if self.is_for_others or other.is_for_others:
            return self.is_for_others and other.is_for_others
        models, indexes = set(self.models) & set(other.models), set(self.indexes) & set(other.indexes)
        models_differ = self.models and other.models and not models
        indexes_differ = self.indexes and other.indexes and not indexes
        return bool(models or indexes) and not models_differ and not indexes_differ

    def names(self, whole_names: tuple[str, ...]) -> tuple[str, ...]:
        """The resource names that it makes of GPUs with these names."""
        if self.parts is not None:
            return self.parts.names(whole_names)
        return (self.whole.resource_name,) if self.whole and self.whole.resource_name else whole_names


class GpuHealthSettings(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """What the driver's reports mean for a GPU: unhealthy (out of service), report (offered, and shown in Healthy) or ignore."""

    # the driver requests a reset, a reboot or another action but the one below (ResetRequired)
    reset_required: Effect = EFFECTS["reset_required"]
    # the driver requests an end of peer-to-peer traffic (PeerToPeerDrain)
    peer_to_peer_drain: Effect = EFFECTS["peer_to_peer_drain"]
    # a broken row of memory could not be replaced (RowRemapFailed)
    row_remap_failed: Effect = EFFECTS["row_remap_failed"]
    # a row of memory is replaced at the next reset (RowRemapPending)
    row_remap_pending: Effect = EFFECTS["row_remap_pending"]
    # a page of memory is retired at the next reset, of GPUs before the A100 (PageRetirementPending)
    page_retirement_pending: Effect = EFFECTS["page_retirement_pending"]
    # the GPU is not in the fabric of its NVSwitches, or unhealthy there (FabricNotReady, FabricUnhealthy)
    fabric: Effect = EFFECTS["fabric"]
    # the fabric has less bandwidth for it (FabricLimited)
    fabric_limited: Effect = EFFECTS["fabric_limited"]


class NvmlSettings(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """All GPUs of a node."""

    # what pods request; the same as NVIDIA's own plugin, so that pods need no change
    resource_name: str = "nvidia.com/gpu"
    # resource names by pattern of the model (`*T4*`); the first match counts, else resource_name
    model_resource_names: dict[str, str] = field(default_factory=dict)
    # what GPUs are used as, by model or index; GPUs that no rule matches are whole
    sharing: Annotated[list[SharingRule], Meta(max_length=64)] = field(default_factory=list)
    # GPUs in MIG mode, whatever rules match them. none: not offered. single: their instances, of one profile on the whole node,
    # are named as GPUs are. mixed: each profile has a name of its own, such as nvidia.com/mig-1g.10gb
    mig: Literal["none", "single", "mixed"] = "none"
    # how a container gets its GPUs. auto, alone: cdi where the node's CDI specs name them by UUID and are up to date, else env and,
    # but by a kubelet, deviceNodes; decided for each container. env: NVIDIA_VISIBLE_DEVICES, for NVIDIA's container runtime.
    # deviceNodes: the device files. cdi: CDI names, for specs generated by nvidia-ctk; refused while a spec of the GPU is outdated
    hand_over: Annotated[list[HandOver], Meta(min_length=1, max_length=3)] = field(default_factory=lambda: ["auto"])
    # the part before = in a CDI name
    cdi_kind: str = "nvidia.com/gpu"
    # pods that keep GPUs which their containers name in NVIDIA_VISIBLE_DEVICES and were not given: namespace or namespace/pod, by
    # pattern. So do those of the agent's own namespace; all others get none, with runtime nri. Monitors name all GPUs on purpose
    exempt: Annotated[list[str], Meta(max_length=64)] = field(default_factory=lambda: ["kube-system", "gpu-operator"])
    # Xids that take a GPU out of service until a reset, whatever the driver requests; docs/gpu.md has the default list
    critical_xids: XidNumbers = field(default_factory=list)
    # Xids that do not, whatever the driver requests after them; docs/gpu.md has the default list
    harmless_xids: XidNumbers = field(default_factory=list)
    # what an uncorrectable ECC error means. driver: what the driver requests after it, as it knows which ones it has contained;
    # where it reports no such action, what the Xid of the error means; one without either, or from before the agent ran, takes the
    # GPU out of service. unhealthy: each does. ignore: none does
    ecc_errors: EccErrors = "driver"
    # what the driver's other reports mean for a GPU
    health: GpuHealthSettings = field(default_factory=GpuHealthSettings)
    # how often each GPU is read; urgent problems come as events, so this is for lost GPUs and resets
    poll_seconds: Annotated[float, Meta(ge=1, le=3600)] = 5.0
    # how long a call to the driver may take before its GPU counts as hanging; the slowest healthy calls take a second
    call_seconds: Annotated[float, Meta(ge=0.1, le=600)] = 5.0
    # how often to rescan for missing GPUs: only a new NVML session sees a GPU that came back
    rescan_seconds: Annotated[float, Meta(ge=1, le=3600)] = 30.0
    # where libnvidia-ml.so.1 is, for an agent in a container; empty: where the loader finds it
    library_dir: str = ""

    def __post_init__(self) -> None:
        for name in (*self.whole_names(), *self.resource_names()):
            check_resource_name(name)
        self._check_sharing()
        if not cdi_specification.KIND.fullmatch(self.cdi_kind):
            raise ValueError(
                f"cdiKind: {self.cdi_kind[:400]!r} must be vendor/class, such as nvidia.com/gpu: each begins with a letter, ends "
                "with a letter or digit, and has letters, digits, `_`, `-` and `.` between"
            )
        if self.library_dir and not LIBRARY_DIR.fullmatch(self.library_dir):
            raise ValueError(
                f"libraryDir: {self.library_dir[:400]!r} must be one absolute path, such as /usr/lib/x86_64-linux-gnu"
            )
        if "auto" in self.hand_over and len(self.hand_over) > 1:
            raise ValueError("handOver: auto chooses by itself; set it alone, or name the other ways without it")
        for place, pattern in enumerate(self.exempt):
            if not EXEMPT.fullmatch(pattern):
                raise ValueError(
                    f"exempt[{place}]: {pattern[:400]!r} must be a namespace or namespace/pod, with * and ? where needed"
                )
        both = sorted(set(self.critical_xids) & set(self.harmless_xids))
        if both:
            raise ValueError(f"harmlessXids: {both[0]} is in criticalXids too; keep it in one of them")

    @property
    def domain(self) -> str:
        return extended_resources.domain_of(self.resource_name)

    @property
    def uses_cdi(self) -> bool:
        return not {"auto", "cdi"}.isdisjoint(self.hand_over)

    def whole_names(self) -> tuple[str, ...]:
        """The resource names of GPUs that no rule gives another use, each once; resource_name first."""
        return tuple(dict.fromkeys((self.resource_name, *self.model_resource_names.values())))

    def resource_names(self) -> tuple[str, ...]:
        """All resource names that this plugin may serve, each once; those of GPUs without a rule first."""
        return tuple(dict.fromkeys(name for name, _, _ in self._uses()))

    def is_instance_name(self, resource_name: str) -> bool:
        """Whether MIG instances may have this name, by their profile; besides resource_names()."""
        return self.mig == "mixed" and resource_name.startswith(mig_prefix(self.domain))

    def parts_of(self, resource_name: str) -> PartsOf | None:
        """What this resource's devices are parts of; None for whole GPUs. All rules of one resource are alike."""
        return next((parts for name, parts, _ in self._uses() if name == resource_name), None)

    def resource_of(self, model: str) -> str:
        """The resource name for GPUs of this model."""
        matching = (name for pattern, name in self.model_resource_names.items() if fnmatchcase(model, pattern))
        return next(matching, self.resource_name)

    def health_rules(self) -> HealthRules:
        critical, harmless = frozenset(self.critical_xids), frozenset(self.harmless_xids)
        return HealthRules(
            (frozenset(APPLICATION_XIDS) - critical) | harmless,
            self.ecc_errors,
            critical_by_setting=critical,
            harmless_by_setting=harmless,
            effects=structs.asdict(self.health),
        )

    def _uses(self) -> Iterator[tuple[str, PartsOf | None, str]]:
        """Each resource name, what its devices are parts of, and who names it so."""
        if not any(rule.is_for_others for rule in self.sharing):
            yield from ((name, None, "GPUs that no rule matches") for name in self.whole_names())
        if self.mig == "single":
            yield from ((name, None, "mig: single") for name in self.whole_names())
        for place, rule in enumerate(self.sharing):
            yield from ((name, rule.parts, f"sharing[{place}]") for name in rule.names(self.whole_names()))

    def _check_sharing(self) -> None:
        for (one, rule), (other, later) in combinations(enumerate(self.sharing), 2):
            if rule.overlaps(later):
                raise ValueError(f"sharing[{other}]: it is for GPUs that sharing[{one}] matches; a GPU has one use")
        first: dict[str, tuple[PartsOf | None, str]] = {}
        for name, parts, who in self._uses():
            if self.is_instance_name(name):
                raise ValueError(f"{who}: {name} is a name of MIG instances (mig: mixed); set another resourceName")
            alike = parts.alike() if parts is not None else None
            known, by = first.setdefault(name, (alike, who))
            if known != alike:
                raise ValueError(
                    f"{who}: {name} is the name of other devices already ({by}); set another resourceName, or renameByDefault"
                )

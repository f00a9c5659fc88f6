"""Settings of the nvml plugin, and what each GPU of a node is used as.

What types do not state is in charts/config_rules.py, and checked before settings are made of it.
"""

from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Annotated, ClassVar, Final, Literal

from msgspec import Meta, Struct, field, structs
from nodedevice_api import extended_resources
from nodedevice_api.parts import PartRules, Placement

from nodedevice_agent.plugins.contract import SCOPE, Plugin
from nodedevice_agent.plugins.nvml.driver_troubles import EFFECTS, Effect
from nodedevice_agent.plugins.nvml.health import EccErrors, HealthRules
from nodedevice_agent.plugins.nvml.mig import mig_prefix
from nodedevice_agent.plugins.nvml.xids import APPLICATION_XIDS
from nodedevice_agent.plugins.parts import PartChoiceSettings

# Name of the plugin, for all of its resources: a GPU is the same in each of them. No resource is called so.
GPUS: Final = "GPUs"
GPU_SCOPE: Final = f"{SCOPE} {GPUS}"
# of the Node, set by NVIDIA's GPU Operator: whether programs that use the driver may run there
GPU_CLIENT_LABEL: Final = "nvidia.com/gpu.deploy.client"
# of one GPU; as many as the generic plugin shares a device between
MAX_PARTS: Final = 1000
# of units of memory, by the gpushare plugins
GPUSHARE_NAME: Final = "aliyun.com/gpu-mem"
_SHARED = ".shared"

HandOver = Literal["auto", "env", "deviceNodes", "cdi"]
XidNumbers = Annotated[list[Annotated[int, Meta(ge=0, le=65535)]], Meta(max_length=1000)]


class WholeSettings(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """A container gets the GPU for itself."""

    # what pods request; empty: nvml.resourceName, or the name for the model
    resource_name: str = ""


class LimitSettings(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Limits of a container with parts of GPUs. The administrator's library enforces it; without one, it is advice."""

    # CUDA_DEVICE_MEMORY_LIMIT_n: the size of the units, or the share of the GPU's memory
    memory: bool = True
    # CUDA_DEVICE_SM_LIMIT: percent of a GPU's multiprocessors for each part; 0: no limit
    sm_percent: Annotated[int, Meta(ge=0, le=100)] = 0
    # CUDA_OVERSUBSCRIBE: a container may use host memory beyond its limit, if the library can
    oversubscribe: bool = True
    # enforcing library on the node, such as /usr/local/vgpu/libvgpu.so; empty: nothing is mounted
    library: str = ""
    # file on the node that names the library, mounted at /etc/ld.so.preload
    preload: str = "/usr/local/vgpu/ld.so.preload"
    # directory on the node with a directory for each container
    directory: str = "/usr/local/vgpu/containers"
    # path of that directory, and of the library's cache, in the container
    mount_path: str = "/tmp/vgpu"
    # directory on the node for the library's lock, the same for all containers
    lock: str = "/tmp/vgpulock"


class MpsSettings(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """The MPS daemon that the administrator runs for the shared GPUs; the agent starts none. Paths are the host's."""

    # CUDA_MPS_PIPE_DIRECTORY of the daemon, on the host
    pipe_directory: str = "/tmp/nvidia-mps"
    # the daemon's shared memory on the host; differs if the daemon runs in a container
    shm_directory: str = "/dev/shm"


class SharesSettings(PartChoiceSettings, frozen=True, kw_only=True):
    """Several containers use the GPU: in turns (time slices), or at the same time (MPS)."""

    # how many containers may hold a GPU at once
    replicas: Annotated[int, Meta(ge=2, le=MAX_PARTS)]
    # what pods request; empty: the name of the whole GPU
    resource_name: str = ""
    # append .shared to that name
    rename_by_default: bool = False
    # refuse requests for more than one share, because more shares are not more time
    fail_requests_greater_than_one: bool = False
    # MPS daemon that you run for these GPUs; the agent starts none. Each container gets a share of memory and threads
    mps: MpsSettings | None = None
    # memory of each GPU outside of the shares' limits, in Mi or Gi
    reserve: str = "0Gi"
    # limits of a container, enforced by a library that you install, else advice; unset: none
    limits: LimitSettings | None = None

    def rules(self) -> PartRules:
        return _with_limits(self.part_rules(Placement.DISTINCT_PARENTS), self.limits)

    def names(self, whole_names: tuple[str, ...]) -> tuple[str, ...]:
        """The resource names of shares of GPUs with these names."""
        if self.resource_name:
            return (self.resource_name,)
        return tuple(name + _SHARED for name in whole_names) if self.rename_by_default else whole_names


class MemorySettings(PartChoiceSettings, frozen=True, kw_only=True):
    """Containers share the GPU's memory in units."""

    # what pods request; the name of the gpushare plugins
    resource_name: str = GPUSHARE_NAME
    # memory of one part, in Mi or Gi
    unit: str = "1Gi"
    # memory of each GPU outside of the parts, in Mi or Gi; a CUDA program takes 640Mi besides its allocations
    reserve: str = "640Mi"
    # limits of a container; null: none
    limits: LimitSettings | None = field(default_factory=LimitSettings)

    def rules(self) -> PartRules:
        return _with_limits(self.part_rules(Placement.SAME_PARENT), self.limits)

    def names(self, whole_names: tuple[str, ...]) -> tuple[str, ...]:
        return (self.resource_name,)


def size_bytes(size: str) -> int:
    """size: in Mi or Gi."""
    return extended_resources.count(size) or 0


def _with_limits(rules: PartRules, limits: LimitSettings | None) -> PartRules:
    return rules if limits is None else structs.replace(rules, sm_percent=limits.sm_percent)


PartsOf = SharesSettings | MemorySettings


class SharingRule(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """The use of some GPUs: exactly one of whole, shares and memory."""

    # patterns of the model; with indexes, both must match. Without both, the rule is for all GPUs that no other rule matches
    models: list[str] = field(default_factory=list)
    # GPU numbers as nvidia-smi shows them
    indexes: list[Annotated[int, Meta(ge=0)]] = field(default_factory=list)
    # each GPU is one device; a rule has exactly one of whole, shares and memory
    whole: WholeSettings | None = None
    # several containers use a GPU: in turns (time slices), or at the same time (MPS)
    shares: SharesSettings | None = None
    # containers request units of GPU memory
    memory: MemorySettings | None = None

    @property
    def is_for_others(self) -> bool:
        """Whether it is for all GPUs that no other rule matches."""
        return not self.models and not self.indexes

    @property
    def parts(self) -> PartsOf | None:
        return self.shares or self.memory

    def text(self) -> str:
        models = f"models {' '.join(self.models)}" if self.models else ""
        indexes = f"indexes {' '.join(map(str, self.indexes))}" if self.indexes else ""
        return ", ".join(filter(None, (models, indexes)))

    def matches(self, model: str, index: int | None) -> bool:
        is_model = not self.models or any(fnmatchcase(model, pattern) for pattern in self.models)
        return not self.is_for_others and is_model and (not self.indexes or index in self.indexes)

    def names(self, whole_names: tuple[str, ...]) -> tuple[str, ...]:
        """The resource names that it makes of GPUs with these names."""
        if self.parts is not None:
            return self.parts.names(whole_names)
        return (self.whole.resource_name,) if self.whole and self.whole.resource_name else whole_names


class GpuHealthSettings(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """The effect of the driver's reports on a GPU: unhealthy (not allocated), report (offered, and shown in Healthy) or ignore."""

    # the driver requests a reset, a reboot or another action except the next one (ResetRequired)
    reset_required: Effect = EFFECTS["reset_required"]
    # the driver requests an end of peer-to-peer traffic (PeerToPeerDrain)
    peer_to_peer_drain: Effect = EFFECTS["peer_to_peer_drain"]
    # a defective row of memory could not be replaced (RowRemapFailed)
    row_remap_failed: Effect = EFFECTS["row_remap_failed"]
    # a row of memory is replaced at the next reset (RowRemapPending)
    row_remap_pending: Effect = EFFECTS["row_remap_pending"]
    # a page of memory is retired at the next reset; GPUs before A100 (PageRetirementPending)
    page_retirement_pending: Effect = EFFECTS["page_retirement_pending"]
    # the GPU is not in the NVSwitch fabric, or unhealthy there (FabricNotReady, FabricUnhealthy)
    fabric: Effect = EFFECTS["fabric"]
    # the fabric has less bandwidth for the GPU (FabricLimited)
    fabric_limited: Effect = EFFECTS["fabric_limited"]


class NvmlSettings(Plugin, frozen=True):
    """All GPUs of a node."""

    node_labels: ClassVar[tuple[str, ...]] = (GPU_CLIENT_LABEL,)
    command: ClassVar[str] = "gpu"
    asking_variables: ClassVar[tuple[str, ...]] = ("NVIDIA_", "DOCKER_RESOURCE_", "CUDA_")
    asking_word: ClassVar[str] = "nvidia"
    kubelet_note: ClassVar[str] = (
        "a container's own NVIDIA_VISIBLE_DEVICES and limits override its allocation, which --delivery nri prevents"
    )

    # what pods request; the name of NVIDIA's own plugin, so that pods need no change
    resource_name: str = "nvidia.com/gpu"
    # resource names by pattern of the model (`*T4*`); the first match counts, else resource_name
    model_resource_names: dict[str, str] = field(default_factory=dict)
    # uses of GPUs, by model or index; GPUs without a matching rule are whole
    sharing: Annotated[list[SharingRule], Meta(max_length=64)] = field(default_factory=list)
    # GPUs in MIG mode, whatever rules match. none: not offered. single: instances, of one profile on the whole node, have the
    # GPUs' name. mixed: each profile has a name, such as nvidia.com/mig-1g.10gb
    mig: Literal["none", "single", "mixed"] = "none"
    # how a container gets its GPUs. auto, alone: for each container cdi if the node's CDI specifications name its GPUs by UUID
    # and are up to date; else env and, except with delivery kubelet, deviceNodes. env: NVIDIA_VISIBLE_DEVICES, for NVIDIA's
    # container runtime. deviceNodes: the device files. cdi: CDI names of specifications made by nvidia-ctk; refused while one
    # is outdated
    hand_over: Annotated[list[HandOver], Meta(min_length=1, max_length=3)] = field(default_factory=lambda: ["auto"])
    # the part of CDI names before =
    cdi_kind: str = "nvidia.com/gpu"
    # pods that keep unallocated GPUs that they name in NVIDIA_VISIBLE_DEVICES, as monitors do: patterns of namespace or
    # namespace/pod. The agent's own namespace is exempt. With delivery nri, all other pods lose these GPUs
    exempt: Annotated[list[str], Meta(max_length=64)] = field(default_factory=lambda: ["kube-system", "gpu-operator"])
    # Xids that take a GPU out of service until a reset, whatever the driver requests; defaults in docs/gpu.md
    critical_xids: XidNumbers = field(default_factory=list)
    # Xids that never do, whatever the driver requests; defaults in docs/gpu.md
    harmless_xids: XidNumbers = field(default_factory=list)
    # effect of an uncorrectable ECC error. driver: of the action that the driver requests, else of the error's Xid; without
    # both, or if the error is older than the agent, the GPU is out of service. unhealthy: out of service. ignore: none
    ecc_errors: EccErrors = "driver"
    # effects of the driver's other reports: unhealthy (out of service), report (offered, and shown in Healthy) or ignore
    health: GpuHealthSettings = field(default_factory=GpuHealthSettings)
    # how often each GPU is read, for lost GPUs and resets; urgent problems arrive as events
    poll_seconds: Annotated[float, Meta(ge=1, le=3600)] = 5.0
    # time limit of a driver call, after which its GPU counts as hanging; healthy calls take up to a second
    call_seconds: Annotated[float, Meta(ge=0.1, le=600)] = 5.0
    # how often missing GPUs are searched for, by a new NVML session
    rescan_seconds: Annotated[float, Meta(ge=1, le=3600)] = 30.0
    # directory of libnvidia-ml.so.1, for an agent in a container; empty: where the loader finds it
    library_dir: str = ""

    @property
    def name(self) -> str:
        return GPUS

    @classmethod
    def is_scope(cls, scope: str | None) -> bool:
        return scope == GPU_SCOPE

    def names(self) -> tuple[str, ...]:
        """Includes the names of whole GPUs even if all are shared: they always belong to GPUs."""
        return tuple(dict.fromkeys((*self.whole_names(), *self.resource_names())))

    def may_serve(self, resource_name: str) -> bool:
        return self.is_instance_name(resource_name) or resource_name in self.names()

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
        """Resource names for all uses of GPUs, each once; first the names for GPUs without a rule."""
        return tuple(dict.fromkeys(name for name, _ in self._uses()))

    def is_instance_name(self, resource_name: str) -> bool:
        """Whether MIG instances may have this name, by their profile; besides resource_names()."""
        return self.mig == "mixed" and resource_name.startswith(mig_prefix(self.domain))

    def parts_of(self, resource_name: str) -> PartsOf | None:
        """The parts that this resource's devices are; None for whole GPUs. All rules of one resource are alike."""
        return next((parts for name, parts in self._uses() if name == resource_name), None)

    def resource_of(self, model: str) -> str:
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

    def _uses(self) -> Iterator[tuple[str, PartsOf | None]]:
        """Each resource name, and what its devices are parts of."""
        whole = self.whole_names()
        if self.mig == "single" or not any(rule.is_for_others for rule in self.sharing):
            yield from ((name, None) for name in whole)
        for rule in self.sharing:
            yield from ((name, rule.parts) for name in rule.names(whole))

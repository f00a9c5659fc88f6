"""Settings of the nvml plugin. A refusal names the key, the value and the remedy."""

import re
from fnmatch import fnmatchcase
from typing import Annotated, Literal

from msgspec import Meta, Struct, field
from nodedevice_api.resource_names import resource_name_problem

from nodedevice_agent.plugins.nvml.health.health import HealthRules
from nodedevice_agent.plugins.nvml.health.xids import XidPolicy

# a word of LD_LIBRARY_PATH, and of an environment, which ends at a NUL
LIBRARY_DIR = re.compile(r"/[^:;\x00-\x1f\x7f]*")
CDI_KIND = re.compile(r"[A-Za-z][A-Za-z0-9.-]*/[A-Za-z][A-Za-z0-9._-]*")

HandOver = Literal["env", "deviceNodes", "cdi"]
XidNumbers = Annotated[list[Annotated[int, Meta(ge=0, le=65535)]], Meta(max_length=1000)]


class NvmlSettings(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """All GPUs of a node."""

    # the name that NVIDIA's own plugin uses, so that pods need not be changed
    resource_name: str = "nvidia.com/gpu"
    # names for GPUs of some models: pattern of the model (`*T4*`) to resource name; the first that fits, else the one above
    model_resource_names: dict[str, str] = field(default_factory=dict)
    # how a container gets its GPUs. env: NVIDIA_VISIBLE_DEVICES, for NVIDIA's container runtime, which most nodes with GPUs have;
    # deviceNodes: the device files themselves; cdi: CDI names, for specs that nvidia-ctk made
    hand_over: Annotated[list[HandOver], Meta(min_length=1, max_length=3)] = field(default_factory=lambda: ["env"])
    # what stands before = in a CDI name
    cdi_kind: str = "nvidia.com/gpu"
    # Xids that take a GPU out of service beside those that do anyway, and Xids that do not; the lists are in docs/gpu.md
    critical_xids: XidNumbers = field(default_factory=list)
    harmless_xids: XidNumbers = field(default_factory=list)
    # whether an uncorrectable ECC error takes a GPU out; so, because what it computes can no longer be trusted
    ecc_errors: Literal["unhealthy", "ignore"] = "unhealthy"
    # how often each GPU is looked at; what is urgent comes as an event, so this is for lost GPUs and resets
    poll_seconds: Annotated[float, Meta(ge=1, le=3600)] = 5.0
    # how long a call to the driver may take before its GPU counts as hanging; the slowest healthy ones take a second
    call_seconds: Annotated[float, Meta(ge=0.1, le=600)] = 5.0
    # how often to look for GPUs that are gone, as the driver tells of a GPU that came back only to who starts anew
    rescan_seconds: Annotated[float, Meta(ge=1, le=3600)] = 30.0
    # where libnvidia-ml.so.1 is, for an agent in a container; empty: where the loader finds it
    library_dir: str = ""

    def __post_init__(self) -> None:
        for name in self.resource_names():
            problem = resource_name_problem(name)
            if problem:
                raise ValueError(f"resourceName: {name[:400]!r}: {problem}")
        if not CDI_KIND.fullmatch(self.cdi_kind):
            raise ValueError(f"cdiKind: {self.cdi_kind[:400]!r} must be vendor/class, such as nvidia.com/gpu")
        if self.library_dir and not LIBRARY_DIR.fullmatch(self.library_dir):
            raise ValueError(
                f"libraryDir: {self.library_dir[:400]!r} must be one absolute path, such as /usr/lib/x86_64-linux-gnu"
            )
        both = sorted(set(self.critical_xids) & set(self.harmless_xids))
        if both:
            raise ValueError(f"harmlessXids: {both[0]} stands in criticalXids too; leave it in one of them")

    def resource_names(self) -> tuple[str, ...]:
        """All that this plugin may serve, each once; the one for every other model first."""
        return tuple(dict.fromkeys((self.resource_name, *self.model_resource_names.values())))

    def resource_of(self, model: str) -> str:
        """The name that GPUs of this model have."""
        fitting = (name for pattern, name in self.model_resource_names.items() if fnmatchcase(model, pattern))
        return next(fitting, self.resource_name)

    def health_rules(self) -> HealthRules:
        return HealthRules(XidPolicy.of(self.critical_xids, self.harmless_xids), self.ecc_errors == "unhealthy")

"""All environment variables, annotations and mounts that request NVIDIA's device files or change limits: one table. Pure.

NVIDIA's container runtime reads the first variables, CDI names in annotations, and mounts of /dev/null. The library that enforces
limits (vgpu.py), clients of MPS (mps.py) and programs for gpushare read the other variables. A container with GPUs has the values
of the plugin's response and no others; this replaces values of the pod and of the image.

The table is closed. For a container without a GPU each value of NVIDIA_VISIBLE_DEVICES but a few becomes void, and then the
runtime ignores every other variable. With GPUs, an unknown variable of NVIDIA's is blanked if its value switches something on.

Source: nvidia-container-toolkit internal/config/image/cuda_image.go, internal/modifier/cdi.go,
cmd/nvidia-container-runtime-hook and cmd/nvidia-ctk-installer/container/runtime/nri @ 1.18.2, 1.19.0 and 1.20.2;
k8s-device-plugin internal/cdi @ 0.20; HAMi-core src/multiprocess/multiprocess_memory_limit.c; gpushare-device-plugin
pkg/gpu/nvidia/allocate.go; NVIDIA MPS, appendix on environment variables.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Final, TypeVar

from msgspec import Struct

T = TypeVar("T")

VISIBLE_DEVICES: Final = "NVIDIA_VISIBLE_DEVICES"
MEMORY_LIMIT: Final = "CUDA_DEVICE_MEMORY_LIMIT"
SM_LIMIT: Final = "CUDA_DEVICE_SM_LIMIT"
CACHE: Final = "CUDA_DEVICE_MEMORY_SHARED_CACHE"
OVERSUBSCRIBE: Final = "CUDA_OVERSUBSCRIBE"
MPS_PIPE: Final = "CUDA_MPS_PIPE_DIRECTORY"
MPS_THREADS: Final = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
MPS_MEMORY: Final = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"

# variables with which programs for gpushare limit themselves
GPUSHARE_PREFIX: Final = "ALIYUN_COM_GPU_MEM_"

# to NVIDIA's runtime: a container without GPUs
VOID: Final = "void"
# values without GPUs; "none" adds the driver's libraries
_NO_GPUS: Final = ("", VOID, "none")
# an image with the first and without the second gets all GPUs if VISIBLE_DEVICES is unset
_OLD_IMAGE, _NEW_IMAGE = "CUDA_VERSION", "NVIDIA_REQUIRE_CUDA"

# Names that the runtime's setting swarm-resource may give: it reads them in place of VISIBLE_DEVICES, an empty one included. So a
# container with GPUs has the same value there.
ALIASES: Final = "DOCKER_RESOURCE_*"

# Each name, _n for a number of a GPU, and what its reader takes for no such variable: a runtime does not take one out for an NRI
# plugin (containerd/nri pkg/adaptation/result.go, adjustEnv @ v0.12.3). The first row that matches counts.
TABLE: Final = (
    (VISIBLE_DEVICES, VOID),
    # device files that are not GPUs: capabilities of MIG, channels of IMEX, storage, network, memory of GPUs, NVSwitches
    ("NVIDIA_*_DEVICES", ""),
    ("NVIDIA_*_CHANNELS", ""),
    ("NVIDIA_GDS", ""),
    ("NVIDIA_MOFED", ""),
    ("NVIDIA_GDRCOPY", ""),
    ("NVIDIA_NVSWITCH", ""),
    (MEMORY_LIMIT, ""),
    (f"{MEMORY_LIMIT}_n", ""),
    (SM_LIMIT, ""),
    (f"{SM_LIMIT}_n", ""),
    (CACHE, "/tmp/cudevshr.cache"),
    (OVERSUBSCRIBE, "false"),
    ("CUDA_DISABLE_CONTROL", "false"),
    ("GPU_CORE_UTILIZATION_POLICY", "default"),
    (MPS_PIPE, "/tmp/nvidia-mps"),
    ("CUDA_MPS_LOG_DIRECTORY", "/var/log/nvidia-mps"),
    (MPS_THREADS, "100"),
    ("CUDA_MPS_*", ""),
    (f"{GPUSHARE_PREFIX}*", ""),
)
_PATTERNS = [(re.compile(re.sub(r"_n$", "_[0-9]+", name).replace("*", "[A-Z0-9_]+")), unset) for name, unset in TABLE]
_NVIDIAS, _ALIAS = "NVIDIA_", ALIASES.removesuffix("*")
_BEGINNINGS = (_ALIAS, *{name.partition("_")[0] + "_" for name, _ in TABLE})

# Variables that add no device file of their own: read by the runtime, by CUDA, or by nothing in the images of NVIDIA that set them.
HARMLESS: Final = (
    *("NVIDIA_DRIVER_CAPABILITIES", "NVIDIA_REQUIRE_*", "NVIDIA_DISABLE_REQUIRE", "NVIDIA_GPU_MEMORY_*"),
    *("NVIDIA_CTK_LIBCUDA_DIR", "NVIDIA_TF32_OVERRIDE", "NVIDIA_*VERSION", "NVIDIA_*VERSION_*"),
    *("NVIDIA_PRODUCT_NAME", "NVIDIA_BUILD_*", "NVIDIA_*_KEY"),
)
# values that switch something on, in lower or upper case
_SWITCHED_ON = ("enabled", "all")

# CDI kinds whose devices are GPUs or MIG instances, by shell pattern. Others of NVIDIA's are not: k8s.compute-domain.nvidia.com,
# k8s.device-plugin.nvidia.com/gds, nvidia.com/net-rdma, nvidia.com/nvswitch, nvidia.com/gdrcopy …
GPU_KINDS: Final = (
    *("nvidia.com/gpu", "nvidia.com/mig*", "k8s.gpu.nvidia.com/*", "k8s.device-plugin.nvidia.com/gpu"),
    *("runtime.nvidia.com/gpu", "management.nvidia.com/gpu"),
)
_VENDOR = "nvidia.com"
# annotations: of containers, for the runtime, which also accepts a name without a kind; of pods, for its NRI plugin
_CDI_PREFIX, _NRI_KEY = "cdi.k8s.io/", "nvidia.cdi.k8s.io"
# mounts of /dev/null below this path of a container name devices; a slash need not follow it
_MOUNTS = "/var/run/nvidia-container-devices"

# name and value, in the runtime's order
Variables = Sequence[tuple[str, str]]


def unset_value(name: str) -> str | None:
    """The value with the same effect as an unset variable; None for a name outside the table, which the pod controls."""
    if not name.startswith(_BEGINNINGS):
        return None
    return next((unset for pattern, unset in _PATTERNS if pattern.fullmatch(name)), None)


def is_read(entry: str) -> bool:
    """Whether this variable, NAME=value, may matter here."""
    if not entry.startswith(_BEGINNINGS):
        return False
    name = entry.partition("=")[0]
    return name.startswith((_NVIDIAS, _ALIAS)) or name == _OLD_IMAGE or unset_value(name) is not None


def variables(shown: Iterable[str]) -> Variables:
    """Variables of the table. shown: NAME=value, as a runtime shows the environment of a container, its image's first."""
    pairs = (entry.partition("=") for entry in shown if is_read(entry))
    return [(name, value) for name, _, value in pairs]


class Overruling(Struct, frozen=True):
    """Variables that a container gets in place of its own. names: its own variables that lose a value.

    stays: a variable that both the image and the pod set; the runtime would keep the pod's value. "" for none.
    """

    envs: Mapping[str, str]
    names: tuple[str, ...] = ()
    stays: str = ""


def for_holder(own: Variables, given: Mapping[str, str]) -> Overruling:
    """Variables of a container with GPUs. given: the variables of its allocation."""
    wanted = {name: value for name, value in given.items() if unset_value(name) is not None}
    others = {name: unset for name, _ in own if name not in wanted and (unset := unset_value(name)) is not None}
    if VISIBLE_DEVICES not in wanted and _visible(own) is not None:
        others[VISIBLE_DEVICES] = VOID
    others |= _aliases(own, given, given.get(VISIBLE_DEVICES, VOID)) | _switches(own, given)
    return _overruling(own, {**wanted, **others})


def for_foreign_holder(own: Variables, given: Mapping[str, str], kept: Collection[str] = ()) -> Overruling | None:
    """For a container with GPUs of another plugin or of a claim. None if it names no other GPU.

    given: the variables of its allocation. kept: variables that it already has for them, from the kubelet.
    """
    known = {*given, *kept}
    visible = given.get(VISIBLE_DEVICES, dict(own).get(VISIBLE_DEVICES, VOID))
    envs = {VISIBLE_DEVICES: visible} if VISIBLE_DEVICES in given else {}
    envs |= _aliases(own, known, visible) | _switches(own, known)
    rows = (name for name, value in own if value and name.startswith(_NVIDIAS) and unset_value(name) == "")
    found = _overruling(own, envs | dict.fromkeys((name for name in rows if name not in known), ""))
    is_new = any(given.get(name) != value for name, value in found.envs.items())
    return found if found.stays or is_new else None


def for_other(own: Variables) -> Overruling | None:
    """For a container without a GPU. None if it names no GPU."""
    visible, aliases = _visible(own), _aliases(own, (), VOID)
    if visible not in (*_NO_GPUS, None):
        return _overruling(own, {VISIBLE_DEVICES: VOID, **aliases})
    asked = dict(aliases)
    if visible == "none" or aliases:
        rows = [(name, unset_value(name)) for name, value in own if value and name.startswith(_NVIDIAS)]
        asked |= {name: "" for name, unset in rows if unset == ""}
        if any(unset is None and not _is_harmless(name) for name, unset in rows):
            asked[VISIBLE_DEVICES] = VOID
    return _overruling(own, asked) if asked else None


def _aliases(own: Variables, known: Collection[str], visible: str) -> dict[str, str]:
    """An alias that is there has the same GPUs; an empty one would have none."""
    found = {name: value.strip() for name, value in own if name.startswith(_ALIAS) and name not in known}
    return {name: visible for name, value in found.items() if visible != VOID or value not in ("", VOID)}


def _switches(own: Variables, known: Collection[str]) -> dict[str, str]:
    """Variables of NVIDIA's that no row knows, and that switch something on."""
    return {
        name: ""
        for name, value in own
        if name.startswith(_NVIDIAS)
        and value.strip().lower() in _SWITCHED_ON
        and name not in known
        and unset_value(name) is None
        and not _is_harmless(name)
    }


def _is_harmless(name: str) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in HARMLESS)


def _visible(own: Variables) -> str | None:
    """The value for which NVIDIA's runtime would add GPUs; None if it would ignore the variable."""
    last = dict(own)
    if VISIBLE_DEVICES in last:
        return last[VISIBLE_DEVICES].strip()
    return "all" if last.get(_OLD_IMAGE) and not last.get(_NEW_IMAGE) else None


def _overruling(own: Variables, envs: dict[str, str]) -> Overruling:
    last, names = dict(own), [name for name, _ in own]
    lost = [name for name in last if name in envs and last[name] != envs[name]]
    twice = [name for name in lost if names.count(name) > 1]
    return Overruling(envs, tuple(lost), twice[0] if twice else "")


# -- CDI devices, annotations, mounts -------------------------------------------------------------------------------------


def names_gpus(envs: Mapping[str, str], cdi_devices: Iterable[str]) -> bool:
    """Whether a response of a device plugin, or the CDI devices of a claim, give GPUs."""
    return envs.get(VISIBLE_DEVICES, "").strip() not in _NO_GPUS or any(map(is_gpu, cdi_devices))


def is_gpu(cdi_device: str) -> bool:
    """Whether a CDI device, such as nvidia.com/gpu=0, is a GPU or a MIG instance."""
    kind = cdi_device.partition("=")[0]
    return any(fnmatchcase(kind, pattern) for pattern in GPU_KINDS)


def named_by_annotations(
    container: str, of_pod: Mapping[str, str], of_container: Mapping[str, str]
) -> Iterator[tuple[str, str]]:
    """Annotation and device of everything that NVIDIA's runtime, or its NRI plugin, adds to a container by annotations."""
    for key, value in of_container.items():
        if key.startswith(_CDI_PREFIX):
            yield from ((key, device) for device in value.split(",") if _is_nvidias(device))
    for key in (f"{_NRI_KEY}/container.{container}", f"{_NRI_KEY}/pod", _NRI_KEY):
        if key in of_pod:
            yield from ((key, device) for device in of_pod[key].split(",") if device)
            return


def _is_nvidias(device: str) -> bool:
    """A name without a kind is one of the runtime's default kind."""
    vendor, is_qualified, _ = device.partition("/")
    return not is_qualified or vendor == _VENDOR or vendor.endswith(f".{_VENDOR}")


def names_by_mount(container_path: str) -> bool:
    """Whether NVIDIA's runtime takes /dev/null at this path of a container, in normal form, for the name of a device."""
    name = container_path.removeprefix(_MOUNTS)
    return name not in (container_path, "", f"/{VOID}")


# -- several resources in one container -----------------------------------------------------------------------------------


class Answer(Struct, frozen=True):
    """The plugin's environment for one resource of a container. places: of its GPUs among all of the container's, by PCI bus ID."""

    resource_name: str
    env: Mapping[str, str]
    places: tuple[int, ...]


class CannotJoin(Exception):
    """A container cannot have these resources together; the text names the reason and the remedy."""


def joined(answers: Sequence[Answer]) -> dict[str, str]:
    """The variables of the table for a container with all these resources, sorted by name. Raises CannotJoin."""
    if len(answers) == 1:
        return {name: value for name, value in answers[0].env.items() if unset_value(name) is not None}
    pipe = _agreed(
        {answer.env.get(MPS_PIPE): answer.resource_name for answer in reversed(answers)},
        "are not of one MPS daemon, and a program has one for all of its GPUs: request them in different containers, or give "
        "the shares of both the same mps.pipeDirectory",
    )
    oversubscribe = _agreed(
        {
            answer.env[OVERSUBSCRIBE]: answer.resource_name
            for answer in reversed(answers)
            if OVERSUBSCRIBE in answer.env
        },
        "have different limits.oversubscribe, and a program has one for all of its GPUs: set both alike, or request them in "
        "different containers",
    )
    found = _lists(answers) | _numbered(answers) | _sm_limits(answers)
    if pipe is not None:
        found |= _of_mps(answers, pipe)
    if oversubscribe is not None:
        found[OVERSUBSCRIBE] = oversubscribe
    for answer in reversed(answers):
        # one resource has gpushare's; the cache is one file for all of the GPUs, in whichever directory
        found |= {
            name: value for name, value in answer.env.items() if name == CACHE or name.startswith(GPUSHARE_PREFIX)
        }
    return found


def _agreed(by_value: Mapping[T, str], problem: str) -> T | None:
    """The only value; None without one. by_value: names of resources. Raises CannotJoin."""
    if len(by_value) > 1:
        one, other = sorted(by_value.values())[:2]
        raise CannotJoin(f"{one} and {other} {problem}")
    return next(iter(by_value), None)


def _lists(answers: Sequence[Answer]) -> dict[str, str]:
    ids = {item for answer in answers for item in answer.env.get(VISIBLE_DEVICES, "").split(",") if item}
    # one that is handed over by CDI alone takes the others no GPU
    return {VISIBLE_DEVICES: ",".join(sorted(ids - {VOID} or ids))} if ids else {}


def _numbered(answers: Sequence[Answer]) -> dict[str, str]:
    """Each GPU's own limit, under its number in the container."""
    found = {}
    for name in (MEMORY_LIMIT, SM_LIMIT):
        for answer in answers:
            for number, place in enumerate(answer.places):
                if (value := answer.env.get(f"{name}_{number}")) is not None:
                    found[f"{name}_{place}"] = value
    return found


def _sm_limits(answers: Sequence[Answer]) -> dict[str, str]:
    """One limit for all GPUs of a container, or numbered limits if they differ: without a number it counts for all."""
    values = {answer.env.get(SM_LIMIT, "0") for answer in answers}
    if len(values) == 1:
        return dict.fromkeys([SM_LIMIT], *values) if any(SM_LIMIT in answer.env for answer in answers) else {}
    limited = (answer for answer in answers if answer.env.get(SM_LIMIT, "0") != "0")
    return {f"{SM_LIMIT}_{place}": answer.env[SM_LIMIT] for answer in limited for place in answer.places}


def _of_mps(answers: Sequence[Answer], pipe: str) -> dict[str, str]:
    limits: list[tuple[int, str]] = []
    for answer in answers:
        # a text such as 0=3840M,1=3840M
        by_number = dict(item.partition("=")[::2] for item in answer.env.get(MPS_MEMORY, "").split(","))
        for number, place in enumerate(answer.places):
            limits += [(place, by_number[str(number)])] if str(number) in by_number else []
    threads = [answer.env[MPS_THREADS] for answer in answers if MPS_THREADS in answer.env]
    return {
        MPS_PIPE: pipe,
        MPS_THREADS: min(threads, key=lambda percent: (len(percent), percent), default="100"),
        MPS_MEMORY: ",".join(f"{place}={limit}" for place, limit in sorted(limits)),
    }

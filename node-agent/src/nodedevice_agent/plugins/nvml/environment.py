"""The environment variables that say which GPUs a container has and what it is limited to: one table. Pure.

NVIDIA's container runtime reads the first ones, the library that enforces limits (vgpu.py) and clients of MPS (mps.py) the others.
A container with GPUs has the values that the plugin answered and no others, whether its own come from the pod or from the image.
Source: nvidia-container-toolkit internal/config/image/cuda_image.go @ 1.18; HAMi-core src/multiprocess/multiprocess_memory_limit.c;
NVIDIA MPS, appendix on environment variables.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from msgspec import Struct

VISIBLE_DEVICES: Final = "NVIDIA_VISIBLE_DEVICES"
MEMORY_LIMIT: Final = "CUDA_DEVICE_MEMORY_LIMIT"
SM_LIMIT: Final = "CUDA_DEVICE_SM_LIMIT"
CACHE: Final = "CUDA_DEVICE_MEMORY_SHARED_CACHE"
OVERSUBSCRIBE: Final = "CUDA_OVERSUBSCRIBE"
MPS_PIPE: Final = "CUDA_MPS_PIPE_DIRECTORY"
MPS_THREADS: Final = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
MPS_MEMORY: Final = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"

# to NVIDIA's runtime: a container without GPUs
VOID: Final = "void"
# ... and these give none either, none with the driver's libraries
_NO_GPUS: Final = ("", VOID, "none")
# an image with the first and without the second has all GPUs where VISIBLE_DEVICES is not set
_OLD_IMAGE, _NEW_IMAGE = "CUDA_VERSION", "NVIDIA_REQUIRE_CUDA"

# Each name, _n for a number of a GPU, and what its reader takes for no such variable: a runtime does not take one out for an NRI
# plugin (containerd/nri pkg/adaptation/result.go, adjustEnv @ v0.12.3). The first row that matches counts.
TABLE: Final = (
    (VISIBLE_DEVICES, VOID),
    ("NVIDIA_MIG_*_DEVICES", ""),
    ("NVIDIA_IMEX_CHANNELS", ""),
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
)
_PATTERNS = [(re.compile(re.sub(r"_n$", "_[0-9]+", name).replace("*", "[A-Z0-9_]+")), unset) for name, unset in TABLE]
_BEGINNINGS = tuple({name.partition("_")[0] + "_" for name, _ in TABLE})

# name and value, in the runtime's order
Variables = Sequence[tuple[str, str]]


def unset_value(name: str) -> str | None:
    """What means as much as no such variable; None for a name that is not in the table, which is the pod's."""
    if not name.startswith(_BEGINNINGS):
        return None
    return next((unset for pattern, unset in _PATTERNS if pattern.fullmatch(name)), None)


def is_read(entry: str) -> bool:
    """Whether this variable, NAME=value, matters here."""
    if not entry.startswith(_BEGINNINGS):
        return False
    name = entry.partition("=")[0]
    return name in (_OLD_IMAGE, _NEW_IMAGE) or unset_value(name) is not None


def variables(shown: Iterable[str]) -> Variables:
    """Those that matter here. shown: NAME=value, as a runtime shows the environment of a container, its image's first."""
    pairs = (entry.partition("=") for entry in shown if entry.startswith(_BEGINNINGS))
    return [(name, value) for name, _, value in pairs]


class Overruling(Struct, frozen=True):
    """What a container gets in place of variables of its own. names: of its own that lose a value by it.

    stays: one that is there twice, as the image and the pod set it; the runtime would keep the pod's value. Empty where none is.
    """

    envs: Mapping[str, str]
    names: tuple[str, ...] = ()
    stays: str = ""


NOTHING = Overruling({})


def for_holder(own: Variables, answer: Mapping[str, str]) -> Overruling:
    """In a container with GPUs. answer: the variables that it gets for them."""
    wanted = {name: value for name, value in answer.items() if unset_value(name) is not None}
    others = {name: unset for name, _ in own if name not in wanted and (unset := unset_value(name)) is not None}
    if VISIBLE_DEVICES not in wanted and _visible(own) is not None:
        others[VISIBLE_DEVICES] = VOID
    return _overruling(own, {**wanted, **others})


def for_other(own: Variables) -> Overruling | None:
    """In a container without a GPU. None: it names none either."""
    visible = _visible(own)
    if visible is None or visible in ("", VOID):
        return None
    if visible != "none":
        return _overruling(own, {VISIBLE_DEVICES: VOID})
    asked = {name: "" for name, value in own if value and name.startswith("NVIDIA_") and unset_value(name) == ""}
    return _overruling(own, asked) if asked else None


def _visible(own: Variables) -> str | None:
    """Which GPUs NVIDIA's runtime would give it; None where it would not care."""
    last = dict(own)
    if VISIBLE_DEVICES in last:
        return last[VISIBLE_DEVICES].strip()
    return "all" if last.get(_OLD_IMAGE) and not last.get(_NEW_IMAGE) else None


def _overruling(own: Variables, envs: dict[str, str]) -> Overruling:
    last, names = dict(own), [name for name, _ in own]
    lost = [name for name in last if name in envs and last[name] != envs[name]]
    twice = [name for name in lost if names.count(name) > 1]
    return Overruling(envs, tuple(lost), twice[0] if twice else "")


# -- several resources in one container -----------------------------------------------------------------------------------


class Answer(Struct, frozen=True):
    """The environment that the plugin answered for one resource of a container.

    places: of its GPUs among all of the container's, in their order there; by PCI bus ID, as the driver numbers them.
    """

    resource_name: str
    env: Mapping[str, str]
    places: tuple[int, ...]


class CannotJoin(Exception):
    """A container cannot have these resources together; the text names the reason and the remedy."""


def joined(answers: Sequence[Answer]) -> dict[str, str]:
    """The variables of the table for a container with all of this. answers: sorted by resource name. Raises CannotJoin."""
    if len(answers) == 1:
        return {name: value for name, value in answers[0].env.items() if unset_value(name) is not None}
    pipe = _mps_pipe(answers)
    found = {
        **_lists(answers),
        **_numbered(answers),
        **_sm_limits(answers),
        **(_of_mps(answers, pipe) if pipe is not None else {}),
        **_same(answers, OVERSUBSCRIBE, "limits.oversubscribe"),
    }
    # one file of the library's own for all of its GPUs, in whichever directory
    caches = [answer.env[CACHE] for answer in answers if CACHE in answer.env]
    return found | ({CACHE: caches[0]} if caches else {})


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
    """The limit of all GPUs of a container; of each by its number where they differ: without a number it counts for all."""
    values = {answer.env.get(SM_LIMIT, "0") for answer in answers}
    if len(values) == 1:
        return dict.fromkeys([SM_LIMIT], *values) if any(SM_LIMIT in answer.env for answer in answers) else {}
    limited = (answer for answer in answers if answer.env.get(SM_LIMIT, "0") != "0")
    return {f"{SM_LIMIT}_{place}": answer.env[SM_LIMIT] for answer in limited for place in answer.places}


def _mps_pipe(answers: Sequence[Answer]) -> str | None:
    """Of the daemon whose client a program is with all of its GPUs; None: of none. Raises CannotJoin."""
    pipes = {answer.env.get(MPS_PIPE): answer.resource_name for answer in reversed(answers)}
    if len(pipes) > 1:
        one, other = sorted(pipes.values())[:2]
        raise CannotJoin(
            f"{one} and {other} are not of one MPS daemon, and a program has one for all of its GPUs: request them in different "
            "containers, or give the shares of both the same mps.pipeDirectory"
        )
    return next(iter(pipes))


def _of_mps(answers: Sequence[Answer], pipe: str) -> dict[str, str]:
    limits = sorted(
        (place, limit)
        for answer in answers
        for number, place in enumerate(answer.places)
        for limit in _limits(answer.env.get(MPS_MEMORY, ""), number)
    )
    threads = [answer.env[MPS_THREADS] for answer in answers if MPS_THREADS in answer.env]
    return {
        MPS_PIPE: pipe,
        MPS_THREADS: min(threads, key=lambda percent: (len(percent), percent), default="100"),
        MPS_MEMORY: ",".join(f"{place}={limit}" for place, limit in limits),
    }


def _limits(text: str, number: int) -> list[str]:
    """Of one GPU, in a text such as 0=3840M,1=3840M."""
    return [item.partition("=")[2] for item in text.split(",") if item.partition("=")[0] == str(number)]


def _same(answers: Sequence[Answer], name: str, setting: str) -> dict[str, str]:
    by_value = {answer.env[name]: answer.resource_name for answer in reversed(answers) if name in answer.env}
    if len(by_value) > 1:
        one, other = sorted(by_value.values())[:2]
        raise CannotJoin(
            f"{one} and {other} have different {setting}, and a program has one for all of its GPUs: set both alike, or request "
            "them in different containers"
        )
    return dict.fromkeys([name], *by_value) if by_value else {}

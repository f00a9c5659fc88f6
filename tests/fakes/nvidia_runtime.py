"""What NVIDIA's container runtime adds to a container, by its environment, its annotations and its mounts.

A model, compared with the runtime's own code at 1.18.2 and 1.20.2 over random inputs. It stands for a runtime with every way of
asking switched on. `none` asks for the driver's libraries and control files, for no GPU.
Source: nvidia-container-toolkit internal/config/image/cuda_image.go, internal/modifier/cdi.go @ 1.20.2.
"""

from collections.abc import Iterable, Mapping, Sequence

SWARM_RESOURCE = "DOCKER_RESOURCE_GPU"
# device files of no GPU, and the values that add them; the last stands for one that a later release may add
FEATURES = ("NVIDIA_GDS", "NVIDIA_MOFED", "NVIDIA_GDRCOPY", "NVIDIA_NVSWITCH", "NVIDIA_LATER_FEATURE")
CAPABILITIES = ("NVIDIA_MIG_CONFIG_DEVICES", "NVIDIA_MIG_MONITOR_DEVICES", "NVIDIA_FABRIC_DEVICES")
IMEX = "NVIDIA_IMEX_CHANNELS"
_ROOT = "/var/run/nvidia-container-devices"


def visible_devices(
    env: Sequence[str], annotations: Mapping[str, str] | None = None, null_mounts: Iterable[str] = ()
) -> list[str]:
    """The devices that the runtime would add; "" for `none`."""
    by_annotation = [
        device
        for key, value in sorted((annotations or {}).items())
        if key.startswith("cdi.k8s.io/")
        for device in value.split(",")
    ]
    by_mount = [path.removeprefix(_ROOT).strip("/") for path in null_mounts if path.startswith(_ROOT)]
    by_mount = [] if "void" in by_mount else [device for device in by_mount if device and "imex/" not in device]
    return by_annotation or by_mount or _by_env(env)


def added(
    env: Sequence[str], annotations: Mapping[str, str] | None = None, null_mounts: Iterable[str] = ()
) -> set[str]:
    """Everything that the runtime would add, the driver's libraries and control files apart."""
    devices = visible_devices(env, annotations, null_mounts)
    if not devices:
        return set()
    variables = _variables(env)
    found = {f"{name}={variables[name]}" for name in FEATURES if variables.get(name) == "enabled"}
    found |= {f"{name}={variables[name]}" for name in CAPABILITIES if variables.get(name)}
    channels = _listed(variables, [IMEX])
    return found | {f"channel {each}" for each in channels if each != "all"} | {device for device in devices if device}


def _by_env(env: Sequence[str]) -> list[str]:
    variables = _variables(env)
    names = [SWARM_RESOURCE] if SWARM_RESOURCE in variables else ["NVIDIA_VISIBLE_DEVICES"]
    return _listed(variables, names)


def _listed(variables: Mapping[str, str], names: Sequence[str]) -> list[str]:
    is_legacy = bool(variables.get("CUDA_VERSION")) and not variables.get("NVIDIA_REQUIRE_CUDA")
    parts = [part.strip() for name in names for part in variables.get(name, "").split(",")]
    devices = [part for part in parts if part]
    if not any(name in variables for name in names) and is_legacy:
        return ["all"]
    if not devices or "void" in devices:
        return []
    first = next((device for device in devices if device in ("all", "none")), None)
    return list(dict.fromkeys(devices)) if first is None else ["all" if first == "all" else ""]


def _variables(env: Sequence[str]) -> dict[str, str]:
    return dict(entry.split("=", 1) for entry in env)

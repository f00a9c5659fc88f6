"""Maps releases of container runtimes to the features of NRI that the runtime does not report. Pure.

Source: containerd internal/cri/nri @ v2.1.0 and its go.mod @ v2.2.0, CRI-O internal/nri and go.mod @ v1.34.0.
"""

import re
from collections.abc import Iterable, Mapping, Sequence

from nodedevice_agent.devicemanager.container_edits import ContainerEdits
from nodedevice_agent.devicemanager.runtime import InjectionRefused

# The first releases: NRI injects CDI devices; NRI has validators, and changes a command (v0.10.0). CRI-O adopted that NRI late in
# the development of 1.34.
_Since = Mapping[str, tuple[int, int]]

_CDI: _Since = {"containerd": (2, 1), "cri-o": (1, 34)}
_VALIDATORS: _Since = {"containerd": (2, 2), "cri-o": (1, 34)}
_VALIDATORS_SURELY: _Since = {"containerd": (2, 2), "cri-o": (1, 35)}
_COMMAND = _VALIDATORS


def has_validators(runtime_name: str, runtime_version: str) -> bool | None:
    """Whether it has VALIDATE_CONTAINER_ADJUSTMENT, without which it rejects plugins that subscribe to it; None if unknown."""
    if _is_older(runtime_name, runtime_version, _VALIDATORS):
        return False
    return True if _is_older(runtime_name, runtime_version, _VALIDATORS_SURELY) is False else None


def is_cri_o(runtime_name: str, _version: str) -> bool:
    """Whether the runtime creates device files that are open to all users of the container, regardless of the host's mode.

    Source: CRI-O internal/factory/container/device_linux.go @ v1.34: it sets no mode, and without one runc and crun take 0666.
    """
    return runtime_name.lower() == "cri-o"


def takes_cdi(runtime_name: str, runtime_version: str) -> bool:
    """Whether this runtime injects CDI devices that an NRI plugin names. An unknown runtime is trusted."""
    return not _is_older(runtime_name, runtime_version, _CDI)


def check_cdi(edits: ContainerEdits, runtime_name: str, runtime_version: str) -> None:
    """Raises InjectionRefused for CDI devices that this runtime would drop silently."""
    if edits.cdi_devices and not takes_cdi(runtime_name, runtime_version):
        major, minor = _CDI[runtime_name.lower()]
        raise InjectionRefused(
            f"CDI device {edits.cdi_devices[0]} cannot be injected: {runtime_name} {runtime_version} accepts none from NRI; "
            f"update it to {major}.{minor} or newer"
        )


def check_command(
    container: str, args: Sequence[str], envs: Iterable[str], runtime_name: str, runtime_version: str
) -> None:
    """args: with a reference to one of these variables. Raises InjectionRefused if this runtime would not expand it."""
    if _is_older(runtime_name, runtime_version, _COMMAND):
        name = min(name for name in envs if any(f"$({name})" in word for word in args))
        major, minor = _COMMAND[runtime_name.lower()]
        raise InjectionRefused(
            f"the command of container {container} has $({name}), which a device plugin sets, and {runtime_name} {runtime_version} "
            f"lets no command be changed; update it to {major}.{minor} or newer, or read the variable in the container"
        )


def _is_older(runtime_name: str, runtime_version: str, since: _Since) -> bool | None:
    """None for an unknown runtime, or one without a version."""
    first = since.get(runtime_name.lower())
    numbers = re.match(r"v?(\d{1,9})\.(\d{1,9})", runtime_version)
    if first is None or numbers is None:
        return None
    return (int(numbers[1]), int(numbers[2])) < first

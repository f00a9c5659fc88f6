"""Features of a container runtime by its release, where the runtime does not report them and a wrong guess would do harm.

Source: containerd internal/cri/nri @ v2.1.0 and its go.mod @ v2.2.0, CRI-O internal/nri and go.mod @ v1.34.0: the first releases
whose NRI injects CDI devices, and the first with an NRI that has validators (v0.10.0).
"""

import re
from collections.abc import Mapping

from nodedevice_agent.devicemanager.allocation.container_edits import ContainerEdits
from nodedevice_agent.devicemanager.runtime import InjectionRefused

_Since = Mapping[str, tuple[int, int]]

_CDI: _Since = {"containerd": (2, 1), "cri-o": (1, 34)}
_VALIDATORS: _Since = {"containerd": (2, 2), "cri-o": (1, 34)}
# CRI-O adopted that NRI late in the development of 1.34
_VALIDATORS_SURELY: _Since = {"containerd": (2, 2), "cri-o": (1, 35)}


def has_validators(runtime_name: str, runtime_version: str) -> bool | None:
    """Whether it has the event VALIDATE_CONTAINER_ADJUSTMENT; None where the release does not determine it.

    A runtime without the event rejects every plugin that subscribes to it.
    """
    if _is_older(runtime_name, runtime_version, _VALIDATORS):
        return False
    return True if _is_older(runtime_name, runtime_version, _VALIDATORS_SURELY) is False else None


def check_cdi(edits: ContainerEdits, runtime_name: str, runtime_version: str) -> None:
    """Raises InjectionRefused for CDI devices that this runtime would drop silently. An unknown runtime is trusted."""
    if edits.cdi_devices and _is_older(runtime_name, runtime_version, _CDI):
        major, minor = _CDI[runtime_name.lower()]
        raise InjectionRefused(
            f"CDI device {edits.cdi_devices[0]} cannot be injected: {runtime_name} {runtime_version} accepts none from NRI; "
            f"update it to {major}.{minor} or newer"
        )


def _is_older(runtime_name: str, runtime_version: str, since: _Since) -> bool | None:
    """None for an unknown runtime, or one without a version."""
    first = since.get(runtime_name.lower())
    numbers = re.match(r"v?(\d{1,9})\.(\d{1,9})", runtime_version)
    if first is None or numbers is None:
        return None
    return (int(numbers[1]), int(numbers[2])) < first

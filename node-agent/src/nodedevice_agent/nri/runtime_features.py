"""What a container runtime has by its release, where it does not say so itself and going ahead would do harm.

Source: containerd internal/cri/nri @ v2.1.0 and its go.mod @ v2.2.0, CRI-O internal/nri and go.mod @ v1.34.0: the first releases
that hand an injector of CDI devices to NRI, and the first that build in an NRI with validators (v0.10.0).
"""

import re
from collections.abc import Mapping

from nodedevice_agent.devicemanager.allocation.container_edits import ContainerEdits
from nodedevice_agent.devicemanager.runtime import InjectionRefused

_Since = Mapping[str, tuple[int, int]]

_CDI: _Since = {"containerd": (2, 1), "cri-o": (1, 34)}
_VALIDATORS: _Since = {"containerd": (2, 2), "cri-o": (1, 34)}
# CRI-O took that NRI in late in the making of 1.34
_VALIDATORS_SURELY: _Since = {"containerd": (2, 2), "cri-o": (1, 35)}


def has_validators(runtime_name: str, runtime_version: str) -> bool | None:
    """Whether it knows the event VALIDATE_CONTAINER_ADJUSTMENT; None where its release does not tell.

    A runtime that does not know it takes in no plugin that asks for it.
    """
    if _is_older(runtime_name, runtime_version, _VALIDATORS):
        return False
    return True if _is_older(runtime_name, runtime_version, _VALIDATORS_SURELY) is False else None


def check_cdi(edits: ContainerEdits, runtime_name: str, runtime_version: str) -> None:
    """Raises InjectionRefused for CDI devices that this runtime would drop without a word. One that is not known is trusted."""
    if edits.cdi_devices and _is_older(runtime_name, runtime_version, _CDI):
        major, minor = _CDI[runtime_name.lower()]
        raise InjectionRefused(
            f"CDI device {edits.cdi_devices[0]} cannot reach the container: {runtime_name} {runtime_version} takes none from NRI; "
            f"update it to {major}.{minor} or newer"
        )


def _is_older(runtime_name: str, runtime_version: str, since: _Since) -> bool | None:
    """None for a runtime that is not known here, or does not say a version."""
    first = since.get(runtime_name.lower())
    numbers = re.match(r"v?(\d{1,9})\.(\d{1,9})", runtime_version)
    if first is None or numbers is None:
        return None
    return (int(numbers[1]), int(numbers[2])) < first

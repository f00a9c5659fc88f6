"""Which container runtimes carry CDI devices of an NRI plugin into a container.

An older one drops them without a word, and the container would run without its device; so here they are refused with a word.
Source: containerd internal/cri/nri @ v2.1.0, CRI-O internal/nri @ v1.34.0, the first releases that hand an injector to NRI.
"""

import re

from nodedevice_agent.core.container_edits import ContainerEdits
from nodedevice_agent.core.runtime import InjectionRefused

_SINCE = {"containerd": (2, 1), "cri-o": (1, 34)}


def check_cdi(edits: ContainerEdits, runtime_name: str, runtime_version: str) -> None:
    """Raises InjectionRefused for CDI devices that this runtime would drop. One that is not known here is trusted."""
    since = _SINCE.get(runtime_name.lower())
    numbers = re.match(r"v?(\d{1,9})\.(\d{1,9})", runtime_version)
    if not edits.cdi_devices or since is None or numbers is None:
        return
    if (int(numbers[1]), int(numbers[2])) < since:
        raise InjectionRefused(
            f"CDI device {edits.cdi_devices[0]} cannot reach the container: {runtime_name} {runtime_version} takes none from NRI; "
            f"update it to {since[0]}.{since[1]} or newer"
        )

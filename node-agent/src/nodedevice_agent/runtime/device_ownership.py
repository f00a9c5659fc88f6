"""Whose the device files in a container are: the owner's of the host's file, or the container's own user's.

containerd and CRI-O have an option for the second, device_ownership_from_security_context, by which a container that is not root
can open its device. They apply it to devices of the kubelet's request, not to those of NRI, so the agent does the same. Whether it
is on stands in the runtime's configuration, which NRI does not show; without the file the agent has to be configured.
Source: containerd internal/cri/opts/spec_linux_opts.go, WithDevices @ v2.4.2; CRI-O internal/factory/container/device_linux.go
@ v1.34: user and group of the CRI's security context, each where it is not 0.
"""

import asyncio
import logging
from functools import partial
from pathlib import Path

from nodedevice_common.threads import in_thread

from nodedevice_agent.devicemanager.pods import ContainerSettings
from nodedevice_agent.devicemanager.runtime import DeviceOwner, InjectionRefused
from nodedevice_agent.runtime.runtime_config import ConfigUnreadable, is_set
from nodedevice_agent.settings import DeviceOwnershipSetting

log = logging.getLogger(__name__)

OPTION = "device_ownership_from_security_context"
# what a runtime makes of the 64 bits in the kubelet's request
_ID_BITS = 0xFFFFFFFF
# half of the second that a response may take
_WAIT_SECONDS = 0.5
_DEFAULT_FILES = {"containerd": "/etc/containerd/config.toml", "cri-o": "/etc/crio/crio.conf"}


class DeviceOwnership:
    """setting: of the agent. config_file: of the runtime; "": where the runtime has it by default."""

    def __init__(self, setting: DeviceOwnershipSetting, config_file: str) -> None:
        self._setting = setting
        self._config_file = config_file
        self._is_containers = setting == "container"
        # what the runtime's configuration says, or why that is not known
        self._reported: bool | str | None = None
        self._file = ""
        self._is_due = False
        self._reading: asyncio.Task[None] | None = None

    def connected(self, runtime_name: str) -> None:
        """A runtime is connected, perhaps with another configuration than before: reads it in a thread, as it may be long."""
        if self._setting != "auto":
            return
        self._file, self._is_due = self._config_file or _DEFAULT_FILES.get(runtime_name.lower(), ""), True
        if self._reading is None or self._reading.done():
            self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        """Logs what was found when it has changed."""
        while self._is_due:
            self._is_due, file = False, self._file
            found = await in_thread(partial(_found, file))
            self._is_containers = found is True
            if self._reported != found:
                self._reported = found
                self._report(found, file)

    async def owner(self, own: ContainerSettings, user_of_image: int) -> DeviceOwner:
        """user_of_image: what the runtime starts the container's process as, where its pod does not set it.

        Raises InjectionRefused while the configuration of the connected runtime is not read yet.
        """
        if self._reading is not None:
            try:
                async with asyncio.timeout(_WAIT_SECONDS):
                    await asyncio.shield(self._reading)
            except TimeoutError as exc:
                raise InjectionRefused(
                    f"the agent is still reading the runtime's configuration, {self._file}; if this lasts, check its file system, "
                    "or set --device-ownership to host or container"
                ) from exc
        if not self._is_containers:
            return DeviceOwner()
        user = user_of_image if own.run_as_user is None else own.run_as_user
        return DeviceOwner(user & _ID_BITS, (own.run_as_group or 0) & _ID_BITS)

    def _report(self, found: bool | str, file: str) -> None:
        if isinstance(found, str):
            extra = {"path": file, "error": found, "remedy": "set --device-ownership, or --runtime-config"}
            # no warning, as most runtimes have it off; a container that it would matter to has one of its own
            log.info("device ownership of the runtime is not known; device files keep the host's owner", extra=extra)
        else:
            owner = "container" if found else "host"
            log.info("device ownership is the runtime's", extra={"path": file, "owner": owner})


def _found(file: str) -> bool | str:
    """Whether the option is set, or why that is not known. Blocks."""
    try:
        return is_set(Path(file), OPTION) if file else "this runtime's configuration file is not known"
    except ConfigUnreadable as exc:
        return str(exc)

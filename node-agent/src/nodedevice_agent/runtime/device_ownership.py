"""Decides who owns the device files in a container: the owner of the host's file, or the container's user.

The option device_ownership_from_security_context of containerd and CRI-O selects the container's user, so that containers without
root can open their devices. The runtimes apply it to devices of the kubelet's request only. NRI does not show the option.
Source: containerd internal/cri/opts/spec_linux_opts.go, WithDevices @ v2.4.2; CRI-O internal/factory/container/device_linux.go
@ v1.34: user and group of the CRI's security context, unless they are 0.
"""

import asyncio
import logging
from functools import partial
from pathlib import Path

from nodedevice_common.threads import in_thread

from nodedevice_agent.devicemanager.pods import ContainerSettings
from nodedevice_agent.devicemanager.runtime import DeviceOwner, InjectionRefused
from nodedevice_agent.lib.shared_calls import SharedCall
from nodedevice_agent.runtime.runtime_config import ConfigUnreadable, is_set
from nodedevice_agent.settings import DeviceOwnershipSetting

log = logging.getLogger(__name__)

OPTION = "device_ownership_from_security_context"
# runtimes truncate the 64 bits of the kubelet's request
_ID_BITS = 0xFFFFFFFF
# half of the second that a response may take
_WAIT_SECONDS = 0.5
_DEFAULT_FILES = {"containerd": "/etc/containerd/config.toml", "cri-o": "/etc/crio/crio.conf"}


class DeviceOwnership:
    """setting: --device-ownership. config_file: the runtime's configuration file; "" for its default path."""

    def __init__(self, setting: DeviceOwnershipSetting, config_file: str) -> None:
        self._setting = setting
        self._config_file = config_file
        self._is_containers = setting == "container"
        # the option in the runtime's configuration, or why it is unknown
        self._reported: bool | str | None = None
        self._file = ""
        self._read = SharedCall(self._read_option)
        self._reading: asyncio.Task[None] | None = None

    def connected(self, runtime_name: str) -> None:
        """Read the configuration of the connected runtime in a thread: it may be new, and it may be long."""
        if self._setting == "auto":
            self._file = self._config_file or _DEFAULT_FILES.get(runtime_name.lower(), "")
            self._reading = asyncio.create_task(self._read())

    async def _read_option(self) -> None:
        """Read the configuration; log a changed result."""
        file = self._file
        found = await in_thread(partial(_found, file))
        before, self._reported, self._is_containers = self._reported, found, found is True
        if found == before:
            return
        if isinstance(found, str):
            extra = {"path": file, "error": found, "remedy": "set --device-ownership, or --runtime-config"}
            # not a warning: most runtimes have the option off, and a container that cannot open its device reports an error
            log.info("device ownership of the runtime is not known; device files keep the host's owner", extra=extra)
        else:
            owner = "container" if found else "host"
            log.info("device ownership is the runtime's", extra={"path": file, "owner": owner})

    async def owner(self, own: ContainerSettings, user_of_image: int) -> DeviceOwner:
        """Return the owner of a container's device files. user_of_image: the process's user if the pod does not set one.

        Raises InjectionRefused until the connected runtime's configuration was read.
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


def _found(file: str) -> bool | str:
    """Return whether the option is set, or why that is unknown. Blocks."""
    try:
        return is_set(Path(file), OPTION) if file else "this runtime's configuration file is not known"
    except ConfigUnreadable as exc:
        return str(exc)

"""A device plugin's answer to Allocate, from the bytes that the checkpoint keeps.

Source: kubelet deviceplugin v1beta1, ContainerAllocateResponse.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from google.protobuf.message import DecodeError
from nodedevice_api.upstream.kubelet.deviceplugin.v1beta1 import api_pb2


class UnreadableAnswer(Exception):
    """The bytes are no ContainerAllocateResponse."""


@dataclass(frozen=True, slots=True)
class Mount:
    container_path: str
    host_path: str
    read_only: bool


@dataclass(frozen=True, slots=True)
class DeviceFile:
    """permissions: letters of r, w and m, as the plugin gave them."""

    container_path: str
    host_path: str
    permissions: str


@dataclass(frozen=True, slots=True)
class AllocateAnswer:
    """What a container needs to reach its devices. cdi_devices: vendor/class=device."""

    envs: Mapping[str, str]
    mounts: tuple[Mount, ...]
    devices: tuple[DeviceFile, ...]
    annotations: Mapping[str, str]
    cdi_devices: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Everything, empty parts too, under the Kubernetes API's way of spelling."""
        return {
            "envs": dict(self.envs),
            "mounts": [
                {"containerPath": m.container_path, "hostPath": m.host_path, "readOnly": m.read_only}
                for m in self.mounts
            ],
            "devices": [
                {"containerPath": d.container_path, "hostPath": d.host_path, "permissions": d.permissions}
                for d in self.devices
            ],
            "annotations": dict(self.annotations),
            "cdiDevices": list(self.cdi_devices),
        }


def read_answer(response: bytes) -> AllocateAnswer:
    """Raises UnreadableAnswer."""
    try:
        message = api_pb2.ContainerAllocateResponse.FromString(response)
    except DecodeError as exc:
        raise UnreadableAnswer(f"AllocResp cannot be decoded ({len(response)} bytes)") from exc
    return AllocateAnswer(
        envs=dict(message.envs),
        mounts=tuple(Mount(m.container_path, m.host_path, m.read_only) for m in message.mounts),
        devices=tuple(DeviceFile(d.container_path, d.host_path, d.permissions) for d in message.devices),
        annotations=dict(message.annotations),
        cdi_devices=tuple(device.name for device in message.cdi_devices),
    )

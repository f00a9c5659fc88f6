"""A device plugin's answer to Allocate, from the bytes that the checkpoint keeps.

Source: kubelet deviceplugin v1beta1, ContainerAllocateResponse.
"""

from google.protobuf.message import DecodeError
from nodedevice_api.upstream.kubelet.deviceplugin.v1beta1 import api_pb2

from nodedevice_agent.devicemanager.allocation.container_edits import ContainerEdits, DeviceFile, Mount


class UnreadableAnswer(Exception):
    """The bytes are no ContainerAllocateResponse."""


def read_answer(response: bytes) -> ContainerEdits:
    """Raises UnreadableAnswer."""
    try:
        message = api_pb2.ContainerAllocateResponse.FromString(response)
    except DecodeError as exc:
        raise UnreadableAnswer(f"AllocResp cannot be decoded ({len(response)} bytes)") from exc
    return ContainerEdits(
        envs=dict(message.envs),
        mounts=tuple(Mount(m.container_path, m.host_path, m.read_only) for m in message.mounts),
        devices=tuple(DeviceFile(d.container_path, d.host_path, d.permissions) for d in message.devices),
        annotations=dict(message.annotations),
        cdi_devices=tuple(device.name for device in message.cdi_devices),
    )

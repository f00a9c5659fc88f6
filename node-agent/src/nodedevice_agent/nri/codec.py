"""Decodes NRI's pods and containers. Source: containerd/nri pkg/api/api.proto @ v0.12.3."""

from nodedevice_api.upstream.nri.v1alpha1 import api_pb2

from nodedevice_agent.devicemanager.allocation.container_edits import normalized
from nodedevice_agent.devicemanager.runtime import ContainerState, RunningContainer, RuntimeDevice, Sandbox

# The kubelet's label on every container; no pod can set labels there. Source: kubelet pkg/kubelet/types/labels.go @ 1.37
_POD_UID = "io.kubernetes.pod.uid"
_STATES = {
    api_pb2.CONTAINER_CREATED: ContainerState.CREATED,
    api_pb2.CONTAINER_PAUSED: ContainerState.PAUSED,
    api_pb2.CONTAINER_RUNNING: ContainerState.RUNNING,
    api_pb2.CONTAINER_STOPPED: ContainerState.STOPPED,
}


def sandbox(message: api_pb2.PodSandbox) -> Sandbox:
    return Sandbox(
        id=message.id,
        name=message.name,
        namespace=message.namespace,
        uid=message.uid,
        annotations=dict(message.annotations),
        labels=dict(message.labels),
    )


def container(message: api_pb2.Container) -> RunningContainer:
    """A state that this NRI version does not have is UNKNOWN."""
    return RunningContainer(
        id=message.id,
        sandbox_id=message.pod_sandbox_id,
        name=message.name,
        state=_STATES.get(message.state, ContainerState.UNKNOWN),
        pid=message.pid,
        env=tuple(message.env),
        devices=tuple(RuntimeDevice(normalized(d.path), d.type, d.major, d.minor) for d in message.linux.devices),
        annotations=dict(message.annotations),
        pod_uid=message.labels.get(_POD_UID, ""),
        user=message.user.uid,
        cdi_devices=tuple(device.name for device in message.CDI_devices),
        null_mounts=tuple(normalized(m.destination) for m in message.mounts if _is_null(m.source)),
    )


def _is_null(source: str) -> bool:
    """Most mounts are told apart by their last letters."""
    return source.endswith("null") and normalized(source) == "/dev/null"

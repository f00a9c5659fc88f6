"""Decodes NRI's pods and containers. Source: containerd/nri pkg/api/api.proto @ v0.12.5.

What the agent does not read is left out: annotations and an environment may have megabytes, and a tenant chooses them.
"""

from collections.abc import Mapping

from msgspec.structs import replace
from nodedevice_api.names import CONTAINER_DEVICES_ANNOTATION, REQUIRED_PLUGINS_ANNOTATION
from nodedevice_api.upstream.nri.v1alpha1 import api_pb2

from nodedevice_agent.devicemanager import runtime
from nodedevice_agent.devicemanager.container_edits import normalized
from nodedevice_agent.devicemanager.static_pods import CONFIG_HASH

# The domain of the keys, with a dot before it.
_CDI_DOMAIN = ".cdi.k8s.io"
# The kubelet's label on every container; no pod can set labels there. Source: kubelet pkg/kubelet/types/labels.go @ 1.37
_POD_UID = "io.kubernetes.pod.uid"
_STATES = {
    api_pb2.CONTAINER_CREATED: runtime.ContainerState.CREATED,
    api_pb2.CONTAINER_PAUSED: runtime.ContainerState.PAUSED,
    api_pb2.CONTAINER_RUNNING: runtime.ContainerState.RUNNING,
    api_pb2.CONTAINER_STOPPED: runtime.ContainerState.STOPPED,
}


def sandbox(message: api_pb2.PodSandbox) -> runtime.Sandbox:
    """Decode a sandbox without its annotations."""
    return runtime.Sandbox(id=message.id, name=message.name, namespace=message.namespace, uid=message.uid)


def sandbox_of(container: api_pb2.Container, message: api_pb2.PodSandbox) -> runtime.Sandbox:
    """Decode a sandbox with the annotations that decide about this container."""
    key = REQUIRED_PLUGINS_ANNOTATION
    keys = (CONFIG_HASH, key, f"{key}/pod", f"{key}/container.{container.name}")
    annotations = {key: message.annotations[key] for key in keys if key in message.annotations}
    annotations |= _of_cdi(message.annotations)
    return runtime.Sandbox(message.id, message.name, message.namespace, message.uid, annotations)


def container(message: api_pb2.Container) -> runtime.RunningContainer:
    """Decode a container without its environment. A state that this NRI version does not define is UNKNOWN."""
    key = CONTAINER_DEVICES_ANNOTATION
    return runtime.RunningContainer(
        id=message.id,
        sandbox_id=message.pod_sandbox_id,
        name=message.name,
        state=_STATES.get(message.state, runtime.ContainerState.UNKNOWN),
        pid=message.pid,
        devices=tuple(
            runtime.RuntimeDevice(normalized(d.path), d.type, d.major, d.minor) for d in message.linux.devices
        ),
        annotations={key: message.annotations[key]} if key in message.annotations else {},
        pod_uid=message.labels.get(_POD_UID, ""),
        user=message.user.uid,
        cdi_devices=tuple(device.name for device in message.CDI_devices),
    )


def created_container(message: api_pb2.Container, env: tuple[str, ...]) -> runtime.RunningContainer:
    """One that is about to be created. env: the variables that are read of its environment."""
    found = container(message)
    return replace(
        found,
        env=env,
        annotations={**found.annotations, **_of_cdi(message.annotations)},
        null_mounts=tuple(normalized(m.destination) for m in message.mounts if _is_null(m.source)),
    )


def _of_cdi(annotations: Mapping[str, str]) -> dict[str, str]:
    """Annotations that name CDI devices, such as cdi.k8s.io/KEY and nvidia.cdi.k8s.io/pod."""
    return {key: value for key, value in annotations.items() if f".{key.partition('/')[0]}".endswith(_CDI_DOMAIN)}


def _is_null(source: str) -> bool:
    """Distinguishes most mounts by the last letters of their source."""
    return source.endswith("null") and normalized(source) == "/dev/null"


def shown_container(message: api_pb2.Container) -> runtime.RunningContainer:
    """A container as the runtime shows it; `shown` is set for a live one without a mark."""
    found = container(message)
    if found.annotations or found.state is runtime.ContainerState.STOPPED:
        return found
    return replace(found, shown=runtime.shown_settings(message.env, [device.path for device in found.devices]))


def listed_container(message: api_pb2.Container) -> runtime.RunningContainer:
    """A container of a list; it keeps its devices only if it has a mark."""
    found = shown_container(message)
    return found if found.annotations else replace(found, devices=())

"""The nvml plugin's part in the creation of containers: each has exactly its allocated GPUs, despite its environment. Pure.

In a container with GPUs the variables of the table have the plugin's values. In a container without a GPU the value is void, by
which NVIDIA's container runtime adds no GPU either: images of CUDA request all GPUs. The runtime shows the whole environment,
including the image's. Init, ephemeral and privileged containers, and containers of static pods, are treated alike.
"""

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Final

from nodedevice_agent.devicemanager.container_edits import ContainerEdits
from nodedevice_agent.devicemanager.runtime import RunningContainer, Sandbox
from nodedevice_agent.plugins.contract import Creation, CreationHook, CreationRefused, Given, Response
from nodedevice_agent.plugins.nvml import environment
from nodedevice_agent.plugins.nvml.settings import NvmlSettings

# An environment with more of them than NVIDIA's runtime could be asked for by any image or pod is refused: each one that is
# overruled is a part of the response.
MOST_VARIABLES: Final = 1024
_BUS_ID: Final = "pciBusID"
_SHOWN: Final = 128
_VISIBLE: Final = environment.VISIBLE_DEVICES


def hook(configured: Sequence[NvmlSettings], namespace: str) -> CreationHook:
    """namespace: the agent's own, whose pods are exempt."""
    return GpuCreation((*configured[0].exempt, namespace) if configured else None)


class GpuCreation:
    """exempt: patterns of namespaces and namespace/pod whose containers keep their variables; None: no plugin, all keep theirs."""

    def __init__(self, exempt: Sequence[str] | None) -> None:
        self._exempt = exempt

    def reads(self, entry: str) -> bool:
        return environment.is_read(entry)

    def decides(self, name: str) -> bool:
        return environment.unset_value(name) is not None

    def overrules(self, pod: Sandbox, edits: ContainerEdits) -> bool:
        return (
            self._exempt is not None
            and not self._is_exempt(pod)
            and environment.names_gpus(edits.envs, edits.cdi_devices)
        )

    def joined(self, container: str, responses: Sequence[Response]) -> dict[str, str]:
        order = sorted({gpu for response in responses for gpu in _gpus(response)})
        answers = [
            environment.Answer(response.resource_name, response.envs, tuple(sorted(map(order.index, _gpus(response)))))
            for response in sorted(responses)
        ]
        try:
            return environment.joined(answers)
        except environment.CannotJoin as error:
            raise CreationRefused(f"container {container} cannot start: {error}") from error

    def for_holder(self, container: str, env: Sequence[str], edits: ContainerEdits) -> Creation:
        if problem := _too_many(container, env):
            raise CreationRefused(problem)
        found = environment.for_holder(environment.variables(env), edits.envs)
        # The specification of its GPUs sets this variable; a runtime applies that last.
        by_cdi = edits.cdi_devices and found.stays == _VISIBLE and edits.envs.get(_VISIBLE) == environment.VOID
        if found.stays and not by_cdi:
            # containerd sets a variable that it has twice to the first value, and then to the second one of its own
            raise CreationRefused(
                f"container {container} sets {found.stays} in its image and in its pod, and a runtime keeps the pod's value: "
                f"remove {found.stays} from the pod's spec"
            )
        event = "the GPUs of a container replace variables of its own"
        return Creation(found.envs, found.names, outcome="overruled", event=event)

    def for_any(self, pod: Sandbox, container: RunningContainer, gets: Given) -> Creation | None:
        if self._exempt is None:
            return None
        is_exempt = self._is_exempt(pod)
        if not gets.holds and not is_exempt and (problem := _too_many(container.name, container.env)):
            return Creation(refusal=problem)
        found = None if gets.holds else _withheld(container, gets)
        asked = _unallocated(pod, container, gets)
        if found is None and not asked:
            return None
        if is_exempt:
            event = "container keeps the GPUs that it asks NVIDIA's runtime for: its pod is exempt"
            return Creation(outcome="exempt", event=event)
        named = f"container {container.name}"
        if gets.unknown:
            return Creation(refusal=f"{named} names GPUs and may have them of the kubelet: {gets.unknown}")
        if asked or found is None:
            return Creation(
                refusal=f"{named} has the {asked}: NVIDIA's runtime would add it, and it was not allocated; remove it from the "
                "pod's spec, or exempt the pod (nvml.exempt)"
            )
        if found.stays:
            return Creation(
                refusal=f"{named} has {found.stays} twice, of its image and of its pod, and would get GPUs that it did not ask "
                f"for: remove {found.stays} from the pod's spec or set it to void, or exempt the pod (nvml.exempt)"
            )
        event = "container gets none of the devices that its environment names"
        return Creation(found.envs, found.names, outcome="withheld", event=event)

    def note(self, exempt_pods: Sequence[str]) -> str:
        if self._exempt is None:
            return ""
        exempt = f"; exempt by nvml.exempt: {', '.join(exempt_pods)}" if exempt_pods else ""
        return f"containers without a GPU get none by NVIDIA_VISIBLE_DEVICES, unless they start while this agent is away{exempt}"

    def _is_exempt(self, pod: Sandbox) -> bool:
        name = f"{pod.namespace}/{pod.name}"
        return any(fnmatchcase(name if "/" in pattern else pod.namespace, pattern) for pattern in self._exempt or ())


def _too_many(container: str, env: Sequence[str]) -> str:
    if len(found := environment.variables(env)) <= MOST_VARIABLES:
        return ""
    return (
        f"container {container} sets {len(found)} environment variables of NVIDIA's container runtime, HAMi or MPS; the limit is "
        f"{MOST_VARIABLES}: remove them from the pod's spec, its ConfigMaps or its image"
    )


def _withheld(container: RunningContainer, gets: Given) -> environment.Overruling | None:
    """The variables that a container without a GPU of ours gets in place of its own; None if its own request no GPU."""
    own, given, kept = environment.variables(container.env), gets.edits.envs, gets.of_kubelet.envs
    if environment.names_gpus({**kept, **given}, _cdi_devices(container, gets)):
        return environment.for_foreign_holder(own, given, kept)
    return environment.for_other(own)


def _unallocated(pod: Sandbox, container: RunningContainer, gets: Given) -> str:
    """The annotation or mount through which NVIDIA's runtime would add a device that the container was not allocated."""
    allocated = _cdi_devices(container, gets)
    for key, device in environment.named_by_annotations(container.name, pod.annotations, container.annotations):
        if device not in allocated:
            return f"annotation {key}, which names {device[:_SHOWN]!a}"
    mounted = {mount.container_path for mount in (*gets.edits.mounts, *gets.of_kubelet.mounts)}
    paths = (path for path in container.null_mounts if path not in mounted and environment.names_by_mount(path))
    return next((f"mount {path[:_SHOWN]!a}, which names a device" for path in paths), "")


def _cdi_devices(container: RunningContainer, gets: Given) -> set[str]:
    return {*container.cdi_devices, *gets.edits.cdi_devices, *gets.of_kubelet.cdi_devices}


def _gpus(response: Response) -> set[tuple[str, str]]:
    """PCI bus ID ("" if the driver does not report it) and UUID of each GPU."""
    return {(attributes.get(_BUS_ID, ""), uuid) for uuid, attributes in response.devices}

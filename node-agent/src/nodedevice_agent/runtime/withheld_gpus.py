"""Containers without a GPU that name some in their environment: each gets none, is exempt, or has its GPUs from the kubelet.

Counted and logged as containers are created; the exempt pods of the node are shown in the condition Injectable of its GPUs.
"""

import logging
from collections.abc import Callable, Iterable

from msgspec.structs import replace

from nodedevice_agent import metrics
from nodedevice_agent.devicemanager.allocation.container_edits import ContainerEdits
from nodedevice_agent.devicemanager.runtime import InjectionRefused, RunningContainer, Sandbox
from nodedevice_agent.plugins.nvml.environment import VISIBLE_DEVICES
from nodedevice_agent.runtime.gpu_environment import GpuEnvironment
from nodedevice_agent.runtime.kubelet_checkpoint import KubeletCheckpoint

log = logging.getLogger(__name__)

# that are named; each change of them is written to the API
_NAMED = 5


class WithheldGpus:
    """on_change: called when note() may have changed."""

    def __init__(self, gpus: GpuEnvironment, kubelet: KubeletCheckpoint, on_change: Callable[[], None]) -> None:
        self._gpus = gpus
        self._kubelet = kubelet
        self._on_change = on_change
        # the exempt pods that were seen last: by UID, namespace and name
        self._exempt: dict[str, str] = {}

    def configured(self, exempt: Iterable[str] | None) -> None:
        """See GpuEnvironment.configured()."""
        self._gpus.configured(exempt)
        self._on_change()

    def asks_kubelet(self, sandbox: Sandbox, container: RunningContainer) -> bool:
        """Whether edits() may depend on what the kubelet has given, which is to be read before."""
        return self._gpus.withheld(sandbox, container) is not None

    def edits(
        self, sandbox: Sandbox, container: RunningContainer, given: ContainerEdits | None
    ) -> ContainerEdits | None:
        """What the container gets; given: without this. Raises InjectionRefused."""
        found = self._gpus.withheld(sandbox, container, given)
        if found is None or self._kubelet.sets(VISIBLE_DEVICES, sandbox.uid, container.name):
            return given
        pod = f"{sandbox.namespace}/{sandbox.name}"
        extra = {"pod": pod, "container": container.name}
        if self._gpus.is_exempt(sandbox):
            metrics.GPU_ENVIRONMENTS.labels("exempt").inc()
            log.info("container keeps the GPUs that its environment names: its pod is exempt", extra=extra)
            self._note(sandbox.uid, pod)
            return given
        if unknown := self._kubelet.unknown_response(sandbox.uid, (sandbox.namespace, sandbox.name), container.name):
            raise InjectionRefused(f"container {container.name} names GPUs and may have them of the kubelet: {unknown}")
        if found.stays:
            metrics.GPU_ENVIRONMENTS.labels("refused").inc()
            if given is None:
                # no device is refused with it, which the caller would count
                metrics.CONTAINERS_REFUSED.inc()
            raise InjectionRefused(
                f"container {container.name} has {found.stays} twice, of its image and of its pod, and would get GPUs that it did "
                f"not ask for: take {found.stays} out of the pod's spec or set it to void, or exempt the pod (nvml.exempt)"
            )
        metrics.GPU_ENVIRONMENTS.labels("withheld").inc()
        log.info("container has no GPU and gets none of those that its environment names", extra=extra)
        given = given or ContainerEdits()
        return replace(given, envs={**given.envs, **found.envs})

    def sandbox_removed(self, pod_uid: str) -> None:
        if self._exempt.pop(pod_uid, None) is not None:
            self._on_change()

    def note(self, resource_name: str) -> str:
        """A sentence for a resource of GPUs; empty for any other."""
        if not self._gpus.is_on or not self._gpus.serves(resource_name):
            return ""
        pods = ", ".join(sorted(self._exempt.values()))
        exempt = f"; exempt by nvml.exempt: {pods}" if pods else ""
        return f"containers without a GPU get none by NVIDIA_VISIBLE_DEVICES, unless they start while this agent is away{exempt}"

    def _note(self, pod_uid: str, pod: str) -> None:
        is_new = pod_uid not in self._exempt
        self._exempt.pop(pod_uid, None)
        self._exempt[pod_uid] = pod
        if len(self._exempt) > _NAMED:
            del self._exempt[next(iter(self._exempt))]
        if is_new:
            self._on_change()

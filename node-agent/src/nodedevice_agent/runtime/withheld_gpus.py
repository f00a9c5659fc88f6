"""Containers without a GPU that name some in their environment: each gets none, is exempt, or has its GPUs from the kubelet.

Counted and logged as containers are created; the exempt pods of the node are shown in the condition Injectable of its GPUs.
"""

import logging
from collections.abc import Callable, Iterable

from msgspec.structs import replace

from nodedevice_agent import metrics
from nodedevice_agent.devicemanager.allocation.container_edits import ContainerEdits
from nodedevice_agent.devicemanager.runtime import InjectionRefused, RunningContainer, Sandbox
from nodedevice_agent.runtime.gpu_environment import NO_EDITS, GpuEnvironment
from nodedevice_agent.runtime.kubelet_checkpoint import KubeletCheckpoint

log = logging.getLogger(__name__)

# An environment with more of them than NVIDIA's runtime could be asked for by any image or pod is refused: each one that is
# overruled is a part of the response.
MOST_VARIABLES = 1024
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
        gpus = self._gpus
        return gpus.withheld(sandbox, container) is not None or bool(gpus.unallocated(sandbox, container))

    def check_number(self, sandbox: Sandbox, container: RunningContainer) -> None:
        """Raises InjectionRefused for a container with too many variables about GPUs, where these count."""
        counts = self._gpus.holds(sandbox.uid, container.name) or (
            self._gpus.is_on and not self._gpus.is_exempt(sandbox)
        )
        if counts and len(container.env) > MOST_VARIABLES:
            metrics.CONTAINERS_REFUSED.inc()
            raise InjectionRefused(
                f"container {container.name} sets {len(container.env)} environment variables of NVIDIA's container runtime, "
                f"HAMi or MPS; the limit is {MOST_VARIABLES}: take them out of the pod's spec, its ConfigMaps or its image"
            )

    def edits(
        self, sandbox: Sandbox, container: RunningContainer, given: ContainerEdits | None
    ) -> ContainerEdits | None:
        """What the container gets; given: without this. Raises InjectionRefused."""
        plugins = given or NO_EDITS
        if self._gpus.withheld(sandbox, container, plugins) is None and not self._gpus.unallocated(
            sandbox, container, plugins
        ):
            return given
        of_kubelet = self._kubelet.given(sandbox.uid, container.name)
        found = self._gpus.withheld(sandbox, container, plugins, of_kubelet)
        asked = self._gpus.unallocated(sandbox, container, plugins, of_kubelet)
        if found is None and not asked:
            return given
        pod = f"{sandbox.namespace}/{sandbox.name}"
        extra = {"pod": pod, "container": container.name}
        if self._gpus.is_exempt(sandbox):
            metrics.GPU_ENVIRONMENTS.labels("exempt").inc()
            log.info("container keeps the GPUs that it asks NVIDIA's runtime for: its pod is exempt", extra=extra)
            self._note(sandbox.uid, pod)
            return given
        pod_name = sandbox.namespace, sandbox.name
        if unknown := self._kubelet.unknown_response(sandbox.uid, pod_name, container.name):
            raise self._refused(
                given, f"container {container.name} names GPUs and may have them of the kubelet: {unknown}"
            )
        if asked or found is None:
            raise self._refused(
                given,
                f"container {container.name} has the {asked}: NVIDIA's runtime would add it, and it was not allocated; remove it "
                "from the pod's spec, or exempt the pod (nvml.exempt)",
            )
        if found.stays:
            raise self._refused(
                given,
                f"container {container.name} has {found.stays} twice, of its image and of its pod, and would get GPUs that it did "
                f"not ask for: take {found.stays} out of the pod's spec or set it to void, or exempt the pod (nvml.exempt)",
            )
        metrics.GPU_ENVIRONMENTS.labels("withheld").inc()
        log.info("container gets none of the devices that its environment names", extra=extra)
        return replace(plugins, envs={**plugins.envs, **found.envs})

    def _refused(self, given: ContainerEdits | None, message: str) -> InjectionRefused:
        metrics.GPU_ENVIRONMENTS.labels("refused").inc()
        if given is None:
            # no device is refused with it, which the caller would count
            metrics.CONTAINERS_REFUSED.inc()
        return InjectionRefused(message)

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

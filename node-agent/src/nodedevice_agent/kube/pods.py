"""The pods bound to this node, watched for as long as the agent runs, as the core's values.

Only what decides about devices crosses over: extended resources in limits, the kind of each container, phase and deletion, and
of a container that asks for any, what it sets itself and a device plugin must not override.
"""

import logging
import re

from nodedevice_api.resource_names import is_extended_resource
from nodedevice_common import quantity as quantities

from nodedevice_agent.devicemanager.allocation.container_edits import place
from nodedevice_agent.devicemanager.pods import NO_SETTINGS, Container, ContainerKind, ContainerSettings, Pod
from nodedevice_agent.deviceplugin.host import PluginHost
from nodedevice_agent.kube.client import Cluster, ContainerSpec, EnvVar, PodObject
from nodedevice_agent.kube.publisher import Publisher
from nodedevice_agent.kube.rebuild import recover_checkpoint
from nodedevice_agent.kube.retry import forever
from nodedevice_agent.lib.probes import Health

log = logging.getLogger(__name__)

# Source: kubelet pkg/kubelet/types/constants.go and pkg/kubelet/config/common.go, applyDefaults @ 1.37
_CONFIG_HASH = "kubernetes.io/config.hash"
_CONFIG_MIRROR = "kubernetes.io/config.mirror"
_HASH = re.compile("[0-9a-f]{32}")
_IS_OVER = ("Succeeded", "Failed")


class PodWatch:
    """Feeds the device manager with this node's pods. run() until cancelled."""

    def __init__(
        self, cluster: Cluster, node_name: str, host: PluginHost, publisher: Publisher, health: Health
    ) -> None:
        self._cluster = cluster
        self._node_name = node_name
        self._host = host
        self._manager = host.manager
        self._publisher = publisher
        self._health = health

    async def run(self) -> None:
        """Recover a lost checkpoint first: the pods are compared with its allocations."""
        if self._manager.is_recovering:
            known = await recover_checkpoint(self._cluster, self._node_name)
            if known.registered:
                log.warning("allocations recovered from the API", extra={"allocations": len(known.allocations)})
            self._host.do(self._manager.recovered(known, self._host.now()))
        fields = {"spec.nodeName": self._node_name}
        await forever("pods", lambda: self._cluster.follow(PodObject, fields, self._synced, self._changed))

    async def _synced(self, pods: list[PodObject]) -> None:
        """The complete list: first of all, and again after each break of the watch."""
        self._health.is_there("pods")
        self._host.do(self._manager.pods_synced([from_api(pod) for pod in pods], self._host.now()))
        self._publisher.refresh_all()

    async def _changed(self, event: str, found: PodObject) -> None:
        pod, now = from_api(found), self._host.now()
        self._host.do(self._manager.pod_gone(pod.uid, now) if event == "DELETED" else self._manager.pod_seen(pod, now))


def from_api(pod: PodObject) -> Pod:
    claims = pod.status.extendedResourceClaimStatus
    # what a pod has through dynamic resource allocation (KEP-5004) is a DRA driver's to give, under the same name
    mappings = claims.requestMappings or () if claims is not None else ()
    by_claim = frozenset((mapping.containerName, mapping.resourceName) for mapping in mappings)
    uid = pod.metadata.uid or ""
    static_uid = _static_uid(pod)
    return Pod(
        uid=static_uid or uid,
        namespace=pod.metadata.namespace or "",
        name=pod.metadata.name,
        containers=(
            *(_container(c, by_claim, is_init=True) for c in pod.spec.initContainers or ()),
            *(_container(c, by_claim, is_init=False) for c in pod.spec.containers),
        ),
        is_over=pod.status.phase in _IS_OVER,
        is_terminating=pod.metadata.deletionTimestamp is not None,
        api_uid=uid if static_uid else "",
    )


def _static_uid(pod: PodObject) -> str:
    """The uid of the static pod that this one mirrors; empty for all others.

    A mirror pod has its own in the API, while kubelet and runtime know the pod by a hash. No pod of the API can be taken for
    one by such an annotation: their uids are not of that form.
    """
    annotations = pod.metadata.annotations or {}
    found = annotations.get(_CONFIG_HASH, "") if _CONFIG_MIRROR in annotations else ""
    return found if _HASH.fullmatch(found) else ""


def _container(spec: ContainerSpec, by_claim: frozenset[tuple[str, str]], *, is_init: bool) -> Container:
    kind = ContainerKind.APP
    if is_init:
        kind = ContainerKind.SIDECAR if spec.restartPolicy == "Always" else ContainerKind.INIT
    limits = {}
    for name, quantity in (spec.resources.limits or {}).items():
        is_ours = is_extended_resource(name) and (spec.name, name) not in by_claim
        count = _count(quantity) if is_ours else 0
        if count > 0:
            limits[name] = count
    return Container(spec.name, kind, limits, _own_settings(spec) if limits else NO_SETTINGS)


def _own_settings(spec: ContainerSpec) -> ContainerSettings:
    return ContainerSettings(
        frozenset(env.name for env in spec.env or () if not _may_be_missing(env)),
        frozenset(place(mount.mountPath) for mount in spec.volumeMounts or ()),
        is_privileged=spec.securityContext is not None and spec.securityContext.privileged is True,
    )


def _may_be_missing(env: EnvVar) -> bool:
    """Whether it refers to something optional. If that is not there the container has none of it, which nobody tells us."""
    source = env.valueFrom
    found = (source.configMapKeyRef, source.secretKeyRef, source.fileKeyRef) if source is not None else ()
    return any(ref is not None and ref.optional is True for ref in found)


def _count(quantity: str | int) -> int:
    """A whole number of devices. The API server has refused anything else for an extended resource."""
    number = quantities.count(str(quantity))
    if number is None:
        log.warning("limit is not a whole number; counting it as zero", extra={"limit": str(quantity)[:64]})
    return number or 0

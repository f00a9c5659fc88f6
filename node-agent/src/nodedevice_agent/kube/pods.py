"""Watches the pods bound to this node, and feeds the device manager; recovers a lost checkpoint before that."""

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

import msgspec
from nodedevice_api.names import DELIVERIES
from nodedevice_api.nodedevice import NodeDeviceSpec, NodeDeviceStatus
from nodedevice_api.parts import parent_and_number

from nodedevice_agent.devicemanager.pods import Pod
from nodedevice_agent.devicemanager.records.allocations import Allocation, by_numa, each_device_once
from nodedevice_agent.devicemanager.records.checkpoint import Checkpoint
from nodedevice_agent.devicemanager.records.cordons import Cordons
from nodedevice_agent.devicemanager.resources.use import PODS_NOT_SYNCED
from nodedevice_agent.deviceplugin.host import PluginHost
from nodedevice_agent.health import AgentHealth
from nodedevice_agent.kube.client import KubeClient
from nodedevice_agent.kube.objects import NodeDeviceObject
from nodedevice_agent.kube.observed import (
    cordons_of,
    held_ids,
    is_only_shown,
    observed_spec,
    observed_status,
    resource_name_of,
    since_of,
)
from nodedevice_agent.kube.pod_objects import PodObject, SeenPod, seen
from nodedevice_agent.kube.publisher import PODS, Publisher
from nodedevice_agent.kube.retries import until_done

log = logging.getLogger(__name__)


class PodObserver(Protocol):
    """Another receiver of changes to this node's pods: all of them, one that is new or changed, one that the API has no more."""

    def pods_synced(self, pods: Iterable[Pod]) -> None: ...
    def pod_seen(self, pod: Pod) -> None: ...
    def pod_gone(self, pod_uid: str) -> None: ...


class PodWatch:
    """Feeds the device manager with this node's pods. run() until cancelled."""

    # pods are not written
    known_version = 0

    def __init__(
        self, host: PluginHost, publisher: Publisher, health: AgentHealth, observers: Sequence[PodObserver] = ()
    ) -> None:
        self._observers = observers
        self._host = host
        self._publisher = publisher
        self._health = health

    async def run(self) -> None:
        """Recovers a lost checkpoint first: pods are matched with its allocations."""
        cluster, node_name, manager = self._publisher.cluster, self._publisher.node_name, self._host.manager
        if manager.is_recovering:
            known = await recover_checkpoint(cluster, node_name, self._publisher.recovered)
            if known.registered:
                log.warning("allocations recovered from the API", extra={"allocations": len(known.allocations)})
            manager.recovered(known, self._host.now())
            self._host.settle()
        fields = {"spec.nodeName": node_name}
        await self._publisher.watches.follow(PODS, PodObject, fields, self, is_urgent=True, keep=seen)

    def synced(self, objects: list[SeenPod], version: int) -> None:
        self._health.report("pods")
        self._publisher.are_pods_known = True
        pods = [found.pod for found in objects]
        self._host.manager.pod_events.synced(pods, self._host.now())
        self._host.settle()
        for observer in self._observers:
            observer.pods_synced(pods)
        self._host.bound_names()
        self._publisher.refresh_all()

    def updated(self, found: SeenPod) -> None:
        self._host.manager.pod_events.seen(found.pod, self._host.now())
        self._host.settle()
        for observer in self._observers:
            observer.pod_seen(found.pod)

    def deleted(self, found: SeenPod) -> None:
        self._host.manager.pod_events.gone(found.metadata.uid or "", self._host.now())
        self._host.settle()
        for observer in self._observers:
            observer.pod_gone(found.metadata.uid or "")


# -- a lost checkpoint ----------------------------------------------------------------------------------------------------


async def recover_checkpoint(
    cluster: KubeClient, node_name: str, shown: Callable[[str, NodeDeviceStatus], None] = lambda name, status: None
) -> Checkpoint:
    """Read allocations from the NodeDevices. Responses are not stored there: Allocate is called again with the same device IDs.

    shown: called with the name and status of each resource that the kubelet or a DRA driver allocates. Retried until the API
    server responds: without it, devices in use would be allocated again. Resources without allocations are included, so that
    their status stays current. An edited status may list one device for two pods: the first keeps it.
    """
    listed = await until_done(lambda: cluster.node_devices_of(node_name, _observed))
    objects: list[_Observed] = []
    for found in listed:
        if is_only_shown(found.status):
            # the device was never allocated here
            shown(found.spec.resource_name, found.status)
        else:
            objects.append(found)
    names = dict.fromkeys(filter(None, (found.resource_name for found in objects)), ())
    kept, conflicts = each_device_once(a for found in objects for a in _allocations(found))
    for lost in conflicts:
        others = (a for a in kept if a.resource_name == lost.resource_name and {*a.device_ids} & {*lost.device_ids})
        extra = {
            "pod_uid": lost.pod_uid,
            "held_by": sorted({a.pod_uid for a in others}),
            "device_ids": list(lost.device_ids),
        }
        log.error("conflict: two pods hold the same device in the status; keeping the first", extra=extra)
    cordons = {found.resource_name: _cordons(found) for found in objects}
    return Checkpoint(
        kept,
        names,
        cordons={name: found for name, found in cordons.items() if name and found.device_ids},
        possible_holders={found.resource_name: tuple(PODS_NOT_SYNCED) for found in objects if _omits(found)},
    )


class _Observed(msgspec.Struct, frozen=True):
    """resource_name: "" if the object has no valid one."""

    name: str
    uid: str
    resource_name: str
    spec: NodeDeviceSpec
    status: NodeDeviceStatus


def _observed(found: NodeDeviceObject) -> _Observed:
    meta, spec, status = found.metadata, observed_spec(found.spec), observed_status(found.status)
    if not is_only_shown(status):
        # the NUMA nodes of held devices alone are used
        held = {i for entry in status.allocations for i in held_ids(entry)[0]}
        held |= {*map(_parent, held)}
        devices = [device for device in status.devices if device.id in held]
        status = msgspec.structs.replace(status, devices=devices)
    return _Observed(meta.name or "", meta.uid or "", resource_name_of(spec), spec, status)


def _omits(found: _Observed) -> bool:
    omitted = found.status.allocations_omitted + sum(held_ids(entry)[1] for entry in found.status.allocations)
    if omitted and found.resource_name:
        extra = {"nodedevice": found.name, "omitted": omitted}
        log.error("NodeDevice status omits allocations; holding the resource back until its pods are gone", extra=extra)
    return bool(omitted and found.resource_name)


def _cordons(found: _Observed) -> Cordons:
    in_spec, remembered = cordons_of(found.spec.cordoned_devices), cordons_of(found.status.remembered_cordons)
    return Cordons(found.uid, in_spec, {i: cordon for i, cordon in remembered.items() if i not in in_spec})


def _allocations(found: _Observed) -> list[Allocation]:
    name, status = found.resource_name, found.status
    if not name:
        log.error(
            "invalid NodeDevice without a resource name; its allocations are lost", extra={"nodedevice": found.name}
        )
        return []
    numa = {device.id: tuple(device.numa_nodes) for device in status.devices}
    held = [(entry, ids) for entry in status.allocations if (ids := held_ids(entry)[0])]
    numa |= {i: numa[parent] for _, ids in held for i in ids if i not in numa and (parent := _parent(i)) in numa}
    by = status.agent.known_delivery if status.agent is not None else ""
    delivery = by if by in DELIVERIES else ""
    return [
        Allocation(a.pod_uid, a.container, name, by_numa(ids, numa), None, since=since_of(a.since), delivery=delivery)
        for a, ids in held
    ]


def _parent(device_id: str) -> str:
    found = parent_and_number(device_id)
    return found[0] if found is not None else ""

"""Writes the PodDevices of one node, as planned. A pod is read once before: it must be that pod, on that node."""

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from nodedevice_api import names
from nodedevice_api.poddevice import PodDeviceSpec, PodDeviceStatus
from nodedevice_kube.api_errors import ApiError, Conflict, NotFound

from nodedevice_operator.capacity.decide import is_reported
from nodedevice_operator.informers.store import Cache
from nodedevice_operator.kube.client import Client
from nodedevice_operator.kube.decode import decode_record
from nodedevice_operator.kube.requests import PODDEVICES, Requests, at
from nodedevice_operator.objects.instance import owned
from nodedevice_operator.objects.nodedevice import NodeDeviceRecord, is_real
from nodedevice_operator.objects.poddevice import PodDeviceRecord, PodDeviceSchema, pod_device_record
from nodedevice_operator.observability.events import NORMAL, WARNING, Event, EventReason, about_node_device, about_pod
from nodedevice_operator.observability.recorder import EventRecorder
from nodedevice_operator.reconcile import poddevices as pod_devices
from nodedevice_operator.reconcile.poddevices import DesiredPodDevice
from nodedevice_operator.reconcile.turn import Turn

log = logging.getLogger(__name__)


@dataclass(slots=True)
class PodDeviceMemory:
    """Pod UIDs. gone: deleted, or on another node. refused, announced: reported on the NodeDevice, or on the pod by resource."""

    has_reconciled: bool = False
    gone: set[str] = field(default_factory=set)
    refused: set[str] = field(default_factory=set)
    announced: set[tuple[str, str]] = field(default_factory=set)


class PodDevicesApi(Requests):
    def __init__(self, client: Client, instance: str = "") -> None:
        super().__init__(client)
        self._instance = instance

    async def apply_pod_device(self, wanted: DesiredPodDevice, uid: str | None) -> PodDeviceRecord:
        """Creates the object, or updates the one with `uid`; returns it. Raises Conflict if no object has that UID any more."""
        where = at(PODDEVICES, wanted.name, wanted.namespace)
        data = await self._apply(*where, encode(wanted, uid, self._instance), force=True)
        return decode_record("PATCH", names.POD_DEVICES, data, PodDeviceSchema, pod_device_record)

    async def delete_pod_device(self, record: PodDeviceRecord) -> None:
        await self._delete(*at(PODDEVICES, record.name, record.namespace), uid=record.uid)


def encode(wanted: DesiredPodDevice, uid: str | None, instance: str = "") -> dict[str, Any]:
    content = wanted.content
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.POD_DEVICE,
        "metadata": {
            "name": wanted.name,
            "namespace": wanted.namespace,
            "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": wanted.name, "uid": wanted.pod_uid}],
            **owned(instance),
            **({"uid": uid} if uid is not None else {}),
        },
        "spec": PodDeviceSpec(content.node, wanted.pod_uid),
        "status": PodDeviceStatus(content.resources, content.devices, content.health, content.containers),
    }


@dataclass(eq=False)
class PodDeviceReconciler:
    cache: Cache
    api: PodDevicesApi
    recorder: EventRecorder

    async def reconcile(self, node: str, memory: PodDeviceMemory, turn: Turn) -> None:
        """Bring the PodDevices of that node to what its NodeDevices call for, until it is over. Raises ApiError."""
        usable, may_delete = self._usable(node)
        wanted = pod_devices.desired_pod_devices(node, usable)
        self._prepare(wanted, memory)
        store = self.cache.pod_devices
        plan = pod_devices.plan(wanted, store.by_key, store.of_node(node), may_delete=may_delete)
        steps: list[Callable[[], Awaitable[None]]] = [
            *(partial(self._delete, record) for record in plan.delete),
            *(partial(self._update, pod, stored, memory) for pod, stored in plan.update),
            *(
                partial(self._create, pod, replaced, usable, memory)
                for pod, replaced in plan.create
                if pod.pod_uid not in memory.gone
            ),
        ]
        failures: list[ApiError] = []
        for step in steps:
            if turn.is_over():
                break
            turn.spend()
            try:
                await step()
            except ApiError as error:
                failures.append(error)
        memory.has_reconciled = True
        if failures:
            # every pod was tried: a rejected one delays no other
            raise failures[0]

    def _usable(self, node: str) -> tuple[list[NodeDeviceRecord], bool]:
        """NodeDevices of the current Node, and whether all belong to it: only then may PodDevices be deleted."""
        records = [record for record in self.cache.node_devices.of_node(node) if is_real(record)]
        current = self.cache.nodes.get(node)
        if current is None:
            return [], not records
        usable = [record for record in records if is_reported(current, record)]
        is_whole = len(usable) == len(records)
        return usable, is_whole

    def _prepare(self, wanted: tuple[DesiredPodDevice, ...], memory: PodDeviceMemory) -> None:
        """Forget pods that hold nothing any more; the first time, a pod with a PodDevice counts as announced."""
        uids = {each.pod_uid for each in wanted}
        memory.gone &= uids
        memory.refused &= uids
        memory.announced = {announced for announced in memory.announced if announced[0] in uids}
        if memory.has_reconciled:
            return
        for each in wanted:
            stored = self.cache.pod_devices.get(each.key)
            if stored is not None and stored.pod_uid == each.pod_uid:
                memory.announced |= {(each.pod_uid, resource) for resource, _ in each.held}

    async def _delete(self, record: PodDeviceRecord) -> None:
        try:
            await self.api.delete_pod_device(record)
        except (NotFound, Conflict):
            log.debug("PodDevice is deleted already", extra={"namespace": record.namespace, "pod": record.name})
        self.cache.pod_devices.remove(record.key, record.uid)

    async def _update(self, wanted: DesiredPodDevice, stored: PodDeviceRecord, memory: PodDeviceMemory) -> None:
        try:
            self.cache.pod_devices.put(await self.api.apply_pod_device(wanted, stored.uid))
        except Conflict:
            # deleted a moment ago; the retry finds out whether the pod is gone too
            self.cache.pod_devices.remove(stored.key, stored.uid)
            raise
        self._announce(wanted, memory)

    async def _create(
        self,
        wanted: DesiredPodDevice,
        stored: PodDeviceRecord | None,
        usable: list[NodeDeviceRecord],
        memory: PodDeviceMemory,
    ) -> None:
        try:
            pod = await self.api.read_pod(wanted.namespace, wanted.name)
        except NotFound:
            memory.gone.add(wanted.pod_uid)
            return
        if pod.uid != wanted.pod_uid:
            # that pod is gone, and another has its name
            memory.gone.add(wanted.pod_uid)
            return
        if pod.node != wanted.content.node:
            if pod.node:
                memory.gone.add(wanted.pod_uid)
            self._refuse(wanted, pod.node, usable, memory)
            return
        if stored is not None:
            await self._delete(stored)
        try:
            created = await self.api.apply_pod_device(wanted, None)
        except NotFound:
            # its namespace is being deleted, and the pod with it
            memory.gone.add(wanted.pod_uid)
            return
        self.cache.pod_devices.put(created)
        self._announce(wanted, memory)

    def _refuse(
        self, wanted: DesiredPodDevice, runs_on: str, usable: list[NodeDeviceRecord], memory: PodDeviceMemory
    ) -> None:
        if wanted.pod_uid in memory.refused:
            return
        memory.refused.add(wanted.pod_uid)
        where = f"runs on {runs_on}" if runs_on else "is not bound to a node"
        pod = f"{wanted.namespace}/{wanted.name}"
        node = wanted.content.node
        log.warning("allocation refused", extra={"node": node, "pod": pod, "runs_on": runs_on})
        message = f"pod {pod} ({wanted.pod_uid}) {where}, not on {node}: the allocation is ignored"
        for record in usable:
            if any(allocation.pod_uid == wanted.pod_uid for allocation in record.allocations):
                about = about_node_device(record)
                self.recorder.post(Event(about, WARNING, EventReason.ALLOCATION_REFUSED, message, is_ongoing=True))

    def _announce(self, wanted: DesiredPodDevice, memory: PodDeviceMemory) -> None:
        """Reports the pod's allocation in an Event on the pod, once for each resource."""
        new = [resource for resource, _ in wanted.held if (wanted.pod_uid, resource) not in memory.announced]
        if not new:
            return
        memory.announced |= {(wanted.pod_uid, resource) for resource in new}
        about = about_pod(wanted.namespace, wanted.name, wanted.pod_uid, wanted.content.node)
        message = pod_devices.sentence(wanted, new)
        self.recorder.post(Event(about, NORMAL, EventReason.DEVICES_ALLOCATED, message))

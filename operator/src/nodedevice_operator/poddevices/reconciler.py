"""Makes, mends and deletes the PodDevices of one node, as core.pod_devices plans it.

A pod is read once, before its PodDevice is made: it must be that pod, on that node. Pods are never listed or watched.
"""

import logging
from collections.abc import Awaitable
from dataclasses import dataclass, field

from nodedevice_operator.capacity.desired import Want, want
from nodedevice_operator.errors import ApiError, Conflict, NotFound
from nodedevice_operator.events.recorder import Recorder
from nodedevice_operator.events.transitions import NORMAL, WARNING, Event, EventReason, about_node_device, about_pod
from nodedevice_operator.informers.store import Cache
from nodedevice_operator.objects.nodedevice import NodeDeviceRecord, is_real
from nodedevice_operator.objects.poddevice import PodDeviceRecord
from nodedevice_operator.poddevices import plan as pod_devices
from nodedevice_operator.poddevices.api import PodDevicesApi
from nodedevice_operator.poddevices.plan import Wanted

log = logging.getLogger(__name__)


@dataclass(slots=True)
class PodHistory:
    """What was found out and told about the pods of one node.

    hopeless: pod UIDs that get no PodDevice, as they are gone or run elsewhere. refused: pod UIDs whose allocation is not
    believed, and was told to be so. announced: what pods were told they hold.
    """

    has_looked: bool = False
    hopeless: set[str] = field(default_factory=set)
    refused: set[str] = field(default_factory=set)
    announced: set[tuple[str, str]] = field(default_factory=set)


class PodDeviceWork:
    """PodDevices of one node at a time."""

    def __init__(self, cache: Cache, api: PodDevicesApi, recorder: Recorder) -> None:
        self._cache = cache
        self._api = api
        self._recorder = recorder

    async def look(self, node: str, history: PodHistory) -> None:
        """Bring the PodDevices of that node to what its NodeDevices say. Raises ApiError."""
        usable, may_delete = self._believed(node)
        wants = pod_devices.wanted(node, usable)
        self._prepare(wants, history)
        store = self._cache.pod_devices
        plan = pod_devices.plan(wants, store.by_key(), store.of_node(node), may_delete=may_delete)
        steps = [
            *(self._delete(record) for record in plan.delete),
            *(self._update(wanted, there, history) for wanted, there in plan.update),
            *(
                self._create(wanted, replaced, usable, history)
                for wanted, replaced in plan.create
                if wanted.pod_uid not in history.hopeless
            ),
        ]
        failures = [failure for step in steps if (failure := await _attempt(step))]
        history.has_looked = True
        if failures:
            # each pod was tried: one that is refused does not hold up its neighbours
            raise failures[0]

    def _believed(self, node: str) -> tuple[list[NodeDeviceRecord], bool]:
        """NodeDevices of that node that speak of it as it is now, and whether all do: only then is silence an answer."""
        records = [record for record in self._cache.node_devices.of_node(node) if is_real(record)]
        there = self._cache.nodes.get(node)
        if there is None:
            return [], not records
        usable = [record for record in records if want(there, record) is not Want.HOLD]
        is_whole = len(usable) == len(records)
        return usable, is_whole

    def _prepare(self, wants: tuple[Wanted, ...], history: PodHistory) -> None:
        """Forget pods that hold nothing any more; at the first look, take what has a PodDevice for told."""
        uids = {wanted.pod_uid for wanted in wants}
        history.hopeless &= uids
        history.refused &= uids
        history.announced = {told for told in history.announced if told[0] in uids}
        if history.has_looked:
            return
        for wanted in wants:
            there = self._cache.pod_devices.get(wanted.key)
            if there is not None and there.pod_uid == wanted.pod_uid:
                history.announced |= {(wanted.pod_uid, resource) for resource, _ in wanted.held}

    async def _delete(self, record: PodDeviceRecord) -> None:
        try:
            await self._api.delete_pod_device(record)
        except (NotFound, Conflict):
            log.debug("PodDevice was gone already", extra={"namespace": record.namespace, "pod": record.name})
        self._cache.pod_devices.remove(record.key, record.uid)

    async def _update(self, wanted: Wanted, there: PodDeviceRecord, history: PodHistory) -> None:
        try:
            self._cache.pod_devices.put(await self._api.apply_pod_device(wanted, there.uid))
        except Conflict:
            # deleted a moment ago; whether the pod is gone too is found out before it is made again
            self._cache.pod_devices.remove(there.key, there.uid)
            raise
        self._announce(wanted, history)

    async def _create(
        self, wanted: Wanted, there: PodDeviceRecord | None, usable: list[NodeDeviceRecord], history: PodHistory
    ) -> None:
        try:
            pod = await self._api.read_pod(wanted.namespace, wanted.name)
        except NotFound:
            history.hopeless.add(wanted.pod_uid)
            return
        if pod.uid != wanted.pod_uid:
            # that pod is gone, and another has its name
            history.hopeless.add(wanted.pod_uid)
            return
        if pod.node != wanted.content.node:
            if pod.node:
                history.hopeless.add(wanted.pod_uid)
            self._refuse(wanted, pod.node, usable, history)
            return
        if there is not None:
            await self._delete(there)
        try:
            made = await self._api.apply_pod_device(wanted, None)
        except NotFound:
            # its namespace is going away, and the pod with it
            history.hopeless.add(wanted.pod_uid)
            return
        self._cache.pod_devices.put(made)
        self._announce(wanted, history)

    def _refuse(self, wanted: Wanted, runs_on: str, usable: list[NodeDeviceRecord], history: PodHistory) -> None:
        if wanted.pod_uid in history.refused:
            return
        history.refused.add(wanted.pod_uid)
        where = f"runs on {runs_on}" if runs_on else "is not bound to a node"
        pod = f"{wanted.namespace}/{wanted.name}"
        log.warning("allocation refused", extra={"node": wanted.content.node, "pod": pod, "runs_on": runs_on})
        message = f"pod {pod} ({wanted.pod_uid}) {where}, not on {wanted.content.node}: this allocation is not believed"
        for record in usable:
            if any(allocation.pod_uid == wanted.pod_uid for allocation in record.allocations):
                about = about_node_device(record)
                self._recorder.post(Event(about, WARNING, EventReason.ALLOCATION_REFUSED, message, is_standing=True))

    def _announce(self, wanted: Wanted, history: PodHistory) -> None:
        """Tell the pod what it was given, each resource once."""
        news = [resource for resource, _ in wanted.held if (wanted.pod_uid, resource) not in history.announced]
        if not news:
            return
        history.announced |= {(wanted.pod_uid, resource) for resource in news}
        about = about_pod(wanted.namespace, wanted.name, wanted.pod_uid)
        message = pod_devices.sentence(wanted, news)
        self._recorder.post(Event(about, NORMAL, EventReason.DEVICES_ALLOCATED, message))


async def _attempt(step: Awaitable[None]) -> ApiError | None:
    try:
        await step
    except ApiError as error:
        return error
    return None

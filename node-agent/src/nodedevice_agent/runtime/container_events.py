"""Derives from the runtime's container events which devices are in use and which containers lack their devices.

Source: containerd NRI: the runtime reports the end of a failed creation, once or more. Kubelet device manager: it calls
PreStartContainer before every start.
"""

from collections.abc import Iterable, Iterator

from msgspec.structs import replace
from nodedevice_api.names import DELIVERY_KUBELET

from nodedevice_agent.devicemanager.container_edits import without
from nodedevice_agent.devicemanager.manager import DeviceManager
from nodedevice_agent.devicemanager.pods import NO_SETTINGS
from nodedevice_agent.devicemanager.records.allocations import Allocation
from nodedevice_agent.devicemanager.runtime import (
    ContainerInstance,
    ContainerState,
    RunningContainer,
    RuntimeDevice,
    Sandbox,
)
from nodedevice_agent.devicemanager.static_pods import StaticPod, is_config_hash
from nodedevice_agent.runtime.injection import Grant, fingerprints, marks_of, shows_edits

# How long a container without a process may still start after the end of its pod: the kubelet's runtimeRequestTimeout, because its
# call may be in progress unseen. A runtime that was killed while it started a container keeps reporting Created. It reports the end
# when the kubelet removes the container, a minute later; a kubelet that is down does not remove it.
CREATED_SECONDS = 120.0
# How long a container that the runtime does not list holds its devices after the end of its pod. A process that hangs in the kernel
# may live for days. But a container that ended and was removed while the agent was disconnected must not hold devices forever.
UNLISTED_SECONDS = 3600.0


class ContainerEvents:
    def __init__(self, manager: DeviceManager) -> None:
        self._manager = manager
        self._containers, self._book = manager.containers, manager.book
        self._is_first = True

    def sandbox_shown(self, sandbox: Sandbox, now: float) -> None:
        """A container is created in the sandbox, which proves that a static pod runs, if it belongs to one."""
        for found in _static_pods([sandbox]):
            self._manager.pod_events.static_pod_shown(found, now)

    def creating(self, pod_uid: str, container: str) -> None:
        """Treat doubtful earlier instances as ended: the kubelet creates a container only after these have ended, and never
        starts one that it created before. After a power cut the runtime may list such a one as Created.
        """
        for earlier in self._containers.instances(pod_uid, container):
            if earlier.is_doubtful:
                self.ended(pod_uid, earlier.id)

    def created(self, sandbox: Sandbox, container: RunningContainer, grant: Grant) -> None:
        """The container may be created with these devices: from now on it may have a process."""
        for earlier in self._containers.instances(sandbox.uid, container.name):
            # the kubelet never starts an earlier instance that it has abandoned. Not every runtime reports its end:
            # CRI-O does not if it could not create the injected files
            if not earlier.is_begun:
                self._containers.ended(sandbox.uid, earlier.id)
                self._publish(earlier)
                self._files_changed(sandbox.uid, earlier.devices, ())
        marks = fingerprints(grant.version.allocations)
        self._containers.put(
            ContainerInstance(container.id, sandbox.id, sandbox.uid, container.name, marks, is_begun=False)
        )
        calls = self._manager.pre_starts
        if calls.required or calls.undecided or calls.in_flight:
            for a in self._book.sharers(sandbox.uid, container.name):
                # the devices are in use: calls that are still due for them must not be made
                calls.cancel(a.key)

    def adjusted(self, sandbox: Sandbox, container_id: str, devices: tuple[RuntimeDevice, ...]) -> None:
        """Store the device files of a container that is being created."""
        known = self._containers.find(sandbox.uid, container_id)
        if known is not None:
            self._containers.put(replace(known, devices=devices))
            self._files_changed(sandbox.uid, known.devices, devices)

    def started(self, sandbox: Sandbox, container: RunningContainer) -> None:
        """The container has a process. This is the first event of a container without devices from the agent."""
        if self._requests_nothing(sandbox.uid):
            return
        known = self._containers.find(sandbox.uid, container.id)
        if known is not None:
            running = replace(
                known, without_process_since=None, unlisted_since=None, devices=container.devices, is_begun=True
            )
            self._containers.put(running)
            if known.is_doubtful:
                self._publish(known)
                self._save(known)
            self._files_changed(sandbox.uid, known.devices, running.devices)
            return
        new = _instance(sandbox.uid, container)
        self._containers.put(new)
        self._publish(new)
        self._files_changed(sandbox.uid, (), new.devices)

    def ended(self, pod_uid: str, container_id: str) -> None:
        """The container's process has ended, or never started. pod_uid: "" if its sandbox has been removed."""
        gone = self._containers.ended(pod_uid, container_id)
        if gone is not None:
            self._after_end(gone)
            self._files_changed(gone.pod_uid, gone.devices, ())
            self._save(gone)

    def sandbox_removed(self, sandbox: Sandbox) -> None:
        """The runtime has removed one of the pod's sandboxes: a pod may have more than one."""
        for instance in self._containers.of_pod(sandbox.uid):
            if instance.sandbox_id == sandbox.id:
                self.ended(sandbox.uid, instance.id)
        self._manager.pod_events.static_pod_removed(sandbox.uid)

    def synchronized(self, sandboxes: Iterable[Sandbox], containers: Iterable[RunningContainer], now: float) -> None:
        """Apply the runtime's list. A missing container may still be running, see UNLISTED_SECONDS."""
        sandboxes = tuple(sandboxes)
        self._manager.pod_events.static_pods_listed(_static_pods(sandboxes), now)
        known = {instance.id: instance for instance in self._containers}
        pod_uids = {sandbox.id: sandbox.uid for sandbox in sandboxes}
        alive: list[ContainerInstance] = []
        # new, running instances: the kubelet creates an instance only after the previous one has ended
        successors: set[tuple[str, str]] = set()
        for found in containers:
            before = known.pop(found.id, None)
            # a running container may be listed without its sandbox
            pod_uid = pod_uids.get(found.sandbox_id) or found.pod_uid or (before.pod_uid if before is not None else "")
            if pod_uid and found.state is not ContainerState.STOPPED:
                alive.append(_with_known_marks(_instance(pod_uid, found, now), before))
                if before is None and not alive[-1].is_doubtful:
                    successors.add((pod_uid, found.name))
        for a in known.values():
            if (a.pod_uid, a.container) not in successors:
                alive.append(a if a.unlisted_since is not None else replace(a, unlisted_since=now))
        unlisted = self._containers.unlisted()
        gone = self._containers.synchronized(a for a in alive if not self._requests_nothing(a.pod_uid))
        if self._containers.unlisted() != unlisted:
            self._manager.save()
        for instance in gone:
            self._after_end(instance)
        for pod_uid in sorted(self._book.by_pod):
            self._settle(pod_uid)
        for pod_uid in sorted({uid for r in self._manager.resources.values() for uid in r.use.possible_holders}):
            self._manager.pod_events.possible_holder_ended(pod_uid)
        self._is_first = False
        if any(instance.devices for instance in (*gone, *self._containers)):
            self._manager.containers_changed()
        self._manager.publish(self._manager.resources)

    def next_deadline(self) -> float | None:
        """When overdue() may return more, in monotonic seconds. May change with any event of containers or pods."""
        return min((at for _, at in self._doubtful()), default=None)

    def overdue(self, now: float) -> tuple[ContainerInstance, ...]:
        """Return containers of ended pods that had no process or were not listed, and count as ended after their deadline."""
        return tuple(instance for instance, at in self._doubtful() if at <= now)

    def not_injected(self, pod_uid: str, container: str, resource_name: str) -> bool:
        """Whether a container runs without this resource that it requested, or with other devices than it was allocated."""
        if self._may_hold(pod_uid, resource_name):
            return False
        instances = [a for a in self._containers.instances(pod_uid, container) if a.unlisted_since is None]
        allocation = self._book.of(pod_uid, container, resource_name) if instances else None
        return any(self._lacks(instance, resource_name, allocation) for instance in instances)

    def using_released(self, resource_name: str) -> tuple[ContainerInstance, ...]:
        """Return containers that use released devices, which another pod may have by now.

        A runtime may start a container that had apparently ended, or the API lacked a pod when a lost checkpoint was rebuilt.
        """
        if self._manager.is_recovering:
            return ()
        marked = (a for a in self._containers if resource_name in a.fingerprints and not a.is_doubtful)
        unknown = (a for a in marked if self._book.of(a.pod_uid, a.container, resource_name) is None)
        return tuple(a for a in unknown if not self._may_hold(a.pod_uid, resource_name))

    def _doubtful(self) -> Iterator[tuple[ContainerInstance, float]]:
        """Yield doubtful containers of ended pods, and when they count as ended. In other pods the kubelet may still start them."""
        for a in self._containers.doubtful.values() if self._containers.is_synchronized else ():
            over_since = self._book.releasing.get(a.pod_uid)
            if a.unlisted_since is not None and not self._is_known(a.pod_uid):
                yield a, a.unlisted_since + UNLISTED_SECONDS
            elif a.unlisted_since is not None and over_since is not None:
                yield a, max(a.unlisted_since, over_since) + UNLISTED_SECONDS
            elif a.without_process_since is not None and over_since is not None:
                yield a, max(a.without_process_since, over_since) + CREATED_SECONDS

    def _may_hold(self, pod_uid: str, resource_name: str) -> bool:
        resource = self._manager.resources.get(resource_name)
        return resource is not None and pod_uid in resource.use.possible_holders

    def _is_known(self, pod_uid: str) -> bool:
        return self._manager.pod(pod_uid) is not None or pod_uid in self._book.by_pod

    def _lacks(self, instance: ContainerInstance, resource_name: str, allocation: Allocation | None) -> bool:
        mark = instance.fingerprints.get(resource_name)
        if mark is None and instance.reported is None and allocation and allocation.delivery == DELIVERY_KUBELET:
            # the agent injected the container's other devices
            return False
        if mark is not None or allocation is None or instance.reported is None:
            return allocation is None or mark != fingerprints([allocation])[resource_name]
        if allocation.response is None:
            # the devices cannot be recognized until the plugin has responded again
            return False
        if allocation.edits is None:
            return True
        pod = self._manager.pod(instance.pod_uid)
        own = pod.container_settings(instance.container) if pod is not None else NO_SETTINGS
        left, omitted = without(allocation.edits, own.envs, own.paths)
        if not own.is_whole or (omitted and left.is_empty):
            # the container's own settings are unknown, or replace the whole response
            return False
        return not shows_edits(instance.reported, left)

    def _requests_nothing(self, pod_uid: str) -> bool:
        """Whether a pod is known to request no devices, like most pods. Nothing is stored for these."""
        pod = self._manager.pod(pod_uid)
        return pod is not None and not pod.device_requests and pod_uid not in self._book.by_pod

    def _after_end(self, gone: ContainerInstance) -> None:
        self._publish(gone)
        if self._book.of_container(gone.pod_uid, gone.container):
            if gone.pod_uid in self._book.releasing:
                self._settle(gone.pod_uid)
            else:
                self._require_pre_starts(gone.pod_uid, gone.container)
        self._manager.pod_events.possible_holder_ended(gone.pod_uid)

    def _files_changed(
        self, pod_uid: str, before: tuple[RuntimeDevice, ...], devices: tuple[RuntimeDevice, ...]
    ) -> None:
        """The container's device files have changed: other resources must not allocate the devices that it can open."""
        if devices != before:
            self._manager.containers_changed(pod_uid)

    def _settle(self, pod_uid: str) -> None:
        """Release the devices of an ended pod without a process; after a restart, prepare the unused devices of other pods."""
        holding = sorted({allocation.container for allocation in self._book.of_pod(pod_uid)})
        if pod_uid in self._book.releasing:
            if self._containers.have_ended(pod_uid, holding):
                self._manager.releasing.containers_ended(pod_uid)
            return
        for container in holding if self._is_first else ():
            # the container may have run since its last PreStartContainer
            self._require_pre_starts(pod_uid, container)

    def _require_pre_starts(self, pod_uid: str, container: str) -> None:
        """After the end of a container with devices, require PreStartContainer for their next users, while none of them runs.

        The next user is the container itself, or one that shares a device with it, such as the successor of an init container.
        """
        sharers = self._book.sharers(pod_uid, container)
        is_in_use = any(self._containers.instances(pod_uid, a.container) for a in sharers)
        if not is_in_use and pod_uid not in self._book.releasing:
            self._manager.pre_starts.require_if_supported(a.key for a in sharers)

    def _publish(self, instance: ContainerInstance) -> None:
        """Publish the resources whose status may change with this container's start or end."""
        pod = self._manager.pod(instance.pod_uid)
        names = {a.resource_name for a in self._book.of_pod(instance.pod_uid)} | instance.fingerprints.keys()
        names |= {request.resource_name for request in pod.device_requests} if pod is not None else set()
        self._manager.publish(names)

    def _save(self, instance: ContainerInstance) -> None:
        """Save after a change of an unlisted instance, which is part of the checkpoint."""
        if instance.unlisted_since is not None:
            self._manager.save()


def _static_pods(sandboxes: Iterable[Sandbox]) -> list[StaticPod]:
    return [StaticPod(s.uid, s.namespace, s.name) for s in sandboxes if is_config_hash(s.uid)]


def _with_known_marks(found: ContainerInstance, before: ContainerInstance | None) -> ContainerInstance:
    """Keep the marks of a container that this agent saw created: a runtime may not list the annotation."""
    if before is None or not before.fingerprints:
        return found
    return replace(found, fingerprints=before.fingerprints, reported=None, devices=before.devices)


def _instance(pod_uid: str, container: RunningContainer, listed_at: float | None = None) -> ContainerInstance:
    """Convert the runtime's record of a container. listed_at: None if it has just started."""
    marks = marks_of(container)
    since = listed_at if container.state is ContainerState.CREATED and container.pid == 0 else None
    return ContainerInstance(
        container.id,
        container.sandbox_id,
        pod_uid,
        container.name,
        marks,
        None if marks else container.shown,
        since,
        devices=container.devices if marks else (),
    )

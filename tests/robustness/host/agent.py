"""The agent's device manager with its built-in generic plugins, as PluginHost, NriBackend and Agent wire them, in one thread.

Lists, calls and answers pass through the messages of the device plugin API; the checkpoint through its file. No socket, no server
and no clock: `now` is set by the steps. A call is answered at once.
"""

from collections import deque
from collections.abc import Collection, Coroutine, Mapping
from pathlib import Path
from typing import Any, NoReturn, TypeVar, cast

from msgspec import structs
from nodedevice_agent.checkpoint import files
from nodedevice_agent.checkpoint.format import encode
from nodedevice_agent.configs.effective import Effective
from nodedevice_agent.devicemanager.allocation.responses_after_boot import after_boot
from nodedevice_agent.devicemanager.effects import CallAllocate, CallPreferred, CallPreStart, SaveCheckpoint
from nodedevice_agent.devicemanager.manager import DeviceManager
from nodedevice_agent.devicemanager.other_holders import Holder
from nodedevice_agent.devicemanager.records.allocations import AllocationKey
from nodedevice_agent.devicemanager.records.checkpoint import Checkpoint
from nodedevice_agent.devicemanager.resources.connections import PluginOptions
from nodedevice_agent.devicemanager.resources.devices import NO_DEVICES, ListedDevices
from nodedevice_agent.devicemanager.resources.presence import EndpointState
from nodedevice_agent.devicemanager.runtime import RunningContainer, Sandbox
from nodedevice_agent.deviceplugin import codec
from nodedevice_agent.lib.deviceplugin_server.server import DevicePluginService, list_to_wire
from nodedevice_agent.lib.filesystem import boot_id
from nodedevice_agent.plugins.contract import SCOPE
from nodedevice_agent.plugins.generic.settings import GenericSettings
from nodedevice_agent.plugins.generic.source import GenericSource
from nodedevice_agent.plugins.settings import PluginSettings
from nodedevice_agent.runtime.container_events import ContainerEvents
from nodedevice_agent.runtime.creation_hooks import CreationHooks
from nodedevice_agent.runtime.injection import Grant, Injection, Refusal
from nodedevice_api.upstream.kubelet.deviceplugin.v1beta1 import api_pb2

_T = TypeVar("_T")


class CallFailed(Exception):
    """The plugin has refused a call, or is not connected."""


class BuiltInPlugin:
    """A resource of the configuration that is served. endpoint: of its connection."""

    def __init__(self, settings: GenericSettings, root: str, endpoint: int) -> None:
        # it follows changes in run() alone, which is not called here
        self.source = GenericSource(settings, root, cast(Any, None))
        self.settings = settings
        self.endpoint = endpoint
        self.sent: tuple[object, ...] = ()
        self.listed: ListedDevices = NO_DEVICES
        self._service = DevicePluginService(self.source)

    def allocate(self, request: api_pb2.AllocateRequest) -> api_pb2.AllocateResponse:
        """Raises CallFailed."""
        return _result(self._service.Allocate(request, cast(Any, _Context())))


class ForeignPlugin:
    """Somebody else's, that gives a file of the host for each of its devices. paths: by device ID."""

    def __init__(self, paths: Mapping[str, str], endpoint: int) -> None:
        self.paths = paths
        self.endpoint = endpoint

    def allocate(self, request: api_pb2.AllocateRequest) -> api_pb2.AllocateResponse:
        paths = [self.paths[device_id] for device_id in request.container_requests[0].devices_ids]
        specs = [api_pb2.DeviceSpec(container_path=path, host_path=path, permissions="rw") for path in paths]
        return api_pb2.AllocateResponse(container_responses=[api_pb2.ContainerAllocateResponse(devices=specs)])


class Agent:
    """One process of it. plugins, foreign: those that are connected, by resource name."""

    def __init__(self, root: Path, settings: PluginSettings, now: float) -> None:
        """Starts from the checkpoint in the host's tree."""
        self._root = str(root)
        self.now = now
        self.plugins: dict[str, BuiltInPlugin] = {}
        self.foreign: dict[str, ForeignPlugin] = {}
        self._endpoints = 0
        self.settings = PluginSettings()
        self._state_dir = root / "state"
        checkpoint, _ = files.restore(self._state_dir)
        if checkpoint is not None and checkpoint.boot_id != boot_id():
            checkpoint = after_boot(checkpoint, settings.may_serve)
        self.manager = DeviceManager(
            now,
            codec.with_edits(checkpoint or Checkpoint()),
            waits_for_cordons=True,
            waits_for_runtime=True,
        )
        self.events = ContainerEvents(self.manager)
        self.injection = Injection(self.manager, CreationHooks(self.manager))
        self.is_saved = checkpoint is not None
        # of the allocations that are on disk
        self.saved_keys: frozenset[AllocationKey] = (
            frozenset(a.key for a in checkpoint.allocations) if checkpoint else frozenset()
        )

    # -- effects --------------------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """After each event: carry out what follows."""
        queue = deque(self.manager.settle(self.now))
        while queue:
            effect = queue.popleft()
            match effect:
                case SaveCheckpoint():
                    self.is_saved = False
                case CallPreferred():
                    self.manager.preferred(effect.ticket, (), self.now)
                case CallAllocate():
                    self._allocate(effect)
                case CallPreStart():
                    self.manager.pre_started(effect.ticket)
            queue += self.manager.settle(self.now)

    def save(self) -> None:
        """The checkpoint is on disk."""
        if not self.is_saved:
            checkpoint = structs.replace(self.manager.checkpoint(), boot_id=boot_id())
            text = encode(checkpoint)
            self.saved_keys = frozenset(a.key for a in checkpoint.allocations)
            (self._state_dir / files.FILE_NAME).write_text(text, encoding="utf-8")
            self.is_saved = True

    def _allocate(self, call: CallAllocate) -> None:
        asked = api_pb2.ContainerAllocateRequest(devices_ids=call.device_ids)
        details = codec.allocate_details(call, self.manager.pod(call.pod_uid))
        asked.MergeFromString(details.SerializeToString(deterministic=True))
        plugin = self.plugins.get(call.resource_name) or self.foreign.get(call.resource_name)
        try:
            if plugin is None or plugin.endpoint != call.endpoint:
                raise CallFailed("it is no longer connected")
            answer = plugin.allocate(api_pb2.AllocateRequest(container_requests=[asked]))
        except CallFailed as error:
            self.manager.allocate_failed(call.ticket, str(error), self.now)
            return
        response = codec.allocate_response(answer.container_responses[0])
        self.manager.allocated(call.ticket, response, self.now)

    # -- plugins ----------------------------------------------------------------------------------------------------------

    def apply(self, settings: PluginSettings) -> None:
        """From now on these resources, as PluginRunner goes from one configuration to the next."""
        self.settings = settings
        wanted = {each.resource_name: each for each in settings.generic}
        found = Effective(settings, ranks={name: rank for rank, name in enumerate(wanted)})
        self.manager.table.ranked(found.ranks, list(wanted), self.now)
        self.manager.table.configured(found.names, self.now)
        self.settle()
        for name, plugin in list(self.plugins.items()):
            if name not in wanted:
                self.stop(name)
            elif wanted[name] != plugin.settings:
                plugin.settings = wanted[name]
                plugin.source.reconfigure(plugin.settings)

    def start(self, name: str) -> None:
        """A configured resource is served from now on; the plugin was killed, or is new."""
        for each in self.settings.generic:
            if each.resource_name == name and name not in self.plugins:
                self._endpoints += 1
                self.plugins[name] = BuiltInPlugin(each, self._root, self._endpoints)
                self.plugins[name].source.refresh()
                options = PluginOptions(scope=f"{SCOPE} {name}")
                self.manager.connected(name, self._endpoints, options, self.now, _socket(name))
                self.settle()

    def stop(self, name: str) -> None:
        """Its stream ends."""
        plugin = self.plugins.pop(name)
        self.manager.table.disconnected(name, plugin.endpoint, self.now)
        self.settle()

    def start_foreign(self, name: str, paths: Mapping[str, str]) -> None:
        self._endpoints += 1
        self.foreign[name] = ForeignPlugin(paths, self._endpoints)
        self.manager.connected(name, self._endpoints, PluginOptions(), self.now, _socket(name))
        self.settle()
        wire = api_pb2.ListAndWatchResponse(devices=[api_pb2.Device(ID=i, health=codec.HEALTHY) for i in paths])
        self.manager.listed(name, self._endpoints, codec.device_list(wire.SerializeToString()), self.now)
        self.settle()

    def stop_foreign(self, name: str) -> None:
        self.manager.table.disconnected(name, self.foreign.pop(name).endpoint, self.now)
        self.settle()

    def refresh(self, name: str, *, reads: bool) -> None:
        """The plugin sends its list, if it is another one. reads: the host may have changed."""
        plugin = self.plugins[name]
        if reads:
            plugin.source.refresh()
        found = plugin.source.devices
        current = found.marked(), found.trouble
        if current != plugin.sent:
            plugin.sent = current
            octets = list_to_wire(found.marked(), *found.trouble, found.part_rules, found.parents).SerializeToString()
            plugin.listed = codec.device_list(octets, plugin.listed, is_built_in=True)
            self.manager.listed(name, plugin.endpoint, plugin.listed, self.now)
            self.settle()

    def tick(self, until: float) -> None:
        """Time passes."""
        while (deadline := self.manager.next_deadline()) is not None and deadline <= until:
            self.now = max(self.now, deadline)
            self.manager.tick(self.now)
            self.settle()
        self.now = max(self.now, until)
        for name, resource in list(self.manager.resources.items()):
            if resource.presence.state is EndpointState.GONE:
                self.manager.forget(name)

    # -- containers -------------------------------------------------------------------------------------------------------

    def decide(self, sandbox: Sandbox, container: str) -> Grant | Refusal | None:
        """As when the runtime asks for a container's devices. A grant is on disk."""
        self.events.sandbox_shown(sandbox, self.now)
        if self.manager.containers.doubtful:
            self.events.creating(sandbox.uid, container)
        self.settle()
        decision = self.injection.decide(sandbox, container)
        if isinstance(decision, Grant):
            self.save()
        elif isinstance(decision, Refusal) and self.manager.book.unanswered:
            self.manager.allocate_once.creation_refused(sandbox.uid, container)
            self.settle()
        return decision

    def created(
        self, sandbox: Sandbox, container: RunningContainer, grant: Grant, numbers: Collection[str] | None
    ) -> str:
        """The runtime creates and starts it. numbers: of its device files; None where one is not there. Returns why not."""
        self.events.created(sandbox, container, grant)
        self.settle()
        other = (
            self.manager.other_holders.of(sandbox.uid, numbers) if numbers is not None else Holder("", "nothing", "")
        )
        if other is not None:
            self.ended(sandbox.uid, container.id)
            return (
                f"{other.device_id} of {other.resource_name}, which {other.pod_uid} holds, or a file that is not there"
            )
        self.events.started(sandbox, container)
        self.settle()
        return ""

    def ended(self, pod_uid: str, container_id: str) -> None:
        self.events.ended(pod_uid, container_id)
        self.settle()


class _Context:
    """Of a call of gRPC."""

    async def abort(self, code: object, details: str) -> NoReturn:
        raise CallFailed(details)


def _result(call: Coroutine[Any, Any, _T]) -> _T:
    """Of a call that waits for nothing."""
    try:
        call.send(None)
    except StopIteration as done:
        return cast(_T, done.value)
    raise AssertionError("the call waits for something")


def _socket(name: str) -> str:
    return f"/plugins/{name}.sock"

"""One connection to a container runtime as its NRI plugin: dials, registers, synchronizes, and handles calls until it ends.

Each call has a timeout: the runtime waits for a plugin for two seconds, and then closes the connection and creates the container
without its device, which must never happen.
Source: containerd/nri pkg/adaptation/plugin.go and plugin_type.go, pkg/stub/stub.go @ v0.12.5.
"""

import asyncio
import inspect
import logging
import re
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from google.protobuf.message import Message
from nodedevice_api.upstream.nri.v1alpha1 import api_pb2

from nodedevice_agent import metrics
from nodedevice_agent.devicemanager.container_edits import ContainerEdits
from nodedevice_agent.devicemanager.expansion import arguments
from nodedevice_agent.devicemanager.runtime import (
    InjectionRefused,
    RunningContainer,
    RuntimeDevice,
    RuntimeHandler,
    Sandbox,
    Validator,
)
from nodedevice_agent.nri import codec, releases
from nodedevice_agent.nri.adjustment import FileRules, adjustment, closed_file, how_to_open
from nodedevice_agent.nri.host_devices import HostDeviceStat
from nodedevice_agent.nri.mux import Mux
from nodedevice_agent.nri.synchronization import MOST_OBJECTS, Synchronization, TooManyObjects
from nodedevice_agent.nri.ttrpc import MAX_MESSAGE_BYTES, CallFailed, Code, Handler, TtrpcClient, TtrpcServer

log = logging.getLogger(__name__)

DIAL_SECONDS = 5.0
# the name in the pod annotation required-plugins.noderesource.dev
NAME = "nodedevice"
# the version whose messages the stubs have
NRI_VERSION = "v0.12.5"
ANSWER_SECONDS = 1.0
# The runtime registers one plugin after the other, each for up to five seconds, and none while it starts a pod.
REGISTER_SECONDS = 30.0
SYNCHRONIZE_SECONDS = 120.0

PLUGIN_STREAM, RUNTIME_STREAM = 1, 2
PLUGIN_SERVICE = "nri.pkg.api.v1alpha1.Plugin"
RUNTIME_SERVICE = "nri.pkg.api.v1alpha1.Runtime"

# Only the events that the agent acts on: each costs a call per container or pod. Not START_CONTAINER, which comes before
# the process, nor STOP_POD_SANDBOX, as every container has an event for its own end.
EVENTS = (
    api_pb2.CREATE_CONTAINER,
    api_pb2.VALIDATE_CONTAINER_ADJUSTMENT,
    api_pb2.POST_START_CONTAINER,
    api_pb2.STOP_CONTAINER,
    api_pb2.REMOVE_CONTAINER,
    api_pb2.REMOVE_POD_SANDBOX,
)
# From NRI 0.12.4 on, a runtime continues without a plugin that did not respond, and skips its validation, unless it asked for this:
# the container would be created without its device. Not keep_connected: a plugin that stays stuck would then fail every container
# of the node, each after the whole timeout.
_FAILURE_POLICY = api_pb2.FailurePolicy(fail_request=True)
# NRI's own plugin; a validation request lists it if it is enabled
DEFAULT_VALIDATOR = "default-validator"
_RUNTIME = "the container runtime"
_CLOSED = f"{_RUNTIME} closed the connection"
# more than there are such containers on most nodes; beyond, a message is logged twice
_MAX_WARNED = 256
# what a person cannot guess from the log of containerd or CRI-O
_WHY_REJECTED = (
    'with "failed to synchronize plugin", four containers of the node exceed the 4 MiB of one message of NRI: make their '
    "environments smaller, such as a large ConfigMap in envFrom"
)
_TURN_VARIABLES = 1024
# releases before 1.0 share one wire format; a runtime built without its dependencies' versions sends one of _NO_VERSION
_KNOWN_VERSION = re.compile(r"v?0\.\d+\..+")
_NO_VERSION = ("", "unknown", "(devel)")

_ContainerEvent = (
    api_pb2.PostStartContainerRequest
    | api_pb2.StopContainerRequest
    | api_pb2.RemoveContainerRequest
    | api_pb2.StateChangeEvent
)


class SessionEnded(Exception):
    """The connection has ended, or could not be made. The text gives the reason and the remedy."""


class Session:
    """Use run() once. index: two digits. validates: whether to subscribe to validation if the release leaves that open."""

    def __init__(
        self, handler: RuntimeHandler, index: str, host_devices: HostDeviceStat, *, validates: bool = True
    ) -> None:
        # set once the runtime has registered the plugin and sent its state: some close the connection in between
        self.synchronized = asyncio.Event()
        # the runtime closed the connection after Configure
        self.is_rejected = False
        self._handler = handler
        self._host_devices = host_devices
        self._index = index
        self._mux = Mux(_RUNTIME)
        self._server = TtrpcServer(partial(self._mux.write, PLUGIN_STREAM), self._methods())
        self._client = TtrpcClient(partial(self._mux.write, RUNTIME_STREAM))
        self._answer_seconds = ANSWER_SECONDS
        self._is_configured = False
        # the peer speaks NRI: it has called, or responded
        self._is_runtime = False
        self._runtime = ("", "")
        self._nri_version = ""
        self._validates = validates
        self._synchronization = Synchronization()
        # its messages are handled in the order in which they came
        self._synchronizing = asyncio.Lock()
        # the last containers (pod UID, name) whose user cannot open a device file
        self._warned: deque[tuple[str, str]] = deque(maxlen=_MAX_WARNED)
        self._ended_ids: deque[str] = deque(maxlen=64)

    async def run(self, socket: Path) -> None:
        """Until the connection ends. Always raises SessionEnded, with nothing left open."""
        self._mux.open(PLUGIN_STREAM, self._server.receive)
        self._mux.open(RUNTIME_STREAM, self._client.receive)
        await _dial(socket, self._mux)
        try:
            async with asyncio.TaskGroup() as tasks:
                registering = tasks.create_task(self._register())
                reason = await self._mux.closed
                registering.cancel()
        finally:
            self._mux.abort("the agent ended the connection")
            self._server.close()
        self.is_rejected = reason == _CLOSED and self._is_configured and not self.synchronized.is_set()
        if self.is_rejected:
            reason = f"{reason} before it sent all its containers; its log has the reason: {_WHY_REJECTED}"
        elif not self._is_runtime:
            reason = f"{reason}; perhaps another program listens on {socket}"
        raise SessionEnded(reason)

    async def _register(self) -> None:
        """Ends the connection if the runtime does not accept the plugin."""
        request = api_pb2.RegisterPluginRequest(plugin_name=NAME, plugin_idx=self._index, NRI_version=NRI_VERSION)
        try:
            await self._client.call(
                RUNTIME_SERVICE, "RegisterPlugin", request.SerializeToString(), timeout_seconds=REGISTER_SECONDS
            )
            async with asyncio.timeout(SYNCHRONIZE_SECONDS):
                await self.synchronized.wait()
        except CallFailed as exc:
            self._is_runtime = self._is_runtime or exc.code != Code.DEADLINE_EXCEEDED
            self._mux.abort(f"the container runtime did not register the plugin {self._index}-{NAME}: {exc}")
        except TimeoutError:
            self._mux.abort(
                f"the container runtime registered the plugin, but did not synchronize it within {SYNCHRONIZE_SECONDS:g} s"
            )

    def _methods(self) -> dict[tuple[str, str], Handler]:
        methods: dict[str, tuple[type[Message] | None, Callable[[Any], Any]]] = {
            "Configure": (api_pb2.ConfigureRequest, self._configure),
            "Synchronize": (None, self._synchronize),
            "Shutdown": (api_pb2.Empty, self._shutdown),
            "CreateContainer": (api_pb2.CreateContainerRequest, self._create_container),
            "ValidateContainerAdjustment": (api_pb2.ValidateContainerAdjustmentRequest, self._validate),
            "PostStartContainer": (api_pb2.PostStartContainerRequest, self._started),
            "StopContainer": (api_pb2.StopContainerRequest, self._ended),
            "RemoveContainer": (api_pb2.RemoveContainerRequest, self._ended),
            "RemovePodSandbox": (api_pb2.RemovePodSandboxRequest, self._sandbox_removed),
            "StateChange": (api_pb2.StateChangeEvent, self._state_change),
            # not subscribed to, and ignored if they come all the same
            "RunPodSandbox": (api_pb2.Empty, lambda request: None),
            "StopPodSandbox": (api_pb2.Empty, lambda request: None),
        }
        return {(PLUGIN_SERVICE, name): _method(name, *method) for name, method in methods.items()}

    def _configure(self, request: api_pb2.ConfigureRequest) -> api_pb2.ConfigureResponse:
        self._is_runtime = True
        version = request.NRI_version
        if version not in _NO_VERSION and not _KNOWN_VERSION.fullmatch(version):
            raise self._ended_by(
                Code.FAILED_PRECONDITION,
                f"{request.runtime_name} {request.runtime_version} uses NRI {version[:64]}, which this agent does not support; "
                f"it supports v0, up to {NRI_VERSION}: update the agent",
            )
        if request.request_timeout > 0:
            self._answer_seconds = min(ANSWER_SECONDS, request.request_timeout / 1000 / 2)
        self._is_configured = True
        self._runtime, self._nri_version = (request.runtime_name, request.runtime_version), version
        can = releases.has_validators(*self._runtime)
        self._validates = self._validates if can is None else can
        # a runtime closes the connection of a plugin that subscribes to an unknown event
        events = (event for event in EVENTS if self._validates or event != api_pb2.VALIDATE_CONTAINER_ADJUSTMENT)
        mask = sum(1 << (event - 1) for event in events)
        return api_pb2.ConfigureResponse(events=mask, failure_policy=_FAILURE_POLICY)

    def _ended_by(self, code: Code, sentence: str) -> CallFailed:
        """End the session after the response, which the runtime logs."""
        asyncio.get_running_loop().call_soon(self._mux.close, sentence)
        return CallFailed(code, sentence)

    async def _synchronize(self, message: bytes) -> api_pb2.SynchronizeResponse:
        async with self._synchronizing:
            try:
                has_more = await self._synchronization.add(message)
            except TooManyObjects as exc:
                raise self._ended_by(
                    Code.RESOURCE_EXHAUSTED,
                    f"the container runtime lists more than {MOST_OBJECTS} pods and containers; remove the "
                    "ended ones (crictl pods --state NotReady, crictl ps --state Exited)",
                ) from exc
            if not has_more:
                found, self._synchronization = self._synchronization, Synchronization()
                self._handler.synchronized(found.sandboxes, found.containers)
                self._accepted()
        return api_pb2.SynchronizeResponse(more=has_more)

    def _accepted(self) -> None:
        """Only after Synchronize: a runtime may still reject a plugin after Configure."""
        if self.synchronized.is_set():
            return
        name, version = self._runtime
        extra = {"runtime": name, "version": version, "nri_version": self._nri_version}
        log.info("container runtime connected", extra=extra)
        metrics.RUNTIME_CONNECTED.set(1)
        self._handler.runtime_connected(name, version, Validator.NOT_SEEN if self._validates else Validator.MISSING)
        self.synchronized.set()

    def _shutdown(self, request: object) -> None:
        asyncio.get_running_loop().call_soon(self._mux.close, "the container runtime is shutting down its plugins")

    async def _create_container(
        self, request: api_pb2.CreateContainerRequest
    ) -> api_pb2.CreateContainerResponse | None:
        sandbox = codec.sandbox_of(request.container, request.pod)
        env = await self._variables(request.container.env)
        container = codec.created_container(request.container, env)
        try:
            async with asyncio.timeout(self._answer_seconds):
                return await self._adjust(sandbox, container, request.container)
        except InjectionRefused as exc:
            log.warning("container refused", extra={**_fields(sandbox, container), "error": str(exc)})
            raise CallFailed(Code.FAILED_PRECONDITION, str(exc)) from exc
        except TimeoutError as exc:
            log.warning("container refused: timeout", extra=_fields(sandbox, container))
            raise CallFailed(
                Code.UNAVAILABLE,
                f"the devices of container {container.name} are not ready after {self._answer_seconds:g} s; "
                "the kubelet will retry",
            ) from exc

    async def _variables(self, env: Sequence[str]) -> tuple[str, ...]:
        """The variables that the handler reads, from an environment of any length."""
        found: list[str] = []
        for start in range(0, len(env), _TURN_VARIABLES):
            if start:
                await asyncio.sleep(0)
            found += filter(self._handler.reads_variable, env[start : start + _TURN_VARIABLES])
        return tuple(found)

    async def _adjust(
        self, sandbox: Sandbox, container: RunningContainer, shown: api_pb2.Container
    ) -> api_pb2.CreateContainerResponse | None:
        edits = await self._handler.create_container(sandbox, container)
        if edits is None:
            return None
        try:
            return await self._adjusted(sandbox, container, edits, shown)
        except BaseException:
            # after any error, including a timeout or a closed connection, the runtime gets no adjustment
            self._handler.creation_refused(sandbox, container)
            raise

    async def _adjusted(
        self, sandbox: Sandbox, container: RunningContainer, edits: ContainerEdits, shown: api_pb2.Container
    ) -> api_pb2.CreateContainerResponse:
        releases.check_cdi(edits, *self._runtime)
        found = await self._host_devices.stat_devices(device.host_path for device in edits.devices)
        settings = await self._handler.creation_settings(sandbox, container)
        # nothing else runs from here to the end
        numbers = {f"{d.type}{d.major}:{d.minor}" for devices in found.values() for d in devices}
        self._handler.check_files(sandbox, container.name, numbers)
        rules = FileRules(settings.owner, has_mode=not releases.is_cri_o(*self._runtime))
        adjust = adjustment(edits, found, rules, shown)
        adjust.args.extend(arguments(shown.args, edits.envs, settings.references))
        if adjust.args:
            releases.check_command(container.name, shown.args, edits.envs, *self._runtime)
        self._warn_of_closed_files(sandbox, container, closed_file(adjust, shown.user))
        response = api_pb2.CreateContainerResponse(adjust=adjust)
        if (size := response.ByteSize()) > MAX_MESSAGE_BYTES:
            raise InjectionRefused(
                f"container {container.name} would get {size} bytes of settings, which exceeds the limit of {MAX_MESSAGE_BYTES}; "
                "fix the device plugins, or request fewer devices in one container"
            )
        given = (RuntimeDevice(file.path, file.type, file.major, file.minor) for file in adjust.linux.devices)
        self._handler.creation_adjusted(sandbox, container, (*container.devices, *given))
        return response

    def _warn_of_closed_files(
        self, sandbox: Sandbox, container: RunningContainer, file: api_pb2.LinuxDevice | None
    ) -> None:
        """Once for each container of a pod, however often it is created."""
        key = sandbox.uid, container.name
        if file is not None and key not in self._warned:
            self._warned.append(key)
            extra = {**_fields(sandbox, container), "path": file.path, "remedy": how_to_open(file)}
            log.warning("user of a container cannot open its device file", extra=extra)

    def _validate(
        self, request: api_pb2.ValidateContainerAdjustmentRequest
    ) -> api_pb2.ValidateContainerAdjustmentResponse | None:
        is_on = any(plugin.name == DEFAULT_VALIDATOR for plugin in request.plugins)
        self._handler.validator_seen(Validator.ON if is_on else Validator.OFF)
        sandbox, container = codec.sandbox_of(request.container, request.pod), codec.container(request.container)
        try:
            self._handler.validate(sandbox, container)
        except InjectionRefused as exc:
            log.warning("container refused", extra={**_fields(sandbox, container), "error": str(exc)})
            return api_pb2.ValidateContainerAdjustmentResponse(reject=True, reason=str(exc))
        return None

    def _state_change(self, event: api_pb2.StateChangeEvent) -> None:
        """Older runtimes send most events this way."""
        match event.event:
            case api_pb2.POST_START_CONTAINER:
                self._started(event)
            case api_pb2.STOP_CONTAINER | api_pb2.REMOVE_CONTAINER:
                self._ended(event)
            case api_pb2.REMOVE_POD_SANDBOX:
                self._sandbox_removed(event)

    def _started(self, event: _ContainerEvent) -> None:
        """The start event of a short-lived container may come after its end, and a container starts only once."""
        if event.container.id not in self._ended_ids:
            self._handler.container_started(codec.sandbox(event.pod), codec.shown_container(event.container))

    def _ended(self, event: _ContainerEvent) -> None:
        self._ended_ids.append(event.container.id)
        self._handler.container_ended(codec.sandbox(event.pod), codec.container(event.container))

    def _sandbox_removed(self, event: api_pb2.RemovePodSandboxRequest | api_pb2.StateChangeEvent) -> None:
        self._handler.sandbox_removed(codec.sandbox(event.pod))


def _method(name: str, kind: type[Message] | None, handle: Callable[[Any], Any]) -> Handler:
    """Decodes the request, if it has a kind, and encodes the response. A method's metric series begins with its first call."""

    def decoded(payload: bytes) -> Message | bytes:
        return payload if kind is None else kind.FromString(payload)

    async def method_coroutine(payload: bytes) -> bytes:
        with metrics.NRI_SECONDS.labels(name).time():
            return _encoded(await handle(decoded(payload)))

    def method(payload: bytes) -> bytes:
        with metrics.NRI_SECONDS.labels(name).time():
            return _encoded(handle(decoded(payload)))

    return method_coroutine if inspect.iscoroutinefunction(handle) else method


def _encoded(response: Message | None) -> bytes:
    return b"" if response is None else response.SerializeToString()


def _fields(sandbox: Sandbox, container: RunningContainer) -> dict[str, str]:
    return {"pod": f"{sandbox.namespace}/{sandbox.name}", "pod_uid": sandbox.uid, "container": container.name}


async def _dial(socket: Path, protocol: asyncio.Protocol) -> None:
    """Connect the protocol. Raises SessionEnded."""
    try:
        async with asyncio.timeout(DIAL_SECONDS):
            await asyncio.get_running_loop().create_unix_connection(lambda: protocol, str(socket))
    except OSError as exc:
        raise SessionEnded(_dial_problem(socket, exc)) from exc


def _dial_problem(socket: Path, error: OSError) -> str:
    match error:
        case TimeoutError():
            return f"{socket} does not accept connections; is the container runtime stuck?"
        case FileNotFoundError():
            return (
                f"{socket} does not exist: enable NRI in the container runtime (on by default since containerd 2.0 and CRI-O "
                "1.30), mount the socket's directory into the agent, or set the right path"
            )
        case ConnectionRefusedError():
            return f"nothing listens on {socket}; is the container runtime running?"
        case PermissionError():
            return f"permission denied opening {socket}; the agent must run as root: {error.strerror}"
    return f"cannot connect to {socket}: {error.strerror or error}"

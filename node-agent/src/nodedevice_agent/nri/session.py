"""One connection to a container runtime as its NRI plugin: dials, registers, synchronizes, and handles calls until it ends.

Translates the runtime's calls for a RuntimeHandler, each with a timeout: the runtime waits for a plugin for two seconds, and
then closes the connection and creates the container without its device, which must never happen.
Source: containerd/nri pkg/adaptation/plugin.go and plugin_type.go, pkg/stub/stub.go @ v0.12.3.
"""

import asyncio
import inspect
import logging
import re
from collections import deque
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path

from nodedevice_api.upstream.nri.v1alpha1 import api_pb2

from nodedevice_agent import metrics
from nodedevice_agent.devicemanager.runtime import (
    InjectionRefused,
    RunningContainer,
    RuntimeHandler,
    Sandbox,
    Validator,
)
from nodedevice_agent.nri import codec
from nodedevice_agent.nri.adjustment import adjustment
from nodedevice_agent.nri.host_devices import HostDeviceStat
from nodedevice_agent.nri.mux import Mux
from nodedevice_agent.nri.runtime_features import check_cdi, has_validators
from nodedevice_agent.nri.ttrpc import CallFailed, Code, Handler, TtrpcClient, TtrpcServer

log = logging.getLogger(__name__)

DIAL_SECONDS = 5.0
# the name in the pod annotation required-plugins.noderesource.dev
NAME = "nodedevice"
# the version whose messages the stubs have
NRI_VERSION = "v0.12.3"
ANSWER_SECONDS = 1.0
# The runtime registers one plugin after the other, each for up to five seconds, and none while it starts a pod.
REGISTER_SECONDS = 30.0
SYNCHRONIZE_SECONDS = 120.0

PLUGIN_STREAM, RUNTIME_STREAM = 1, 2
PLUGIN_SERVICE = "nri.pkg.api.v1alpha1.Plugin"
RUNTIME_SERVICE = "nri.pkg.api.v1alpha1.Runtime"

# Each costs a call for every container or pod, so only those that are acted on. Not START_CONTAINER, which comes before there is
# a process, nor STOP_POD_SANDBOX, as every container has an event for its own end.
EVENTS = (
    api_pb2.CREATE_CONTAINER,
    api_pb2.VALIDATE_CONTAINER_ADJUSTMENT,
    api_pb2.POST_START_CONTAINER,
    api_pb2.STOP_CONTAINER,
    api_pb2.REMOVE_CONTAINER,
    api_pb2.REMOVE_POD_SANDBOX,
)
# NRI's own plugin; a validation request lists it where it is enabled
DEFAULT_VALIDATOR = "default-validator"
_RUNTIME = "the container runtime"
_CLOSED = f"{_RUNTIME} closed the connection"
# of one Synchronize, over all its messages
_MAX_SYNCHRONIZE_BYTES = 64 * 1024 * 1024
# releases before 1.0 share one wire format; a runtime built without its dependencies' versions sends one of _NO_VERSION
_KNOWN_VERSION = re.compile(r"v?0\.\d+\..+")
_NO_VERSION = ("", "unknown", "(devel)")

_ContainerRequest = (
    type[api_pb2.PostStartContainerRequest] | type[api_pb2.StopContainerRequest] | type[api_pb2.RemoveContainerRequest]
)


class SessionEnded(Exception):
    """The connection has ended, or could not be made. The text gives the reason and the remedy."""


class Session:
    """Use run() once. index: two digits, the plugin's place among the runtime's plugins. validates: whether to subscribe to
    validation where the runtime's release does not determine if it has it.
    """

    def __init__(
        self, handler: RuntimeHandler, index: str, host_devices: HostDeviceStat, *, validates: bool = True
    ) -> None:
        # whether the runtime has registered the plugin and sent its state: some close the connection in between
        self.is_synchronized = False
        # the runtime closed the connection after Configure
        self.is_rejected = False
        self._handler = handler
        self._host_devices = host_devices
        self._index = index
        self._mux = Mux(_RUNTIME)
        self._server = TtrpcServer(partial(self._mux.write, PLUGIN_STREAM), self._methods())
        self._client = TtrpcClient(partial(self._mux.write, RUNTIME_STREAM))
        self._is_ready = asyncio.Event()
        self._answer_seconds = ANSWER_SECONDS
        self._is_configured = False
        self._runtime = ("", "")
        self._nri_version = ""
        self._validates = validates
        self._sandboxes: list[Sandbox] = []
        self._containers: list[RunningContainer] = []
        self._synchronize_bytes = 0
        # IDs of the containers that ended last
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
        self.is_rejected = reason == _CLOSED and self._is_configured and not self.is_synchronized
        if self.is_rejected:
            reason = f"{reason} before it sent its containers; its log has the reason"
        raise SessionEnded(reason)

    async def _register(self) -> None:
        """Ends the connection if the runtime does not accept the plugin."""
        request = api_pb2.RegisterPluginRequest(plugin_name=NAME, plugin_idx=self._index, NRI_version=NRI_VERSION)
        try:
            await self._client.call(
                RUNTIME_SERVICE, "RegisterPlugin", request.SerializeToString(), timeout_seconds=REGISTER_SECONDS
            )
            async with asyncio.timeout(SYNCHRONIZE_SECONDS):
                await self._is_ready.wait()
        except CallFailed as exc:
            self._mux.abort(f"the container runtime did not register the plugin {self._index}-{NAME}: {exc}")
        except TimeoutError:
            self._mux.abort(
                f"the container runtime registered the plugin, but did not synchronize it within {SYNCHRONIZE_SECONDS:g} s"
            )

    def _methods(self) -> dict[tuple[str, str], Handler]:
        methods: dict[str, Handler] = {
            "Configure": self._configure,
            "Synchronize": self._synchronize,
            "Shutdown": self._shutdown,
            "CreateContainer": self._create_container,
            "ValidateContainerAdjustment": self._validate,
            "PostStartContainer": self._container_event(api_pb2.PostStartContainerRequest, self._started),
            "StopContainer": self._container_event(api_pb2.StopContainerRequest, self._ended),
            "RemoveContainer": self._container_event(api_pb2.RemoveContainerRequest, self._ended),
            "RemovePodSandbox": self._remove_pod_sandbox,
            "StateChange": self._state_change,
            # not subscribed to, and ignored if they come all the same
            "RunPodSandbox": _ignore,
            "StopPodSandbox": _ignore,
        }
        return {(PLUGIN_SERVICE, method): _timed(method, handler) for method, handler in methods.items()}

    def _configure(self, payload: bytes) -> bytes:
        request = api_pb2.ConfigureRequest.FromString(payload)
        version = request.NRI_version
        if version not in _NO_VERSION and not _KNOWN_VERSION.fullmatch(version):
            sentence = (
                f"{request.runtime_name} {request.runtime_version} uses NRI {version[:64]}, which this agent does not support; "
                f"it supports v0, up to {NRI_VERSION}: update the agent"
            )
            # after the response, which the runtime logs
            asyncio.get_running_loop().call_soon(self._mux.close, sentence)
            raise CallFailed(Code.FAILED_PRECONDITION, sentence)
        if request.request_timeout > 0:
            self._answer_seconds = min(ANSWER_SECONDS, request.request_timeout / 1000 / 2)
        self._is_configured = True
        self._runtime, self._nri_version = (request.runtime_name, request.runtime_version), version
        can = has_validators(*self._runtime)
        self._validates = self._validates if can is None else can
        return api_pb2.ConfigureResponse(events=_mask(self._validates)).SerializeToString()

    def _synchronize(self, payload: bytes) -> bytes:
        self._synchronize_bytes += len(payload)
        if self._synchronize_bytes > _MAX_SYNCHRONIZE_BYTES:
            asyncio.get_running_loop().call_soon(
                self._mux.close, f"the runtime's state exceeds {_MAX_SYNCHRONIZE_BYTES} bytes"
            )
            raise CallFailed(
                Code.RESOURCE_EXHAUSTED, f"more than {_MAX_SYNCHRONIZE_BYTES} bytes of pods and containers"
            )
        request = api_pb2.SynchronizeRequest.FromString(payload)
        self._sandboxes += map(codec.sandbox, request.pods)
        self._containers += map(codec.container, request.containers)
        if not request.more:
            sandboxes, containers = self._sandboxes, self._containers
            self._sandboxes, self._containers, self._synchronize_bytes = [], [], 0
            self._handler.synchronized(sandboxes, containers)
            self._accepted()
        return api_pb2.SynchronizeResponse(more=request.more).SerializeToString()

    def _accepted(self) -> None:
        """Only after Synchronize: a runtime may still reject a plugin after Configure."""
        if self.is_synchronized:
            return
        self.is_synchronized = True
        name, version = self._runtime
        log.info(
            "container runtime connected",
            extra={"runtime": name, "version": version, "nri_version": self._nri_version},
        )
        self._handler.runtime_connected(name, version, Validator.NOT_SEEN if self._validates else Validator.MISSING)
        self._is_ready.set()

    def _shutdown(self, payload: bytes) -> bytes:
        asyncio.get_running_loop().call_soon(self._mux.close, "the container runtime is shutting down its plugins")
        return b""

    async def _create_container(self, payload: bytes) -> bytes:
        request = api_pb2.CreateContainerRequest.FromString(payload)
        sandbox, container = codec.sandbox(request.pod), codec.container(request.container)
        try:
            async with asyncio.timeout(self._answer_seconds):
                return await self._adjust(sandbox, container)
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

    async def _adjust(self, sandbox: Sandbox, container: RunningContainer) -> bytes:
        edits = await self._handler.create_container(sandbox, container)
        if edits is None:
            return b""
        check_cdi(edits, *self._runtime)
        found = await self._host_devices.stat_devices(device.host_path for device in edits.devices)
        return api_pb2.CreateContainerResponse(adjust=adjustment(edits, found)).SerializeToString()

    def _validate(self, payload: bytes) -> bytes:
        request = api_pb2.ValidateContainerAdjustmentRequest.FromString(payload)
        is_on = any(plugin.name == DEFAULT_VALIDATOR for plugin in request.plugins)
        self._handler.validator_seen(Validator.ON if is_on else Validator.OFF)
        sandbox, container = codec.sandbox(request.pod), codec.container(request.container)
        try:
            self._handler.validate(sandbox, container)
        except InjectionRefused as exc:
            log.warning("container refused", extra={**_fields(sandbox, container), "error": str(exc)})
            return api_pb2.ValidateContainerAdjustmentResponse(reject=True, reason=str(exc)).SerializeToString()
        return b""

    def _remove_pod_sandbox(self, payload: bytes) -> bytes:
        self._handler.sandbox_removed(codec.sandbox(api_pb2.RemovePodSandboxRequest.FromString(payload).pod))
        return b""

    def _state_change(self, payload: bytes) -> bytes:
        """Older runtimes send most events this way."""
        event = api_pb2.StateChangeEvent.FromString(payload)
        match event.event:
            case api_pb2.POST_START_CONTAINER:
                self._started(codec.sandbox(event.pod), codec.container(event.container))
            case api_pb2.STOP_CONTAINER | api_pb2.REMOVE_CONTAINER:
                self._ended(codec.sandbox(event.pod), codec.container(event.container))
            case api_pb2.REMOVE_POD_SANDBOX:
                self._handler.sandbox_removed(codec.sandbox(event.pod))
        return b""

    def _started(self, sandbox: Sandbox, container: RunningContainer) -> None:
        """The start event of a short-lived container may come after its end, and a container starts only once."""
        if container.id not in self._ended_ids:
            self._handler.container_started(sandbox, container)

    def _ended(self, sandbox: Sandbox, container: RunningContainer) -> None:
        self._ended_ids.append(container.id)
        self._handler.container_ended(sandbox, container)

    @staticmethod
    def _container_event(kind: _ContainerRequest, notify: Callable[[Sandbox, RunningContainer], None]) -> Handler:
        """For requests with a pod and a container, and an empty response."""

        def handle(payload: bytes) -> bytes:
            request = kind.FromString(payload)
            notify(codec.sandbox(request.pod), codec.container(request.container))
            return b""

        return handle


def _mask(validates: bool) -> int:
    """A runtime closes the connection of a plugin that subscribes to an unknown event."""
    wanted = (event for event in EVENTS if validates or event != api_pb2.VALIDATE_CONTAINER_ADJUSTMENT)
    return sum(1 << (event - 1) for event in wanted)


def _timed(method: str, handler: Handler) -> Handler:
    """A method's metric series begins with its first call: a runtime uses few methods."""
    if inspect.iscoroutinefunction(handler):

        async def timed_coroutine(payload: bytes) -> bytes:
            with metrics.NRI_SECONDS.labels(method).time():
                return bytes(await handler(payload))

        return timed_coroutine

    def timed(payload: bytes) -> bytes | Coroutine[None, None, bytes]:
        with metrics.NRI_SECONDS.labels(method).time():
            return handler(payload)

    return timed


def _ignore(payload: bytes) -> bytes:
    return b""


def _fields(sandbox: Sandbox, container: RunningContainer) -> dict[str, str]:
    return {"pod": f"{sandbox.namespace}/{sandbox.name}", "pod_uid": sandbox.uid, "container": container.name}


async def _dial(socket: Path, protocol: asyncio.Protocol) -> None:
    """Connect the protocol. Raises SessionEnded."""
    try:
        async with asyncio.timeout(DIAL_SECONDS):
            await asyncio.get_running_loop().create_unix_connection(lambda: protocol, str(socket))
    except TimeoutError as exc:
        raise SessionEnded(f"{socket} does not accept connections; is the container runtime stuck?") from exc
    except OSError as exc:
        raise SessionEnded(_dial_problem(socket, exc)) from exc


def _dial_problem(socket: Path, error: OSError) -> str:
    match error:
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

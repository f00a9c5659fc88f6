"""One connection to a container runtime as its NRI plugin: registers, is told what there is, and answers until the end.

Turns the runtime's calls into those of a RuntimeHandler and back, with a bound on each: the runtime waits for a plugin for two
seconds, and what it then does (close the connection, make the container without its device) must never come about.
Source: containerd/nri pkg/adaptation/plugin.go and plugin_type.go, pkg/stub/stub.go @ v0.12.3.
"""

import asyncio
import inspect
import logging
import re
from collections import deque
from collections.abc import Callable, Coroutine
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
from nodedevice_agent.nri import codec as wire
from nodedevice_agent.nri.adjustment import adjustment
from nodedevice_agent.nri.dialling import SessionEnded, dial
from nodedevice_agent.nri.host_looks import HostLooks
from nodedevice_agent.nri.mux import Mux
from nodedevice_agent.nri.runtime_features import check_cdi, has_validators
from nodedevice_agent.nri.ttrpc import CallFailed, Code
from nodedevice_agent.nri.ttrpc_client import Client
from nodedevice_agent.nri.ttrpc_server import Handler, Server

log = logging.getLogger(__name__)

# what pods name in the annotation required-plugins.noderesource.dev
NAME = "nodedevice"
# whose messages we know
NRI_VERSION = "v0.12.3"
ANSWER_SECONDS = 1.0
# The runtime takes in one plugin after the other, each for up to five seconds, and none while it starts a pod.
REGISTER_SECONDS = 30.0
SYNCHRONIZE_SECONDS = 120.0

PLUGIN_STREAM, RUNTIME_STREAM = 1, 2
PLUGIN_SERVICE = "nri.pkg.api.v1alpha1.Plugin"
RUNTIME_SERVICE = "nri.pkg.api.v1alpha1.Runtime"

# Each costs a call for every container or pod, so no more than what is acted upon. Not START_CONTAINER, which comes before there
# is a process, nor STOP_POD_SANDBOX, as every container's own end is told.
EVENTS = (
    api_pb2.CREATE_CONTAINER,
    api_pb2.VALIDATE_CONTAINER_ADJUSTMENT,
    api_pb2.POST_START_CONTAINER,
    api_pb2.STOP_CONTAINER,
    api_pb2.REMOVE_CONTAINER,
    api_pb2.REMOVE_POD_SANDBOX,
)
# the plugin that is NRI's own; it is among those that were asked where it is switched on
DEFAULT_VALIDATOR = "default-validator"
_RUNTIME = "the container runtime"
_CLOSED = f"{_RUNTIME} closed the connection"
# of one Synchronize, over all the messages that it came in
_MAX_SYNCHRONIZE_BYTES = 64 * 1024 * 1024
# releases before 1.0 share one wire; a runtime built without its dependencies' versions says none of these
_KNOWN_VERSION = re.compile(r"v?0\.\d+\..+")
_VERSION_NOT_SAID = ("", "unknown", "(devel)")

_AboutContainer = (
    type[api_pb2.PostStartContainerRequest] | type[api_pb2.StopContainerRequest] | type[api_pb2.RemoveContainerRequest]
)


class Session:
    """Use run() once. index: two digits, the plugin's place among the runtime's plugins. validates: whether to ask for
    validation where the runtime's release does not tell if it can.
    """

    def __init__(self, handler: RuntimeHandler, index: str, looks: HostLooks, *, validates: bool = True) -> None:
        # whether the runtime has taken us in and told what there is: some close the connection in between
        self.is_synchronized = False
        # it has answered Configure, and not taken us in
        self.is_sent_away = False
        self._handler = handler
        self._looks = looks
        self._index = index
        self._mux = Mux(_RUNTIME)
        self._server = Server(lambda message: self._mux.write(PLUGIN_STREAM, message), self._methods())
        self._client = Client(lambda message: self._mux.write(RUNTIME_STREAM, message))
        self._is_ready = asyncio.Event()
        self._answer_seconds = ANSWER_SECONDS
        self._is_configured = False
        self._runtime = ("", "")
        self._nri_version = ""
        self._validates = validates
        self._sandboxes: list[Sandbox] = []
        self._containers: list[RunningContainer] = []
        self._synchronize_bytes = 0
        # containers that ended a moment ago, by ID
        self._over: deque[str] = deque(maxlen=64)

    async def run(self, socket: Path) -> None:
        """Until the connection ends. Always raises SessionEnded, with nothing left open."""
        self._mux.open(PLUGIN_STREAM, self._server.receive)
        self._mux.open(RUNTIME_STREAM, self._client.receive)
        await dial(socket, self._mux)
        try:
            async with asyncio.TaskGroup() as tasks:
                registering = tasks.create_task(self._register())
                reason = await self._mux.closed
                registering.cancel()
        finally:
            self._mux.close("the agent ended the connection")
            self._server.close()
        self.is_sent_away = reason == _CLOSED and self._is_configured and not self.is_synchronized
        if self.is_sent_away:
            reason = f"{reason} before it had told what it runs; its log says why"
        raise SessionEnded(reason)

    async def _register(self) -> None:
        """Ends the connection where the runtime does not take us in."""
        request = api_pb2.RegisterPluginRequest(plugin_name=NAME, plugin_idx=self._index, NRI_version=NRI_VERSION)
        try:
            await self._client.call(
                RUNTIME_SERVICE, "RegisterPlugin", request.SerializeToString(), timeout_seconds=REGISTER_SECONDS
            )
            async with asyncio.timeout(SYNCHRONIZE_SECONDS):
                await self._is_ready.wait()
        except CallFailed as exc:
            self._mux.close(f"the container runtime did not register the plugin {self._index}-{NAME}: {exc}")
        except TimeoutError:
            self._mux.close(
                f"the container runtime registered the plugin, and did not synchronize it in {SYNCHRONIZE_SECONDS:g} s"
            )

    def _methods(self) -> dict[tuple[str, str], Handler]:
        methods: dict[str, Handler] = {
            "Configure": self._configure,
            "Synchronize": self._synchronize,
            "Shutdown": self._shutdown,
            "CreateContainer": self._create_container,
            "ValidateContainerAdjustment": self._validate,
            "PostStartContainer": self._about_container(api_pb2.PostStartContainerRequest, self._started),
            "StopContainer": self._about_container(api_pb2.StopContainerRequest, self._ended),
            "RemoveContainer": self._about_container(api_pb2.RemoveContainerRequest, self._ended),
            "RemovePodSandbox": self._remove_pod_sandbox,
            "StateChange": self._state_change,
            # not asked for, and nothing to do when they come all the same
            "RunPodSandbox": _nothing,
            "StopPodSandbox": _nothing,
        }
        return {(PLUGIN_SERVICE, method): _timed(method, handler) for method, handler in methods.items()}

    def _configure(self, payload: bytes) -> bytes:
        request = api_pb2.ConfigureRequest.FromString(payload)
        version = request.NRI_version
        if version not in _VERSION_NOT_SAID and not _KNOWN_VERSION.fullmatch(version):
            sentence = (
                f"{request.runtime_name} {request.runtime_version} speaks NRI {version[:64]}, which this agent does not know; "
                f"it knows v0, up to {NRI_VERSION}: update the agent"
            )
            # after the answer, which a person may look for in the runtime's log
            asyncio.get_running_loop().call_soon(self._mux.shut, sentence)
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
                self._mux.shut, f"the runtime's state has more than {_MAX_SYNCHRONIZE_BYTES} bytes"
            )
            raise CallFailed(
                Code.RESOURCE_EXHAUSTED, f"more than {_MAX_SYNCHRONIZE_BYTES} bytes of pods and containers"
            )
        request = api_pb2.SynchronizeRequest.FromString(payload)
        self._sandboxes += map(wire.sandbox, request.pods)
        self._containers += map(wire.container, request.containers)
        if not request.more:
            sandboxes, containers = self._sandboxes, self._containers
            self._sandboxes, self._containers, self._synchronize_bytes = [], [], 0
            self._handler.synchronized(sandboxes, containers)
            self._taken_in()
        return api_pb2.SynchronizeResponse(more=request.more).SerializeToString()

    def _taken_in(self) -> None:
        """Not before all is told: a runtime may still send away a plugin that has answered Configure."""
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
        asyncio.get_running_loop().call_soon(self._mux.shut, "the container runtime shuts its plugins down")
        return b""

    async def _create_container(self, payload: bytes) -> bytes:
        request = api_pb2.CreateContainerRequest.FromString(payload)
        sandbox, container = wire.sandbox(request.pod), wire.container(request.container)
        try:
            async with asyncio.timeout(self._answer_seconds):
                return await self._adjust(sandbox, container)
        except InjectionRefused as exc:
            log.warning("container refused", extra={**_about(sandbox, container), "error": str(exc)})
            raise CallFailed(Code.FAILED_PRECONDITION, str(exc)) from exc
        except TimeoutError as exc:
            log.warning("no answer in time: container refused", extra=_about(sandbox, container))
            raise CallFailed(
                Code.UNAVAILABLE,
                f"the devices of container {container.name} are not ready after {self._answer_seconds:g} s; "
                "the kubelet tries again",
            ) from exc

    async def _adjust(self, sandbox: Sandbox, container: RunningContainer) -> bytes:
        edits = await self._handler.create_container(sandbox, container)
        if edits is None:
            return b""
        check_cdi(edits, *self._runtime)
        nodes = await self._looks.look_up(device.host_path for device in edits.devices)
        return api_pb2.CreateContainerResponse(adjust=adjustment(edits, nodes)).SerializeToString()

    def _validate(self, payload: bytes) -> bytes:
        request = api_pb2.ValidateContainerAdjustmentRequest.FromString(payload)
        is_on = any(plugin.name == DEFAULT_VALIDATOR for plugin in request.plugins)
        self._handler.validator_seen(Validator.ON if is_on else Validator.OFF)
        sandbox, container = wire.sandbox(request.pod), wire.container(request.container)
        try:
            self._handler.validate(sandbox, container)
        except InjectionRefused as exc:
            log.warning("container refused", extra={**_about(sandbox, container), "error": str(exc)})
            return api_pb2.ValidateContainerAdjustmentResponse(reject=True, reason=str(exc)).SerializeToString()
        return b""

    def _remove_pod_sandbox(self, payload: bytes) -> bytes:
        self._handler.sandbox_removed(wire.sandbox(api_pb2.RemovePodSandboxRequest.FromString(payload).pod))
        return b""

    def _state_change(self, payload: bytes) -> bytes:
        """Older runtimes tell most events this way."""
        event = api_pb2.StateChangeEvent.FromString(payload)
        match event.event:
            case api_pb2.POST_START_CONTAINER:
                self._started(wire.sandbox(event.pod), wire.container(event.container))
            case api_pb2.STOP_CONTAINER | api_pb2.REMOVE_CONTAINER:
                self._ended(wire.sandbox(event.pod), wire.container(event.container))
            case api_pb2.REMOVE_POD_SANDBOX:
                self._handler.sandbox_removed(wire.sandbox(event.pod))
        return b""

    def _started(self, sandbox: Sandbox, container: RunningContainer) -> None:
        """The runtime may tell the start of a short-lived container after its end, and a container starts once only."""
        if container.id not in self._over:
            self._handler.container_started(sandbox, container)

    def _ended(self, sandbox: Sandbox, container: RunningContainer) -> None:
        self._over.append(container.id)
        self._handler.container_ended(sandbox, container)

    @staticmethod
    def _about_container(kind: _AboutContainer, tell: Callable[[Sandbox, RunningContainer], None]) -> Handler:
        """For requests with a pod and a container, and nothing to answer."""

        def handle(payload: bytes) -> bytes:
            request = kind.FromString(payload)
            tell(wire.sandbox(request.pod), wire.container(request.container))
            return b""

        return handle


def _mask(validates: bool) -> int:
    """A runtime ends the connection of a plugin that asks for an event it has never heard of."""
    wanted = (event for event in EVENTS if validates or event != api_pb2.VALIDATE_CONTAINER_ADJUSTMENT)
    return sum(1 << (event - 1) for event in wanted)


def _timed(method: str, handler: Handler) -> Handler:
    """A method's series come into being with its first call: a runtime makes few of them."""
    if inspect.iscoroutinefunction(handler):

        async def answer(payload: bytes) -> bytes:
            with metrics.NRI_SECONDS.labels(method).time():
                return bytes(await handler(payload))

        return answer

    def answer_at_once(payload: bytes) -> bytes | Coroutine[None, None, bytes]:
        with metrics.NRI_SECONDS.labels(method).time():
            return handler(payload)

    return answer_at_once


def _nothing(payload: bytes) -> bytes:
    return b""


def _about(sandbox: Sandbox, container: RunningContainer) -> dict[str, str]:
    return {"pod": f"{sandbox.namespace}/{sandbox.name}", "pod_uid": sandbox.uid, "container": container.name}

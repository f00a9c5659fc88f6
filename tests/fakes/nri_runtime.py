"""The runtime's side of NRI: listens on a socket, registers plugins as containerd does, and makes the calls that tests need."""

import asyncio
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Self, cast

from nodedevice_agent.nri.mux import Mux, frames
from nodedevice_agent.nri.session import PLUGIN_SERVICE, PLUGIN_STREAM, RUNTIME_SERVICE, RUNTIME_STREAM
from nodedevice_agent.nri.ttrpc import CallFailed, Code, TtrpcClient, TtrpcServer
from nodedevice_api.upstream.nri.v1alpha1 import api_pb2

# long, so that a test that fails does so by its own doing
CALL_SECONDS = 60.0


class FakeRuntime:
    """Knobs hold from the next connection on.

    nri_version: as sent in Configure. per_message: pods and containers in each Synchronize; 0: all in one. close_after_bytes: the
    runtime's own bytes after which each connection ends. refusal: the error of RegisterPlugin. configures: if not, Configure never
    follows the registration. known_events: a plugin that subscribes to others is rejected. rejects: every plugin is, after
    Configure. validator: whether validation requests list the default validator.
    """

    def __init__(self, socket: Path) -> None:
        self.socket = socket
        self.name, self.version = "containerd", "v2.4.2"
        self.nri_version = "v0.12.3"
        self.request_timeout_ms = 2000
        self.pods: list[api_pb2.PodSandbox] = []
        self.containers: list[api_pb2.Container] = []
        self.per_message = 0
        self.close_after_bytes: int | None = None
        self.refusal = ""
        self.configures = True
        self.known_events = (1 << api_pb2.VALIDATE_CONTAINER_ADJUSTMENT) - 1
        self.rejects = False
        self.validator = True
        self.connections: list[PluginConnection] = []
        # those that have been synchronized
        self._ready: asyncio.Queue[PluginConnection] = asyncio.Queue()
        # the errors of those that have not
        self.failed: asyncio.Queue[CallFailed] = asyncio.Queue()
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        self._server = await asyncio.get_running_loop().create_unix_server(self._accept, str(self.socket))
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for connection in self.connections:
            await connection.close()
        await self._server.wait_closed()
        self.socket.unlink(missing_ok=True)

    async def plugin(self) -> "PluginConnection":
        """The next plugin that has been synchronized."""
        async with asyncio.timeout(CALL_SECONDS):
            return await self._ready.get()

    def synchronized(self, connection: "PluginConnection") -> None:
        self._ready.put_nowait(connection)

    def _accept(self) -> Mux:
        connection = PluginConnection(self)
        self.connections.append(connection)
        return connection.mux


class PluginConnection:
    """One plugin. registered: its RegisterPlugin request; configured: its Configure response, events the mask in it."""

    def __init__(self, runtime: FakeRuntime) -> None:
        self.registered = api_pb2.RegisterPluginRequest()
        self.configured = api_pb2.ConfigureResponse()
        self._runtime = runtime
        self.mux = _CutShort(runtime.close_after_bytes)
        self._client = TtrpcClient(lambda message: self.mux.write(PLUGIN_STREAM, message))
        self._server = TtrpcServer(
            lambda message: self.mux.write(RUNTIME_STREAM, message),
            {(RUNTIME_SERVICE, "RegisterPlugin"): self._register},
        )
        self.mux.open(PLUGIN_STREAM, self._client.receive)
        self.mux.open(RUNTIME_STREAM, self._server.receive)
        self._joining: asyncio.Task[None] | None = None

    @property
    def events(self) -> int:
        return self.configured.events

    async def call(self, method: str, request: bytes, timeout_seconds: float = CALL_SECONDS) -> bytes:
        """Any method of the plugin. Raises CallFailed, also when the connection ends."""
        call = asyncio.ensure_future(self._client.call(PLUGIN_SERVICE, method, request, timeout_seconds))
        try:
            ends: list[asyncio.Future[Any]] = [call, self.mux.closed]
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if call.done():
                return call.result()
            raise CallFailed(Code.UNAVAILABLE, self.mux.closed.result())
        finally:
            call.cancel()

    async def create_container(
        self, pod: api_pb2.PodSandbox, container: api_pb2.Container
    ) -> api_pb2.ContainerAdjustment:
        """Raises CallFailed."""
        request = api_pb2.CreateContainerRequest(pod=pod, container=container)
        answer = await self.call("CreateContainer", request.SerializeToString())
        return api_pb2.CreateContainerResponse.FromString(answer).adjust

    async def validate(self, pod: api_pb2.PodSandbox, container: api_pb2.Container) -> str:
        """Why the container is rejected; empty where it is not."""
        names = ["default-validator", "nodedevice"] if self._runtime.validator else ["nodedevice"]
        plugins = [api_pb2.PluginInstance(name=name, index="00") for name in names]
        request = api_pb2.ValidateContainerAdjustmentRequest(pod=pod, container=container, plugins=plugins)
        answer = api_pb2.ValidateContainerAdjustmentResponse.FromString(
            await self.call("ValidateContainerAdjustment", request.SerializeToString())
        )
        return answer.reason if answer.reject else ""

    async def container_event(self, method: str, pod: api_pb2.PodSandbox, container: api_pb2.Container) -> None:
        """PostStartContainer, StopContainer or RemoveContainer: they have one wire format."""
        await self.call(method, api_pb2.StopContainerRequest(pod=pod, container=container).SerializeToString())

    async def remove_pod_sandbox(self, pod: api_pb2.PodSandbox) -> None:
        await self.call("RemovePodSandbox", api_pb2.RemovePodSandboxRequest(pod=pod).SerializeToString())

    async def state_change(
        self, event: api_pb2.Event.ValueType, pod: api_pb2.PodSandbox, container: api_pb2.Container | None = None
    ) -> None:
        """As older runtimes send it."""
        request = api_pb2.StateChangeEvent(event=event, pod=pod, container=container)
        await self.call("StateChange", request.SerializeToString())

    async def close(self) -> None:
        """From the runtime's side."""
        self.mux.abort("closed by the test")
        self._server.close()
        if self._joining is not None:
            await self._joining

    def _register(self, payload: bytes) -> bytes:
        if self._runtime.refusal:
            raise CallFailed(Code.UNKNOWN, self._runtime.refusal)
        self.registered = api_pb2.RegisterPluginRequest.FromString(payload)
        self._joining = asyncio.create_task(self._join())
        return b""

    async def _join(self) -> None:
        runtime = self._runtime
        if not runtime.configures:
            return
        request = api_pb2.ConfigureRequest(
            runtime_name=runtime.name,
            runtime_version=runtime.version,
            NRI_version=runtime.nri_version,
            registration_timeout=5000,
            request_timeout=runtime.request_timeout_ms,
        )
        try:
            answer = await self.call("Configure", request.SerializeToString())
            self.configured = api_pb2.ConfigureResponse.FromString(answer)
            if runtime.rejects or self.events & ~runtime.known_events:
                self.mux.abort("rejected")
                raise CallFailed(Code.INVALID_ARGUMENT, f"invalid plugin events: {self.events:#x}")
            await self.synchronize(runtime.pods, runtime.containers, runtime.per_message)
        except CallFailed as exc:
            runtime.failed.put_nowait(exc)
        else:
            runtime.synchronized(self)

    async def synchronize(
        self, pods: Sequence[api_pb2.PodSandbox], containers: Sequence[api_pb2.Container], per_message: int
    ) -> None:
        """In messages of so many pods and containers each. Raises CallFailed."""
        for request in _split(pods, containers, per_message or max(len(pods), len(containers), 1)):
            answer = api_pb2.SynchronizeResponse.FromString(await self.call("Synchronize", request.SerializeToString()))
            assert answer.more == request.more, "the plugin does not understand split messages"


def _split(
    pods: Sequence[api_pb2.PodSandbox], containers: Sequence[api_pb2.Container], per_message: int
) -> Iterable[api_pb2.SynchronizeRequest]:
    longest = max(len(pods), len(containers), 1)
    for start in range(0, longest, per_message):
        end = start + per_message
        yield api_pb2.SynchronizeRequest(pods=pods[start:end], containers=containers[start:end], more=end < longest)


class LargeContainers(Sequence[api_pb2.Container]):
    """Running containers with so much environment each that they are made when they are sent.

    size: bytes of environment, in variables of so many bytes each.
    """

    def __init__(self, count: int, size: int, variable: int) -> None:
        self._numbers = range(count)
        env = [f"{number:07x}".ljust(variable, "=") for number in range(size // variable)]
        self._like = api_pb2.Container(name="main", state=api_pb2.CONTAINER_RUNNING, pid=1, env=env)

    def __len__(self) -> int:
        return len(self._numbers)

    def __getitem__(self, place: Any) -> Any:
        found = self._numbers[place]
        return [self._made(number) for number in found] if isinstance(found, range) else self._made(found)

    def _made(self, number: int) -> api_pb2.Container:
        """Each of a pod of its own."""
        made = api_pb2.Container(id=f"large-{number}", pod_sandbox_id=f"sandbox-{number}")
        made.labels["io.kubernetes.pod.uid"] = f"pod-{number}"
        made.MergeFrom(self._like)
        return made


class _CutShort(Mux):
    """Ends the connection after so many bytes of its own, in the middle of a frame if they end there."""

    def __init__(self, bytes_left: int | None) -> None:
        super().__init__("the plugin")
        self._bytes_left = bytes_left
        self._out: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._out = cast("asyncio.Transport", transport)

    def write(self, stream_id: int, message: bytes) -> None:
        if self._bytes_left is None:
            super().write(stream_id, message)
            return
        data = frames(stream_id, message)
        if self._out is not None and not self.closed.done():
            self._out.write(data[: self._bytes_left])
            self._bytes_left -= min(self._bytes_left, len(data))
            if self._bytes_left == 0:
                self.close("cut short")

"""While the demo's programs are built or downloaded: a real agent, which waits for its API server, shows what it has without one.

Built-in plugins, a plugin of somebody else that registers, a device that breaks and recovers; all of it read where the tools of a
node read it: from the PodResources socket, the metrics and the agent's own commands. It shows no pods: nothing here knows any.
"""

import json
import re
import shlex
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, Self, cast

import grpc
from nodedevice_api.upstream.kubelet.podresources.v1 import api_pb2, api_pb2_grpc

from hack.demo.narration import Broken, narrate, say
from tests.cluster.local.stack import FILES, GPU, NODE_A, PLUGINS, Program, agent_by, program_path
from tests.cluster.processes.loopback import fetch, reach_loopback_directly
from tests.cluster.processes.processes import Process, reserved_ports, tail

# What takes no longer is not worth a show. As with everything built: then nothing is shown.
_AFTER_SECONDS: Final = 4.0
_CTRL_C_SECONDS: Final = 1.0
_PATIENCE_SECONDS: Final = 120.0
_ASK_EVERY_SECONDS: Final = 0.2
_CALL_SECONDS: Final = 60.0
_OTHERS: Final = "example.com/thermometer"
_BREAKS: Final = "gpu-3"
_LOCAL: Final = (("grpc.default_authority", "localhost"), ("grpc.use_local_subchannel_pool", 1))
# of the metrics; most of the others count objects of the API
_COUNTED: Final = "^nodedevice_agent_(registrations|device_lists)_total"


class _Over(Exception):
    """The programs are there."""


@contextmanager
def shown_meanwhile(folder: Path) -> Iterator[None]:
    """Show it while the block runs, in a thread, if that takes some seconds. folder: for the agent's files.

    Raises Broken at the end of the block when the agent did not do it.
    """
    is_over, is_shown, is_cut_off = threading.Event(), threading.Event(), threading.Event()
    trouble: list[Exception] = []

    def show() -> None:
        if is_over.wait(_AFTER_SECONDS):
            return
        is_shown.set()
        try:
            with _Scene.open(folder, is_over) as scene:
                scene.play()
        except (_Over, KeyboardInterrupt):
            return
        except Exception as exc:
            # Ctrl-C reaches the agent as well, and may do so first
            if is_cut_off.wait(_CTRL_C_SECONDS):
                return
            trouble.append(exc)
            say("  the agent failed, which ends this demo when the programs are built; they are kept")

    thread = threading.Thread(target=show, name="waiting-agent")
    thread.start()
    try:
        yield
    except BaseException:
        is_cut_off.set()
        raise
    finally:
        is_over.set()
        thread.join()
    if trouble:
        raise Broken(f"the agent that waited for its API server: {trouble[0]}") from trouble[0]
    if is_shown.is_set():
        say("", "  the programs are there, and that agent has ended; now all of it, with an API server")


class _Scene:
    """Shows an agent without an API server until is_over is set."""

    def __init__(self, agent: Program, undo: ExitStack, is_over: threading.Event) -> None:
        self._agent = agent
        self._undo = undo
        self._is_over = is_over
        self._socket = agent.folder / "pod-resources" / "kubelet.sock"

    @classmethod
    @contextmanager
    def open(cls, folder: Path, is_over: threading.Event) -> Iterator[Self]:
        reach_loopback_directly()
        folder.mkdir(mode=0o700, parents=True)
        with ExitStack() as undo:
            # nothing listens on the first: there the API server would be
            server, port = undo.enter_context(reserved_ports(2))
            agent = agent_by(_kubeconfig(folder, server), folder, NODE_A, port, plugins=PLUGINS[NODE_A])
            undo.callback(agent.process.kill)
            agent.process.start()
            yield cls(agent, undo, is_over)

    def play(self) -> None:
        """Raises _Over as soon as the programs are there, and Broken."""
        narrate("Meanwhile, without an API server: a real agent, which waits for one, has its built-in plugins already")
        self._until("its plugins are registered", lambda: set(self._devices()) >= {GPU, FILES})
        self._show_devices()
        self._show_health()
        self._others()
        self._break_and_recover()
        self._no_pods()
        self._is_over.wait()
        raise _Over

    # -- what is shown ---------------------------------------------------------------------------------------------------

    def _others(self) -> None:
        narrate(
            "A device plugin of somebody else registers, a process that knows the kubelet's protocol and nothing of ours"
        )
        where = str(self._agent.plugin_dir)
        command = [sys.executable, "-m", "tests.fakes.plugin_process", "--plugin-dir", where, "--resource", _OTHERS]
        plugin = Process("a device plugin", command, self._agent.folder / "plugin.log")
        self._undo.callback(plugin.kill)
        plugin.start()
        self._until("it is registered", lambda: _OTHERS in self._devices(), plugin)
        self._show_devices()

    def _break_and_recover(self) -> None:
        narrate(f"{_BREAKS} breaks, and can be allocated no more")
        self._type("simulate", "break", "--state-dir", str(self._agent.folder), GPU, _BREAKS)
        self._until("it shows", lambda: _BREAKS not in self._devices()[GPU])
        self._show_devices()
        self._show_metrics()
        self._type("simulate", "show", "--state-dir", str(self._agent.folder), GPU)
        narrate("It recovers")
        self._type("simulate", "recover", "--state-dir", str(self._agent.folder), GPU, _BREAKS)
        self._until("it shows", lambda: _BREAKS in self._devices()[GPU])
        self._show_metrics()

    def _no_pods(self) -> None:
        narrate(
            "Pods and their devices come from the API server: until there is one the agent claims nothing about them"
        )
        self._show_pods()
        agent = shlex.quote(program_path("nodedevice-agent"))
        self._say(
            "  It goes on until the programs are there. To try it yourself, in another terminal:",
            f"    {agent} simulate break --state-dir {self._agent.folder} {GPU} gpu-0",
            f"    {self._metrics_command()}",
            f"    tail -f {self._agent.process.log}",
        )

    def _show_devices(self) -> None:
        found = self._devices()
        width = max(map(len, found))
        lines = [f"    {resource:{width}}   {' '.join(devices)}" for resource, devices in found.items()]
        self._say("  PodResources, GetAllocatableResources:", *lines)

    def _show_health(self) -> None:
        _, text = fetch(f"http://{self._agent.address}/readyz")
        self._say(
            f"  $ curl --silent http://{self._agent.address}/readyz", *(f"    {line}" for line in text.splitlines())
        )

    def _show_metrics(self) -> None:
        lines = [line for line in self._metrics() if re.match(_COUNTED, line)]
        self._say(f"  $ {self._metrics_command()}", *(f"    {line}" for line in lines))

    def _show_pods(self) -> None:
        try:
            with self._lister() as lister:
                answer = lister.List(api_pb2.ListPodResourcesRequest(), timeout=_CALL_SECONDS)
        except grpc.RpcError as exc:
            status = cast("grpc.Call", exc)
            self._say("  PodResources, List:", f"    {status.code().name}: {status.details()}")
        else:
            raise Broken(f"it lists pods that nobody has: {answer}")

    def _type(self, *arguments: str) -> None:
        """One of the agent's own commands, and its output. Raises Broken when it fails."""
        done = subprocess.run(
            [program_path("nodedevice-agent"), *arguments],
            check=False,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            # Ctrl-C is for the demo, which waits for it
            start_new_session=True,
        )
        printed = (done.stdout + done.stderr).splitlines()
        self._say(f"  $ nodedevice-agent {' '.join(arguments)}", *(f"    {line}" for line in printed))
        if done.returncode != 0:
            raise Broken(f"nodedevice-agent {' '.join(arguments)} ended with {done.returncode}")

    # -- asked -----------------------------------------------------------------------------------------------------------

    def _devices(self) -> dict[str, list[str]]:
        """What can be allocated, by resource; empty before the socket is served."""
        if not self._socket.exists():
            return {}
        with self._lister() as lister:
            asked = api_pb2.AllocatableResourcesRequest()
            # from the moment at which the socket is there, which is before it is served
            found = lister.GetAllocatableResources(asked, timeout=_CALL_SECONDS, wait_for_ready=True).devices
        devices: dict[str, set[str]] = {}
        for each in found:
            devices.setdefault(each.resource_name, set()).update(each.device_ids)
        return {resource: sorted(devices[resource]) for resource in sorted(devices)}

    def _metrics_command(self) -> str:
        return f"curl --silent http://{self._agent.address}/metrics | grep -E '{_COUNTED}'"

    def _metrics(self) -> list[str]:
        return fetch(f"http://{self._agent.address}/metrics")[1].splitlines()

    @contextmanager
    def _lister(self) -> "Iterator[api_pb2_grpc.PodResourcesListerStub]":
        with grpc.insecure_channel(f"unix:{self._socket}", _LOCAL) as channel:
            yield api_pb2_grpc.PodResourcesListerStub(channel)

    def _until(self, what: str, is_so: Callable[[], bool], *more: Process) -> None:
        """Ask until it is so. Raises _Over, TimeoutError, and ComponentError when a process has ended by itself."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while not is_so():
            for process in (self._agent.process, *more):
                process.verify_alive()
            if time.monotonic() > deadline:
                raise TimeoutError(f"not so within {_PATIENCE_SECONDS:.0f} s: {what}\n{tail(self._agent.process.log)}")
            if self._is_over.wait(_ASK_EVERY_SECONDS):
                raise _Over

    def _say(self, *lines: str) -> None:
        """In one piece: the builder's progress comes in between."""
        if self._is_over.is_set():
            raise _Over
        say(*lines)


def _kubeconfig(folder: Path, port: int) -> Path:
    """Of an API server that is not there yet."""
    cluster = {"server": f"https://127.0.0.1:{port}", "insecure-skip-tls-verify": True}
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "awaited",
        "clusters": [{"name": "awaited", "cluster": cluster}],
        "users": [{"name": "awaited", "user": {}}],
        "contexts": [{"name": "awaited", "context": {"cluster": "awaited", "user": "awaited"}}],
    }
    path = folder / "kubeconfig"
    path.write_text(json.dumps(content))
    return path

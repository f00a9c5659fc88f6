"""The agent lost in each phase of a pod's start: no container ever runs without its device, no device is ever in two of them.

A phase is something that happens on the way from a bound pod to a running container. Each is met as it happens, not after a time:
the plugin is called, a shim's folder appears. Every start of every container reports what it found, and holds a lock for each
device as long as it lives; nothing is sampled. E2E_ROUNDS: how often each point is tried (default 1).
"""

import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from enum import Enum
from pathlib import Path

import pytest
from inotify_simple import INotify, flags
from nodedevice_api.upstream.kubelet.deviceplugin.v1beta1 import api_pb2

from tests.cluster.node.machine import MachineProcess
from tests.e2e.real_node.device_plugins import Kind
from tests.e2e.real_node.node_under_test import NodeUnderTest
from tests.e2e.real_node.pods import Json, container, pod

# The runtime's folder of what it runs: one entry for each sandbox and each container, made when its shim learns of it.
_TASKS = "/run/containerd/io.containerd.runtime.v2.task/k8s.io"
_NETWORKS = "/run/netns"
_GIVE_UP_SECONDS = 60.0


class Phase(Enum):
    CREATED = "the API server has made the pod"
    ALLOCATING = "the plugin is asked to allocate"
    SANDBOX_NETWORK = "the runtime makes the sandbox's network"
    SANDBOX = "the runtime makes the sandbox"
    CONTAINER = "the runtime makes the first container"
    RUNNING = "the first container runs"


class Loss(Enum):
    """kill -9, or a process that is alive and says nothing any more."""

    KILLED = "killed"
    STOPPED = "stopped"


def take(loss: Loss, agent: MachineProcess) -> None:
    """From within a thread or the plugin: returns at once."""
    agent.signal(signal.SIGKILL if loss is Loss.KILLED else signal.SIGSTOP)


def give_back(loss: Loss, of: NodeUnderTest) -> None:
    """Waits until it says that it is ready."""
    if loss is Loss.KILLED:
        of.agent.kill()  # dead already: its starter is waited for
        of.start_agent()
    else:
        of.agent.signal(signal.SIGCONT)


@contextmanager
def lost_at(phase: Phase, loss: Loss, of: NodeUnderTest, kind: Kind) -> Iterator[Callable[[], None]]:
    """Arms the loss for the pods made in the block.

    Yields what the block calls when it has made them: it returns once the agent is lost.

    Raises TimeoutError when the phase does not come.
    """
    lost = threading.Event()

    def lose() -> None:
        if not lost.is_set():
            take(loss, of.agent)
            lost.set()

    def wait() -> None:
        if phase is Phase.CREATED:
            lose()
        if not lost.wait(_GIVE_UP_SECONDS):
            raise TimeoutError(f"it never came to this: {phase.value}")

    with _armed(phase, of, kind, lose):
        yield wait


def _armed(phase: Phase, of: NodeUnderTest, kind: Kind, lose: Callable[[], None]) -> AbstractContextManager[None]:
    match phase:
        case Phase.CREATED:
            return nullcontext()
        case Phase.ALLOCATING:
            return _before_the_answer(of, kind, lose)
        case Phase.SANDBOX_NETWORK:
            return _at_entry(of.node.outside(_NETWORKS), 1, lose)
        case Phase.SANDBOX:
            return _at_entry(of.node.outside(_TASKS), 1, lose)
        case Phase.CONTAINER:
            return _at_entry(of.node.outside(_TASKS), 2, lose)
        case Phase.RUNNING:
            return _at_entry(of.reports, 1, lose)


@contextmanager
def _before_the_answer(of: NodeUnderTest, kind: Kind, lose: Callable[[], None]) -> Iterator[None]:
    """When the plugin has been called, and has not answered yet."""
    usual = of.plugins.by_resource[kind.resource].knobs.allocate_answer
    assert usual is not None

    def answer(ids: Sequence[str]) -> api_pb2.ContainerAllocateResponse:
        lose()
        return usual(ids)

    with of.answering(kind, answer):
        yield


@contextmanager
def _at_entry(folder: Path, count: int, lose: Callable[[], None]) -> Iterator[None]:
    """When so many entries have been made in a folder since the block began."""
    # the runtime makes it for the first pod of a node
    folder.mkdir(mode=0o711, parents=True, exist_ok=True)
    with INotify() as inotify:
        inotify.add_watch(folder, flags.CREATE | flags.MOVED_TO)
        over = threading.Event()

        def watch() -> None:
            seen = 0
            while seen < count and not over.is_set():
                seen += len(inotify.read(timeout=100))
            if not over.is_set():
                lose()

        watcher = threading.Thread(target=watch, name="kill-point")
        watcher.start()
        try:
            yield
        finally:
            over.set()
            watcher.join()


_ROUNDS = int(os.environ.get("E2E_ROUNDS", "1"))
_ASKING = ("a", "b")


@pytest.mark.parametrize("loss", Loss, ids=lambda found: found.value)
@pytest.mark.parametrize("phase", Phase, ids=lambda found: found.name.lower())
def test_never_without_its_device(nri_node: NodeUnderTest, phase: Phase, loss: Loss) -> None:
    for number in range(_ROUNDS):
        _round(nri_node, phase, loss, f"r{number}")


def _round(of: NodeUnderTest, phase: Phase, loss: Loss, prefix: str) -> None:
    """Two pods that ask, one with two containers; then one that does not. All run in the end, each with devices of its own."""
    rw = of.kinds["rw"]
    asking = [f"{prefix}-{letter}" for letter in _ASKING]
    with lost_at(phase, loss, of, rw) as lost:
        for name, containers in zip(asking, (["main"], ["main", "other"]), strict=True):
            of.create(pod(name, [_container(each, rw.resource) for each in containers]))
        lost()
    of.run(pod(f"{prefix}-plain", [container("main")]))
    give_back(loss, of)
    for name in asking:
        of.wait_running_nudged(name)
    for name in asking:
        for start in (of.seen(name, "main"), *of.starts(name)):
            assert rw.env in start.env, f"{name} ran without its device"
            given = start.env[rw.env].split(",")
            assert all(start.modes(rw.path_of(device_id)) == "rw" for device_id in given)
            assert not start.shared
    of.delete(*asking, f"{prefix}-plain")


def _container(name: str, resource: str) -> Json:
    checks = [argument for number in range(3) for argument in ("-open", f"/dev/given/rw-{number}")]
    return container(name, {resource: 1}, checks)

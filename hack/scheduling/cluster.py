"""Runs nodes with shared GPUs on a real control plane, extenders as processes, and schedulers with or without them."""

import signal
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from nodedevice_api import names

from hack.scheduling.node_model import GPUS, RESOURCE, UNITS
from hack.scheduling.service import Service
from tests.cluster import agent_objects
from tests.cluster.api import Node, NodeDevice
from tests.cluster.chart import install_chart
from tests.cluster.control_plane.control_plane import ControlPlane
from tests.cluster.local.stack import Program, extender_program
from tests.cluster.processes.processes import reserved_ports
from tests.cluster.second_scheduler import Extender, second_scheduler

# of a request to an extender: a paused extender must not delay the scheduler for longer
_TIMEOUT_SECONDS = 1.0
EXTENDED = "with-extender"
ALONE = "without-extender"


@contextmanager
def gpu_cluster(folder: Path, nodes: int, progress: Callable[[str], None]) -> Iterator[tuple[ControlPlane, list[str]]]:
    """A control plane with Nodes of 8 GPUs with 80 units each. Yields it with their names."""
    with ControlPlane.start(folder / "cluster", progress) as control_plane:
        install_chart(control_plane, {"scheduler": {"enabled": True, "managedResources": [RESOURCE]}})
        yield control_plane, add_gpu_nodes(control_plane, nodes)


def add_gpu_nodes(control_plane: ControlPlane, count: int) -> list[str]:
    """Create Nodes with an empty NodeDevice each. Returns their names."""
    found = [f"gpu-{number}" for number in range(count)]
    control_plane.add_nodes(found)
    units = str(GPUS * UNITS)
    for name in found:
        patch = {"status": {"capacity": {RESOURCE: units}, "allocatable": {RESOURCE: units}}}
        node: Any = control_plane.client.patch(Node.Status, name, patch)
        body = agent_objects.node_device(name, RESOURCE, node.metadata.uid)
        control_plane.client.create(NodeDevice.from_dict(body), field_manager=names.AGENT_FIELD_MANAGER)
    return found


class Extenders:
    """Several extenders; one is active."""

    def __init__(self, programs: Sequence[Program], verbs_ports: Sequence[int]) -> None:
        self._programs = programs
        self.addresses = [
            (program.address, f"127.0.0.1:{port}") for program, port in zip(programs, verbs_ports, strict=True)
        ]

    def active(self) -> Program | None:
        """The one that responds, if any."""
        return next((program for program in self._programs if program.is_ready()), None)

    def kill(self) -> bool:
        """Kill the active one; it is restarted at once. False if none is active."""
        found = self.active()
        if found is not None:
            found.process.kill()
            found.process.start()
        return found is not None

    def pause(self) -> Program | None:
        """Stop the active one, which still believes that it is active when it continues. None if none is."""
        found = self.active()
        if found is not None:
            found.process.signal(signal.SIGSTOP)
        return found

    @staticmethod
    def go_on(paused: Program) -> None:
        paused.process.signal(signal.SIGCONT)


@contextmanager
def extenders(control_plane: ControlPlane, folder: Path, count: int) -> Iterator[Extenders]:
    """Start `count` extender processes."""
    with ExitStack() as undo:
        ports = undo.enter_context(reserved_ports(2 * count))
        programs = []
        for number in range(count):
            program = extender_program(control_plane, folder / f"x{number}", ports[number], ports[count + number])
            undo.callback(program.process.kill)
            program.process.start()
            programs.append(program)
        yield Extenders(programs, ports[count:])


@asynccontextmanager
async def scheduler_with(control_plane: ControlPlane, folder: Path, found: Extenders) -> AsyncIterator[str]:
    """A scheduler that calls these extenders, once one of them is active. Yields its name."""
    async with Service(found.addresses) as service:
        await service.wait_ready()
        asked = Extender(f"http://127.0.0.1:{service.port}", [RESOURCE], _TIMEOUT_SECONDS)
        with _running(control_plane, folder, EXTENDED, asked):
            yield EXTENDED


@contextmanager
def scheduler_beside(control_plane: ControlPlane, folder: Path, verbs: str) -> Iterator[str]:
    """A scheduler with an extender on loopback, as in the chart's pod. Yields its name. verbs: HOST:PORT."""
    with _running(control_plane, folder, EXTENDED, Extender(f"http://{verbs}", [RESOURCE])):
        yield EXTENDED


@contextmanager
def scheduler_alone(control_plane: ControlPlane, folder: Path) -> Iterator[str]:
    """A scheduler without an extender. Yields its name."""
    with _running(control_plane, folder, ALONE, None):
        yield ALONE


@contextmanager
def _running(control_plane: ControlPlane, folder: Path, name: str, asked: Extender | None) -> Iterator[None]:
    process = second_scheduler(control_plane.folder / "kube-scheduler.kubeconfig", folder, name, asked)
    process.start()
    try:
        yield
    finally:
        process.kill()

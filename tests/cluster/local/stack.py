"""The whole product on one machine: control plane, chart, two nodes, an agent on each, the operator; all as processes.

Agent and operator run with the chart's accounts' own tokens, never as admin. The nodes have no kubelet: KWOK plays them, or the
demo; their devices are real gRPC plugins: simulated GPUs on both, and on the first one device files of this machine.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import yaml

from tests.cluster.build.binaries import find
from tests.cluster.chart import SYSTEM_NAMESPACE, install, installed_manifests
from tests.cluster.cluster import Cluster
from tests.cluster.control_plane.control_plane import ControlPlane
from tests.cluster.errors import ComponentError
from tests.cluster.processes.loopback import answers, reach_loopback_directly
from tests.cluster.processes.processes import Process, reserved_ports, tail
from tests.cluster.second_scheduler import Extender, second_scheduler
from tests.cluster.waiting import wait_until

GPU = "example.com/gpu"
FILES = "example.com/dev"
NODE_A, NODE_B = "node-a", "node-b"
# the spec.schedulerName of pods that the second scheduler places. Also the name of its account.
SCHEDULER = "nodedevice-scheduler"
_READY_SECONDS = 60.0
_STOP_SECONDS = 5.0

Progress = Callable[[str], None]

# Device files that every Linux has; a real node would name its serial ports, cameras or accelerators here.
_DEV_FILES = [
    {"paths": [{"path": "/dev/null"}], "count": 2},
    {"paths": [{"path": "/dev/zero"}]},
    {"paths": [{"path": "/dev/random"}]},
]
PLUGINS: dict[str, dict[str, Any]] = {
    NODE_A: {
        "simulated": [{"resourceName": GPU, "count": 4, "numaNodes": 2}],
        "generic": [{"resourceName": FILES, "groups": _DEV_FILES}],
    },
    NODE_B: {"simulated": [{"resourceName": GPU, "count": 2}]},
}


@dataclass(frozen=True)
class Program:
    """One of the project's own programs as a process, with its HTTP address and its folder."""

    process: Process
    address: str
    folder: Path

    @property
    def plugin_dir(self) -> Path:
        return self.folder / "plugins"

    def is_ready(self) -> bool:
        return answers(f"http://{self.address}/readyz")

    def start(self) -> None:
        """Start it and wait until it reports ready. Raises ComponentError."""
        self.process.start()
        self.process.wait_ready(self.is_ready, _READY_SECONDS)


class Stack:
    """The whole product, running. Use start() as a context manager; everything ends with it."""

    def __init__(self, control_plane: Cluster, operator: Program, agents: dict[str, Program]) -> None:
        self.control_plane = control_plane
        self.operator = operator
        self.agents = agents
        self._processes = [program.process for program in (operator, *agents.values())]
        self._undo = ExitStack()

    @classmethod
    def start(
        cls,
        folder: Path,
        progress: Progress = lambda _: None,
        plugins: dict[str, dict[str, Any]] | None = None,
        open_cluster: Callable[[Path, Progress], AbstractContextManager[Cluster]] = ControlPlane.start,
        resources: int | None = None,
        scheduled: Sequence[str] = (),
        chart: Callable[[Mapping[str, Any], Progress], Sequence[Mapping[str, Any]]] | None = None,
    ) -> Self:
        """Start everything. folder: created for it, with a short path (it holds sockets). plugins: by node name.

        resources: expected number of NodeDevices; by default one for each setting of a plugin.
        scheduled: resources of a second scheduler, which calls the extender for them; empty: without it.
        chart: the chart's manifests for its values; by default from helm.
        Raises ClusterError with the end of a part's log if the part does not start.
        """
        reach_loopback_directly()
        plugins = PLUGINS if plugins is None else plugins
        with ExitStack() as undo:
            # build helm and the scheduler before any process waits for them
            manifests = (chart or _by_helm)(chart_values(scheduled), progress)
            control_plane = undo.enter_context(open_cluster(folder / "cluster", progress))
            if scheduled:
                find(["kube-scheduler"], progress)
            # first the Nodes: on a conflict of names in a user's cluster, nothing else is created
            control_plane.add_nodes(list(plugins))
            install(control_plane, manifests)
            progress("chart and nodes are in")
            first, *others = undo.enter_context(reserved_ports(1 + len(plugins)))
            operator = operator_program(control_plane, folder, first)
            agents = {
                name: agent_program(control_plane, _home(folder, name), name, port, plugins=plugins[name])
                for name, port in zip(plugins, others, strict=True)
            }
            for program in (operator, *agents.values()):
                program.process.start()
                undo.callback(_end, program.process)
            for program in (operator, *agents.values()):
                program.process.wait_ready(program.is_ready, _READY_SECONDS)
            stack = cls(control_plane, operator, agents)
            kinds = [kind for settings in plugins.values() for kind in settings.values()]
            # hostRoot is a setting, not a plugin
            counted = sum(len(kind) for kind in kinds if not isinstance(kind, str))
            expected = counted if resources is None else resources
            stack.wait_for("every NodeDevice is Ready", lambda: stack.ready_count() == expected)
            progress("operator and agents are ready")
            if scheduled:
                extender, scheduler = _start_scheduler(control_plane, folder, scheduled, undo)
                stack._processes += [extender.process, scheduler]
                progress("the extender is ready, and a second kube-scheduler that asks it is started")
            stack._undo = undo.pop_all()
            return stack

    def ready_count(self) -> int:
        """Number of Ready NodeDevices."""
        path = '{.items[*].status.conditions[?(@.type=="Ready")].status}'
        return self.control_plane.kubectl("get", "nodedevices", "-o", f"jsonpath={path}").split().count("True")

    def wait_for(self, what: str, is_so: Callable[[], bool], timeout_seconds: float = 60.0) -> None:
        """Poll until it is so. Raises TimeoutError that names it, or ComponentError when a program has died."""

        def poll() -> bool:
            for process in self._processes:
                process.verify_alive()
            return is_so()

        try:
            wait_until(poll, what, timeout_seconds)
        except TimeoutError as exc:
            raise TimeoutError(f"{exc}\n{self._state()}") from None

    def _state(self) -> str:
        """State for a person who debugs: the NodeDevices, and the programs' last log lines."""
        shown = self.control_plane.kubectl("get", "nodedevices", "-o", "wide", check=False)
        return "\n".join([shown, *(tail(process.log) for process in self._processes)])

    def stop(self) -> None:
        self._undo.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def operator_program(control_plane: Cluster, folder: Path, port: int, config: str = "") -> Program:
    """The operator with its own account's token, not started yet. port: its HTTP port. config: its file's content."""
    home = _home(folder, "operator")
    kubeconfig = control_plane.service_account_kubeconfig(SYSTEM_NAMESPACE, "nodedevice-operator", home / "kubeconfig")
    address = f"127.0.0.1:{port}"
    command = [program_path("nodedevice-operator"), "run", "--kubeconfig", str(kubeconfig), "--http-address", address]
    if config:
        (home / "operator.yaml").write_text(config)
        command += ["--config", str(home / "operator.yaml")]
    return Program(Process("nodedevice-operator", command, home / "log"), address, home)


def agent_program(control_plane: Cluster, home: Path, node_name: str, port: int, **settings: Any) -> Program:
    """An agent with its own account's token, not started yet. home: for its files. settings: over the usual ones of its file."""
    kubeconfig = control_plane.service_account_kubeconfig(
        SYSTEM_NAMESPACE, "nodedevice-agent", home / "kubeconfig", node_name=node_name
    )
    return agent_by(kubeconfig, home, node_name, port, **settings)


def agent_by(kubeconfig: Path, home: Path, node_name: str, port: int, **settings: Any) -> Program:
    """The same agent with that kubeconfig."""
    address = f"127.0.0.1:{port}"
    content = {
        "nodeName": node_name,
        "kubeconfig": str(kubeconfig),
        "pluginDir": str(home / "plugins"),
        "stateDir": str(home),
        # without a kubelet or runtime: this machine's do not belong to this node
        "kubeletDir": str(home / "kubelet"),
        "nriSocket": str(home / "nri.sock"),
        "httpAddress": address,
        # no containers run here
        "runtime": "none",
        "advertiseWithoutInjection": True,
        **settings,
    }
    (home / "agent.yaml").write_text(yaml.safe_dump(content))
    command = [program_path("nodedevice-agent"), "run", "--config", str(home / "agent.yaml")]
    return Program(Process(f"nodedevice-agent of {node_name}", command, home / "log"), address, home)


def extender_program(control_plane: Cluster, folder: Path, port: int, verbs_port: int, operator: str = "") -> Program:
    """The extender with its account's token from the chart, not started yet. verbs_port: its port for schedulers.

    operator: the program, if it is not this environment's.
    """
    home = _home(folder, "extender")
    kubeconfig = control_plane.service_account_kubeconfig(SYSTEM_NAMESPACE, SCHEDULER, home / "kubeconfig")
    address = f"127.0.0.1:{port}"
    command = [operator or program_path("nodedevice-operator"), "extender", "--kubeconfig", str(kubeconfig)]
    command += ["--http-address", address, "--address", f"127.0.0.1:{verbs_port}"]
    return Program(Process("nodedevice-operator extender", command, home / "log"), address, home)


def chart_values(scheduled: Sequence[str]) -> dict[str, Any]:
    """Values of the chart. scheduled: resources of the second scheduler, if any."""
    return {"scheduler": {"enabled": True, "managedResources": list(scheduled)}} if scheduled else {}


def _by_helm(values: Mapping[str, Any], progress: Progress) -> list[dict[str, Any]]:
    find(["helm"], progress)
    return installed_manifests(values)


def _start_scheduler(
    control_plane: Cluster, folder: Path, scheduled: Sequence[str], undo: ExitStack
) -> tuple[Program, Process]:
    """The extender, ready, and the scheduler, which never reports readiness; both with one account, as in the chart."""
    port, verbs_port = undo.enter_context(reserved_ports(2))
    extender = extender_program(control_plane, folder, port, verbs_port)
    undo.callback(_end, extender.process)
    extender.start()
    asked = Extender(f"http://127.0.0.1:{verbs_port}", scheduled)
    scheduler = second_scheduler(extender.folder / "kubeconfig", extender.folder, SCHEDULER, asked)
    undo.callback(scheduler.kill)
    scheduler.start()
    return extender, scheduler


def _end(process: Process) -> None:
    """Gracefully if possible, so that it cleans up; else at once."""
    try:
        if process.pid is not None:
            process.stop(_STOP_SECONDS)
    except ComponentError:
        process.kill()


def _home(folder: Path, name: str) -> Path:
    home = folder / name
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    return home


def program_path(name: str) -> str:
    """Path of one of the project's own programs."""
    return str(Path(sys.executable).with_name(name))

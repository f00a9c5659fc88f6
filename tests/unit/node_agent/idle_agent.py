"""The whole agent on a node without an API server, a container runtime or a kubelet. Its tasks do nothing, and one may fail."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from nodedevice_agent.agent import Agent
from nodedevice_agent.cli import run
from nodedevice_agent.configs.watch import ConfigWatch
from nodedevice_agent.deviceplugin.host import PluginHost
from nodedevice_agent.deviceplugin.plugin_watcher import PluginWatcher
from nodedevice_agent.deviceplugin.registration_server import RegistrationServer
from nodedevice_agent.dra.claims import ClaimReader
from nodedevice_agent.dra.holders import Holders
from nodedevice_agent.dra.observer import DriverObserver
from nodedevice_agent.kube.lease import LeaseKeeper
from nodedevice_agent.kube.nodedevice import NodeDeviceSync
from nodedevice_agent.kube.pods import PodWatch
from nodedevice_agent.kubelet.backend import KubeletBackend, KubeletEndpoint
from nodedevice_agent.kubelet.observer import Observer
from nodedevice_agent.kubelet.reader import KubeletReader
from nodedevice_agent.lib import memory
from nodedevice_agent.nri.connector import NriPlugin
from nodedevice_agent.offered_twice.watch import OfferedTwice
from nodedevice_agent.plugins.run import PluginRunner
from nodedevice_agent.runtime.backend import NriBackend
from nodedevice_agent.runtime.device_numbers import DeviceNumbers
from nodedevice_agent.runtime.kubelet_pods import KubeletPods
from nodedevice_agent.settings import AgentSettings
from nodedevice_common import tasks

from tests.fakes.failing_task import Failing
from tests.fakes.polling import until

# what each task of the agent runs, by its name
TASKS: Final[dict[str, tuple[Any, str]]] = {
    "beat": (Agent, "_beat"),
    "configs": (ConfigWatch, "run"),
    "device manager": (PluginHost, "_detect_end"),
    "device numbers": (DeviceNumbers, "run"),
    "dra claims": (ClaimReader, "run"),
    "dra holders": (Holders, "run"),
    "dra slices": (DriverObserver, "run"),
    "ends of containers": (NriBackend, "_watch_doubtful"),
    "kubelet observer": (Observer, "run"),
    "kubelet state": (KubeletReader, "run"),
    "lease": (LeaseKeeper, "run"),
    "memory": (memory, "release"),
    "offered twice": (OfferedTwice, "run"),
    "node": (run, "_check_node"),
    "nodedevice": (NodeDeviceSync, "run"),
    "nri": (NriPlugin, "run"),
    "plugin registry": (PluginWatcher, "run"),
    "plugins": (PluginRunner, "run"),
    "pods": (PodWatch, "run"),
    "pods of the kubelet": (KubeletPods, "leave_all"),
    "registration socket": (RegistrationServer, "keep"),
}
# these run with --delivery kubelet only
KUBELET_TASKS: Final[dict[str, tuple[Any, str]]] = {
    "files of the kubelet": (KubeletBackend, "_watch"),
    "kubelet endpoint": (KubeletEndpoint, "run"),
}


def settings(folder: Path, **given: Any) -> AgentSettings:
    """Settings with all directories in this folder, which are created."""
    context = {"name": "x", "context": {"cluster": "c", "user": "u"}}
    cluster = {"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}
    user = {"name": "u", "user": {"token": "t"}}
    kubeconfig = {"current-context": "x", "contexts": [context], "clusters": [cluster], "users": [user]}
    (folder / "kubeconfig").write_text(json.dumps(kubeconfig))
    usual: dict[str, Any] = {"node_name": "n1", "http_address": "127.0.0.1:0", "nri_socket": str(folder / "nri.sock")}
    usual["kubeconfig"] = str(folder / "kubeconfig")
    for name, short in {"plugin_dir": "p", "state_dir": "s", "kubelet_dir": "k", "plugins_registry_dir": "r"}.items():
        (folder / short).mkdir()
        usual[name] = str(folder / short)
    return AgentSettings(**{**usual, **given})


@asynccontextmanager
async def running(
    given: AgentSettings, monkeypatch: pytest.MonkeyPatch, failing: str = "", failures: Sequence[Exception] = ()
) -> AsyncIterator[tuple[Failing, asyncio.Task[None]]]:
    """An agent that serves plugins, or has ended. failing: the task that fails in these ways; the others are idle."""
    monkeypatch.setattr(tasks, "FIRST_PAUSE_SECONDS", 0.0)
    bad = Failing(*failures)
    for name, (owner, method) in {**TASKS, **(KUBELET_TASKS if given.delivery == "kubelet" else {})}.items():
        monkeypatch.setattr(owner, method, (bad if name == failing else Failing()).work)
    monkeypatch.setattr(LeaseKeeper, "acquire", lambda _: asyncio.sleep(0))
    monkeypatch.setattr(KubeletReader, "_read", lambda _: asyncio.sleep(0))
    registration_socket = Path(given.plugin_dir, "kubelet.sock")
    task = asyncio.create_task(run._run(given))
    try:
        await until(lambda: registration_socket.is_socket() or task.done())
        yield bad, task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

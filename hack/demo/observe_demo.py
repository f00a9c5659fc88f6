"""`make demo OBSERVE=1`: a node whose kubelet serves a device plugin, and nodedevice that only watches it. Ends with a verdict.

The plugin is the one of docs/write-a-device-plugin.md. The installation is the one of docs/watch-only.md.
"""

import json
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import yaml
from nodedevice_api import names

from hack.demo import rendered_chart
from hack.demo.demo_stack import open_demo_cluster
from hack.demo.narration import Broken, narrate, play, say, show, show_progress
from tests.cluster.chart import install
from tests.cluster.cluster import Cluster, a_pod
from tests.cluster.local.stack import NODE_A, agent_program, operator_program
from tests.cluster.processes.loopback import reach_loopback_directly
from tests.cluster.processes.processes import Process, reserved_ports
from tests.cluster.waiting import wait_until

RESOURCE: Final = "example.com/null"
_ROOT: Final = Path(__file__).parents[2]
_PLUGIN: Final = _ROOT / "docs/plugin-examples/plugin.py"
_PAGE: Final = "docs/watch-only.md"
_NAMESPACE: Final = "nodedevice-demo"
_NODE_DEVICE: Final = names.node_device_name(NODE_A, RESOURCE)
# written by whom: neither may appear on a Node or a pod
_OURS: Final = {names.AGENT_FIELD_MANAGER, names.OPERATOR_FIELD_MANAGER}


def main() -> int:
    return play(_demo)


def _demo(folder: Path) -> str:
    narrate("A Kubernetes control plane and one node, whose kubelet serves a device plugin")
    reach_loopback_directly()
    with ExitStack() as undo:
        cluster = undo.enter_context(open_demo_cluster(folder / "cluster", show_progress))
        _Demo(cluster, folder, undo).run()
    return f"devices and holders shown, nothing else changed; on a node of yours: {_PAGE}"


class _Demo:
    def __init__(self, cluster: Cluster, folder: Path, undo: ExitStack) -> None:
        self._cluster, self._folder, self._undo = cluster, folder, undo

    def run(self) -> None:
        self._serve()
        before = self._fingerprint()
        self._install()
        self._follow()
        self._compare(before)
        narrate("To watch a node of yours: the steps, the values file, the objects that it writes and how to remove it")
        say(f"  {_PAGE}")

    def _serve(self) -> None:
        self._cluster.add_nodes([NODE_A])
        self._cluster.add_namespace(_NAMESPACE)
        kubelet = self._folder / "a/kubelet"
        kubelet.mkdir(mode=0o700, parents=True)
        player = [
            sys.executable,
            "-m",
            "hack.demo.played_kubelet",
            str(self._cluster.admin_kubeconfig),
            NODE_A,
            str(kubelet),
        ]
        self._start("the kubelet's device manager", player)
        self._wait("the kubelet takes registrations", (kubelet / "device-plugins/kubelet.sock").exists)
        self._start("the device plugin", [sys.executable, str(_PLUGIN), str(kubelet / "device-plugins")])
        self._wait("the Node has the devices", lambda: self._capacity() == "2")
        say(f"  the plugin of docs/write-a-device-plugin.md has registered {RESOURCE} with the kubelet")
        self._apply("train")
        self._wait("the pod runs", lambda: self._phase("train") == "Running")
        self._show("get", "pods", "-n", _NAMESPACE, "-o", "wide")

    def _install(self) -> None:
        narrate("nodedevice is installed with docs/watch-only-values.yaml: it allocates nothing")
        values = rendered_chart.watch_only_values()
        install(self._cluster, rendered_chart.load(values, show_progress))
        operator_port, agent_port = self._undo.enter_context(reserved_ports(2))
        # what the chart writes into the operator's file for these values
        config = {
            "requiredPlugins": values["requiredPlugins"]["enabled"],
            "markWaitingPods": values["markWaitingPods"],
            "nodeTaint": values["nodeTaint"] == "on",
            "nodeLabels": values["nodeLabels"] == "on",
        }
        operator = operator_program(self._cluster, self._folder, operator_port, yaml.safe_dump(config))
        # a demo's agent usually advertises without injection
        settings = {"runtime": values["agents"]["config"]["delivery"], "advertiseWithoutInjection": False}
        agent = agent_program(self._cluster, self._folder / "a", NODE_A, agent_port, **settings)
        for program in (operator, agent):
            self._undo.callback(program.process.kill)
            program.start()
        self._wait("the device and its holder are shown", lambda: self._holders() == {"train": ["null-0"]})
        self._show("get", "nodedevices", "-o", "wide")
        self._wait("its pod is shown", lambda: len(self._items("poddevices", "-A")) == 1)
        self._show("get", "poddevices", "-A")

    def _follow(self) -> None:
        narrate("Another pod comes: the kubelet allocates, and it is shown")
        self._apply("infer")
        self._wait("both holders are shown", lambda: set(self._holders()) == {"train", "infer"})
        self._wait("both pods are shown", lambda: len(self._items("poddevices", "-A")) == 2)
        self._show("get", "poddevices", "-A")
        narrate("It ends: its device is free")
        self._cluster.kubectl("delete", "pod", "infer", "-n", _NAMESPACE, "--wait=false")
        self._wait("one holder is left", lambda: set(self._holders()) == {"train"})
        self._show("get", "nodedevice", _NODE_DEVICE)

    def _compare(self, before: Any) -> None:
        narrate("What changed about the node and its pod: nothing")
        after = self._fingerprint()
        if after != before:
            raise Broken(f"it was {before} and is {after}")
        writers = {
            entry["manager"]
            for found in (self._node(), self._pod("train"))
            for entry in found["metadata"].get("managedFields", ())
        }
        if writers & _OURS:
            raise Broken(f"{', '.join(sorted(writers & _OURS))} wrote to the Node or the pod")
        say("  labels, annotations, taints, capacity and the pod's spec are the same as before")
        say(f"  who wrote them: {', '.join(sorted(writers))}")

    # -- what is read ------------------------------------------------------------------------------------------------------

    def _fingerprint(self) -> Any:
        """All of the Node and the pod that another program could change, without what a kubelet keeps writing."""
        node, pod = self._node(), self._pod("train")
        metadata = [
            [found["metadata"].get(key) for key in ("labels", "annotations", "finalizers")] for found in (node, pod)
        ]
        numbers = [node["status"][key] for key in ("capacity", "allocatable")]
        return metadata, node["spec"].get("taints"), numbers, pod["spec"]

    def _node(self) -> dict[str, Any]:
        return self._object("node", NODE_A)

    def _pod(self, name: str) -> dict[str, Any]:
        return self._object("pod", name, "-n", _NAMESPACE)

    def _capacity(self) -> str:
        return str(self._node()["status"]["allocatable"].get(RESOURCE, ""))

    def _phase(self, name: str) -> str:
        return str(self._pod(name)["status"].get("phase", ""))

    def _holders(self) -> dict[str, list[str]]:
        """Device IDs by the name of the pod that holds them."""
        found = self._items("nodedevices")
        if [each["metadata"]["name"] for each in found] != [_NODE_DEVICE]:
            return {}
        status = found[0].get("status", {})
        return {entry["name"]: list(entry["deviceIDs"]) for entry in status.get("allocations", ())}

    def _items(self, *arguments: str) -> list[dict[str, Any]]:
        return list(json.loads(self._cluster.kubectl("get", *arguments, "-o", "json"))["items"])

    def _object(self, *arguments: str) -> dict[str, Any]:
        return dict(json.loads(self._cluster.kubectl("get", *arguments, "-o", "json", "--show-managed-fields")))

    # -- what is done ------------------------------------------------------------------------------------------------------

    def _start(self, name: str, command: list[str]) -> None:
        process = Process(name, command, self._folder / f"{name.split()[-1]}.log")
        self._undo.callback(process.kill)
        process.start()

    def _apply(self, name: str) -> None:
        self._cluster.apply(yaml.safe_dump(a_pod(name, _NAMESPACE, {RESOURCE: 1})))

    def _wait(self, what: str, is_so: Any) -> None:
        wait_until(is_so, what)

    def _show(self, *arguments: str) -> None:
        show(self._cluster, *arguments)

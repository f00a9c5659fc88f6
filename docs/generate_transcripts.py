"""Writes the transcripts in docs/operations.md: what somebody with only kubectl sees when things go wrong. `make transcripts`.

The whole product runs for it, as in `make demo`, and things really go wrong. Only one wait is shorter than it would be: the
operator withdraws a silent agent's free devices after some seconds, not after five minutes.
"""

import json
import os
import shlex
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Final

import click
import yaml
from nodedevice_agent.plugins.simulated import control

from docs.transcripts import PageError, Part, Shown, Story, described, page_with, steady
from tests.cluster.errors import ClusterError
from tests.cluster.local.stack import GPU, NODE_A, NODE_B, Stack
from tests.cluster.waiting import wait_until

_PAGE: Final = Path(__file__).with_name("operations.md")
_NIC: Final = "example.com/nic"
_GPU_A, _GPU_B, _NIC_B = f"{NODE_A}.example.com.gpu", f"{NODE_B}.example.com.gpu", f"{NODE_B}.example.com.nic"
# A Lease lasts a minute; what is longer than its end and the check after it would only be waited for.
_SILENT_SECONDS: Final = 90.0
_GRACE_SECONDS: Final = 15
_SOON_SECONDS: Final = 20.0

_BROKEN: Final = r'{range .status.devices[?(@.health=="Unhealthy")]}{.id} since {.since}: {.message}{"\n"}{end}'

_POD: Final = """
apiVersion: v1
kind: Pod
metadata: {{name: {name}, namespace: default}}
spec:
  nodeName: {node}
  containers: [{{name: main, image: registry.example/app, resources: {{limits: {{{resource}: {count}}}}}}}]
"""


def main() -> int:
    os.environ["NODEDEVICE_AGENT_GRACE_SECONDS"] = str(_GRACE_SECONDS)
    os.environ["NODEDEVICE_AGENT_POLL_SECONDS"] = "1"
    # sockets need a short path, wherever this project lies
    folder = Path(tempfile.mkdtemp(prefix="nodedevice-docs-"))
    try:
        with Stack.start(folder, progress=click.echo) as stack:
            stories = _Stories(stack).narrate()
        _PAGE.write_text(page_with(_PAGE.read_text(), stories))
    except (ClusterError, PageError, TimeoutError) as exc:
        click.echo(f"no transcripts: {exc}", err=True)
        return 1
    except KeyboardInterrupt:
        return 130
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return 0


class _Stories:
    """What happens, and what is typed meanwhile."""

    def __init__(self, stack: Stack) -> None:
        self._stack = stack
        self._kubectl = stack.control_plane.kubectl

    def narrate(self) -> list[Story]:
        stories = []
        for story in (self._broken_free, self._broken_held, self._repair, self._dead_agent, self._conflict):
            stories.append(story())
            click.echo(stories[-1].title)
        return stories

    def _broken_free(self) -> Story:
        self._set_health("gpu-3", healthy=False)
        self._until_reported("DeviceUnhealthy", _GPU_A)
        self._until_capacity(NODE_A, 3)
        broken = self._part(
            f"`gpu-3` of {NODE_A}, which is free, breaks. It leaves the Node's capacity at once:",
            f"kubectl get nodedevice {_GPU_A} -o wide",
            f"kubectl describe nodedevice {_GPU_A}",
            f"kubectl get nodedevice {_GPU_A} -o jsonpath='{_BROKEN}'",
            _capacity(NODE_A),
        )
        self._set_health("gpu-3", healthy=True)
        self._until_reported("DeviceRecovered", _GPU_A)
        self._until_capacity(NODE_A, 4)
        recovered = self._part("It recovers:", _events("nodedevice", _GPU_A), _capacity(NODE_A))
        return Story("A free device breaks", (broken, recovered))

    def _broken_held(self) -> Story:
        device = self._give("train", NODE_A, 2)[0]
        self._set_health(device, healthy=False)
        self._until_reported("DeviceUnhealthy", "train")
        wait_until(lambda: "Unhealthy" in self._kubectl("get", "poddevices"), "it shows", _SOON_SECONDS)
        broken = self._part(
            f"`{device}` breaks while the pod `train` holds it. The pod keeps it, and the capacity stays:",
            "kubectl get poddevices",
            f"{_events('pod', 'train')} --types=Warning",
            _capacity(NODE_A),
        )
        delete = self._type("kubectl delete pod train --now")
        self._until_capacity(NODE_A, 3)
        ended = Part("When its pod ends, it is no longer advertised:", (delete, self._type(_capacity(NODE_A))))
        self._set_health(device, healthy=True)
        self._until_capacity(NODE_A, 4)
        return Story("A device breaks while a pod holds it", (broken, ended))

    def _repair(self) -> Story:
        overwrite = self._type(_patch(NODE_A, GPU, "1", writer="some-script"))
        self._until_reported("CapacityRepaired", _GPU_A)
        self._until_capacity(NODE_A, 4)
        words = f"A script overwrites the number of {NODE_A}. The operator restores it within a second, with an Event:"
        reason = "kubectl get events --field-selector reason=CapacityRepaired --sort-by=.involvedObject.kind"
        return Story(
            "Another client overwrites the capacity", (self._part(words, overwrite, _capacity(NODE_A), reason),)
        )

    def _dead_agent(self) -> Story:
        agent = self._stack.agents[NODE_B]
        self._give("infer", NODE_B, 1)
        agent.process.kill()
        self._until_reason(_GPU_B, "AgentReady", "LeaseExpired", _SILENT_SECONDS)
        self._until_reported("LeaseExpired", _GPU_B)
        silent = self._part(
            f"The agent of {NODE_B} is killed. 60 s after it renewed its Lease for the last time:",
            "kubectl get nodedevices -o wide",
            _capacity(NODE_B),
        )
        self._until_reported("FreeDevicesWithdrawn", _GPU_B)
        self._until_capacity(NODE_B, 1)
        withdrawn = self._part(
            "Another 5 minutes later the free devices are withdrawn; the pod `infer` keeps its device:",
            f"kubectl describe nodedevice {_GPU_B}",
            _capacity(NODE_B),
            "kubectl get poddevices",
        )
        agent.start()
        self._until_reported("LeaseRenewed", _GPU_B)
        self._until_capacity(NODE_B, 2)
        back = self._part("The agent is started again:", _events("nodedevice", _GPU_B), _capacity(NODE_B))
        return Story("An agent dies", (silent, withdrawn, back))

    def _conflict(self) -> Story:
        agent = self._stack.agents[NODE_B]
        agent.process.stop(_SOON_SECONDS)
        taken = self._type(_patch(NODE_B, _NIC, "8", writer="another-operator"))
        settings = agent.folder / "agent.yaml"
        changed = yaml.safe_load(settings.read_text())
        changed["plugins"]["simulated"].append({"resourceName": _NIC, "count": 2})
        settings.write_text(yaml.safe_dump(changed))
        agent.start()
        self._until_reported("CapacityConflict", _NIC_B)
        self._until_reason(_NIC_B, "Ready", "ForeignOwner", _SOON_SECONDS)
        get = f"kubectl get nodedevice {_NIC_B} -o wide"
        words = f"A device plugin registers for `{_NIC}`, which another client set on {NODE_B}:"
        held = self._part(words, taken, get, f"kubectl describe nodedevice {_NIC_B}")
        path = _NIC.replace("/", "~1")
        steps = [{"op": "remove", "path": f"/status/{field}/{path}"} for field in ("capacity", "allocatable")]
        left = self._type(f"kubectl patch node {NODE_B} --subresource=status --type=json -p '{json.dumps(steps)}'")
        self._until_reported("CapacityConflictEnded", _NIC_B)
        self._until_reason(_NIC_B, "Ready", "Ready", _SOON_SECONDS)
        gone = self._part(
            "The other client is stopped, and its number is removed from the Node:",
            left,
            get,
            _events("nodedevice", _NIC_B),
        )
        return Story("Another client owns the name", (held, gone))

    # -- what is typed --------------------------------------------------------------------------------------------------

    def _part(self, words: str, *typed: str | Shown) -> Part:
        """Type what is not typed yet."""
        return Part(words, tuple(self._type(one) if isinstance(one, str) else one for one in typed))

    def _type(self, command: str) -> Shown:
        _, *arguments = shlex.split(command)
        output = self._kubectl(*arguments)
        return Shown(command, steady(described(output) if arguments[0] == "describe" else output))

    # -- what is waited for ---------------------------------------------------------------------------------------------

    def _give(self, pod: str, node: str, count: int) -> list[str]:
        """Make a pod that asks for so many GPUs there, and wait for them. Their IDs."""
        self._stack.control_plane.apply(_POD.format(name=pod, node=node, resource=GPU, count=count))
        devices = "jsonpath={.status.devices}"
        find = ("get", "poddevice", pod, "--ignore-not-found", "-o", devices)
        wait_until(lambda: self._kubectl(*find) != "", f"{pod} holds devices", _SOON_SECONDS)
        return self._kubectl(*find).split(",")

    def _until_reported(self, reason: str, name: str) -> None:
        only = f"--field-selector=reason={reason},involvedObject.name={name}"
        find = ("get", "events", only, "-o", "name")
        wait_until(
            lambda: self._kubectl(*find) != "", f"{reason} is reported for {name}", _SOON_SECONDS + _GRACE_SECONDS
        )

    def _until_reason(self, name: str, kind: str, reason: str, seconds: float) -> None:
        path = f'jsonpath={{.items[?(@.metadata.name=="{name}")].status.conditions[?(@.type=="{kind}")].reason}}'
        wait_until(
            lambda: self._kubectl("get", "nodedevices", "-o", path) == reason, f"{name}: {kind} is {reason}", seconds
        )

    def _until_capacity(self, node: str, number: int) -> None:
        path = r"jsonpath={.status.capacity.example\.com/gpu}"
        wait_until(
            lambda: self._kubectl("get", "node", node, "-o", path) == str(number),
            f"{node} shows {number}",
            _SOON_SECONDS,
        )

    def _set_health(self, device: str, *, healthy: bool) -> None:
        control.set_health(self._stack.agents[NODE_A].folder, GPU, device, healthy)


def _capacity(node: str) -> str:
    return rf"kubectl get node {node} -o custom-columns='NODE:.metadata.name,GPUS:.status.capacity.example\.com/gpu'"


def _events(kind: str, name: str) -> str:
    return f"kubectl events --for {kind}/{name}"


def _patch(node: str, resource: str, number: str, writer: str) -> str:
    body = json.dumps({"status": {field: {resource: number} for field in ("capacity", "allocatable")}})
    return f"kubectl patch node {node} --subresource=status --field-manager={writer} -p '{body}'"


if __name__ == "__main__":
    sys.exit(main())

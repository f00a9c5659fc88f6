"""What nobody should send the operator: it says so once, takes nothing off a Node meanwhile, and is right afterwards."""

import base64
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from lightkube import ApiError
from lightkube.resources.core_v1 import Node
from lightkube.types import PatchType
from nodedevice_api import names

from tests.cluster.control_plane import ControlPlane
from tests.cluster.waiting import wait_until
from tests.fakes.trouble_proxy import TroubleProxy, refusal
from tests.integration.custom_resources import NodeDevice, allocation, device, pod_device
from tests.integration.operator_process import GPU, OperatorProcess, PlayedNode, delete, full, now_text, operator_writes

KINDS = ["nodes", names.NODE_DEVICES, names.POD_DEVICES]
EXPIRED = refusal(410, "Expired", "too old resource version: 1 (9)")


def error_line(status: bytes) -> bytes:
    return b'{"type":"ERROR","object":' + status + b"}\n"


@pytest.fixture(scope="module")
def proxy(installed: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TroubleProxy]:
    content = yaml.safe_load(installed.admin_kubeconfig.read_text())
    [cluster] = [entry["cluster"] for entry in content["clusters"]]
    authority = tmp_path_factory.mktemp("proxy") / "authority.pem"
    authority.write_bytes(base64.b64decode(cluster["certificate-authority-data"]))
    made = TroubleProxy(cluster["server"], authority)
    yield made
    made.close()


@pytest.fixture(scope="module")
def process(
    installed: ControlPlane, proxy: TroubleProxy, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[OperatorProcess]:
    folder: Path = tmp_path_factory.mktemp("operator")
    options = ("--agent-look-seconds", "1", "--no-leader-elect", "--no-required-plugins")
    made = OperatorProcess(installed, folder, *options)
    content = yaml.safe_load((folder / "kubeconfig").read_text())
    content["clusters"][0]["cluster"] = {"server": proxy.url}
    (folder / "kubeconfig").write_text(yaml.safe_dump(content))
    made.start()
    yield made
    made.close()


class Told:
    """What the operator has logged since the test began."""

    def __init__(self, operator: OperatorProcess) -> None:
        self._operator = operator
        self._first = len(operator.lines())

    def lines(self, event: str) -> list[dict[str, Any]]:
        return [line for line in self._operator.lines()[self._first :] if line["event"] == event]

    def wait(self, event: str) -> dict[str, Any]:
        """Wait for such a line; it must stay the only one."""
        wait_until(lambda: bool(self.lines(event)), f"the operator logs {event!r}")
        return self.lines(event)[0]


def pod_device_writes(installed: ControlPlane) -> list[str]:
    """What has been asked of PodDevices so far, but for taking those of earlier tests away: path and verb."""
    asked = operator_writes(installed, names.POD_DEVICES)
    return [f"{event['verb']} {event['requestURI']}" for event in asked if event["verb"] != "delete"]


@pytest.fixture
def told(process: OperatorProcess) -> Told:
    return Told(process)


@pytest.fixture
def operator(process: OperatorProcess, proxy: TroubleProxy) -> Iterator[OperatorProcess]:
    """The same process in every test: one that ended fails the test it ended in, and those after it."""
    pid = process.pid
    yield process
    proxy.rules.clear()
    wait_until(lambda: process.get("/readyz")[0] == 200, "the operator is ready afterwards")
    assert process.pid == pid
    assert "Traceback" not in process.log.read_text()


def settled(node: PlayedNode) -> PlayedNode:
    node.make()
    node.renew_lease()
    node.publish(healthy=4)
    node.wait_shown(4)
    node.wait_condition("Ready", "True")
    return node


@pytest.fixture
def played(installed: ControlPlane, operator: OperatorProcess) -> Iterator[Callable[[], PlayedNode]]:
    made: list[PlayedNode] = []

    def make() -> PlayedNode:
        made.append(PlayedNode(installed))
        return made[-1]

    yield make
    for node in made:
        node.remove()


@pytest.fixture
def node(played: Callable[[], PlayedNode]) -> PlayedNode:
    return settled(played())


@pytest.fixture
def bystander(installed: ControlPlane, played: Callable[[], PlayedNode]) -> Iterator[PlayedNode]:
    """A Node that has nothing to do with it: in the end nobody has written it."""
    made = settled(played())
    # what brought it here is in the log sooner or later; by when it was sent the two are told apart
    since = now_text()
    yield made
    assert made.shown() == ("4", "4")
    written = operator_writes(installed, f"/{made.name}", since)
    assert [f"{event['verb']} {event['requestURI']}" for event in written] == []


class TestAnswers:
    """Answers to the one write that matters most."""

    @pytest.mark.parametrize(
        ("status", "body", "headers", "count", "said"),
        [
            pytest.param(409, refusal(409, "Conflict", "the object has been modified"), {}, 1, None, id="409"),
            pytest.param(409, refusal(409, "Conflict", "again"), {}, 17, "look at node is repeated", id="409 for long"),
            pytest.param(500, refusal(500, "InternalError", "boom"), {}, 3, "look at node is repeated", id="500"),
            pytest.param(
                429,
                b"Too many requests, please try again later.\n",
                {"Retry-After": "1", "Content-Type": "text/plain"},
                2,
                "API server is too busy; coming back when it asks to",
                id="429",
            ),
            pytest.param(
                403,
                refusal(403, "Forbidden", "denied request: no", [{"message": "no"}]),
                {},
                3,
                "look at node is repeated",
                id="denied",
            ),
            pytest.param(200, b"<html>log in</html>", {}, 3, "look at node is repeated", id="something else"),
            pytest.param(200, b"{}", {}, 3, "look at node is repeated", id="nothing"),
        ],
    )
    def test_to_an_apply(
        self,
        node: PlayedNode,
        bystander: PlayedNode,
        proxy: TroubleProxy,
        told: Told,
        status: int,
        body: bytes,
        headers: dict[str, str],
        count: int,
        said: str | None,
    ) -> None:
        path = f"/nodes/{node.name}/status"
        rule = proxy.rule("PATCH", path, count, status, body, {"Content-Type": "application/json", **headers})
        node.publish(healthy=3, broken=1)
        node.wait_shown(3)
        assert rule.given == count
        if said is not None:
            assert len(told.lines(said)) == 1
        assert told.lines("API server forbids it; grant what the chart's role nodedevice-operator has") == []


class TestWatches:
    """What comes over a watch, or does not."""

    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize(
        "again",
        [
            pytest.param((410, EXPIRED, {}), id="410"),
            pytest.param((500, refusal(500, "InternalError", "boom"), {}), id="500"),
            pytest.param((429, b"Too many requests\n", {"Retry-After": "1"}), id="429"),
        ],
    )
    def test_that_is_cut_and_not_opened_again_at_once(
        self,
        node: PlayedNode,
        bystander: PlayedNode,
        proxy: TroubleProxy,
        kind: str,
        again: tuple[int, bytes, dict[str, str]],
    ) -> None:
        rule = proxy.rule("WATCH", f"/{kind}", 2, *again)
        assert proxy.cut(kind) == 1
        follows(node)
        wait_until(lambda: rule.is_over and proxy.open_watches(kind) == 1, "it is open again")
        follows(node)

    @pytest.mark.parametrize("kind", KINDS)
    def test_that_is_cut_in_the_middle_of_a_line(
        self, node: PlayedNode, bystander: PlayedNode, proxy: TroubleProxy, kind: str
    ) -> None:
        proxy.cut_in_the_next_line(kind)
        if kind == names.POD_DEVICES:
            somebody_makes_a_pod_device(node)
        follows(node)
        wait_until(lambda: not proxy.is_to_be_cut(kind), "it was cut")
        follows(node)

    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize(
        "line",
        [
            pytest.param(error_line(EXPIRED), id="410 Gone"),
            pytest.param(error_line(refusal(500, "InternalError", "etcd is away")), id="500"),
        ],
    )
    def test_that_ends_with_an_error(
        self, node: PlayedNode, bystander: PlayedNode, proxy: TroubleProxy, kind: str, line: bytes
    ) -> None:
        assert proxy.say(kind, line) == 1
        follows(node)

    def test_of_nodes_that_ends_with_an_error_again_and_again(
        self, node: PlayedNode, bystander: PlayedNode, proxy: TroubleProxy, told: Told
    ) -> None:
        """Each time it is open again within about a second, so that a Node is not left as somebody else made it."""
        for _ in range(7):
            wait_until(lambda: proxy.open_watches("nodes") == 1, "it is open again")
            proxy.say("nodes", error_line(refusal(500, "InternalError", "etcd is away")))
            wait_until(lambda: proxy.open_watches("nodes") == 0, "it was given up")
        follows(node)
        begun = told.lines("watch failed and begins anew")
        assert begun
        assert max(line["seconds"] for line in begun) <= 1.2

    @pytest.mark.parametrize(
        "line",
        [
            pytest.param(b"<html>\n", id="no JSON"),
            pytest.param(b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"x"}}}\n', id="no version"),
        ],
    )
    def test_that_brings_what_is_not_understood(
        self, node: PlayedNode, bystander: PlayedNode, proxy: TroubleProxy, told: Told, line: bytes
    ) -> None:
        assert proxy.say(names.NODE_DEVICES, line) == 1
        told.wait("watch brings what is not understood")
        follows(node)
        assert len(told.lines("watch brings what is not understood")) == 1

    def test_and_the_list_after_it_fails(
        self, node: PlayedNode, bystander: PlayedNode, proxy: TroubleProxy, told: Told
    ) -> None:
        """A continue token that has expired, an error, and a page that somebody else made."""
        for status, body in ((410, EXPIRED), (500, b""), (200, b"<html>")):
            proxy.rule("GET", f"/{names.NODE_DEVICES}", 1, status, body)
        assert proxy.say(names.NODE_DEVICES, error_line(EXPIRED)) == 1
        follows(node)
        assert len(told.lines("list failed and begins anew")) == 1


class TestNodes:
    """Nodes that no API server of today would send."""

    def test_one_that_is_not_understood(
        self, node: PlayedNode, bystander: PlayedNode, proxy: TroubleProxy, told: Told
    ) -> None:
        """It is left alone, and what names it too, until it is understood again; it is not taken for one that is gone."""
        found: Any = node.client.get(Node, node.name)
        odd = {**found.to_dict(), "status": {"capacity": ["eight"]}}
        for _ in range(2):
            assert proxy.say("nodes", json.dumps({"type": "MODIFIED", "object": odd}).encode() + b"\n") == 1
        assert told.wait("object is not understood, and left alone")["object"] == node.name
        before = node.conditions()["Advertised"]
        node.publish(healthy=3, broken=1)
        other = settled(PlayedNode(node.control_plane))
        follows(other)
        other.remove()
        assert node.shown() == ("4", "4")
        assert node.conditions()["Advertised"] == before
        # a heartbeat of its kubelet is enough
        node.kubelet_writes(capacity={"cpu": "9"})
        node.wait_shown(3)
        follows(node)
        assert len(told.lines("object is not understood, and left alone")) == 1


class TestNodeDevices:
    """Objects that an agent of this version would never write."""

    def test_one_of_a_resource_that_has_one_already(
        self, installed: ControlPlane, node: PlayedNode, bystander: PlayedNode
    ) -> None:
        name = f"{node.name}.copy"
        owner = {"apiVersion": "v1", "kind": "Node", "name": node.name, "uid": node.uid}
        body = {
            "metadata": {"name": name, "ownerReferences": [owner]},
            "spec": {"nodeName": node.name, "resourceName": GPU},
        }
        try:
            node.client.apply(NodeDevice.from_dict(body), field_manager="admin")
            wait_until(lambda: condition_of(node, name, "Ready").get("reason") == names.Reason.WRONG_NAME, "it is told")
            status = NodeDevice.Status.from_dict({"metadata": {"name": name}, "status": full(healthy=9)})
            node.client.apply(status, field_manager="admin", force=True)
            follows(node)
            told = condition_of(node, name, "Advertised")
            assert (told["status"], told["reason"]) == ("False", names.Reason.WRONG_NAME)
            assert f"by the NodeDevice {node.nd_name()}" in told["message"]
            node.wait_condition("Ready", "True")
        finally:
            delete(node.client, NodeDevice, name)
        follows(node)

    def test_one_of_a_node_that_is_not_there(self, installed: ControlPlane, bystander: PlayedNode) -> None:
        name = names.node_device_name("nowhere", GPU)
        body = {"metadata": {"name": name}, "spec": {"nodeName": "nowhere", "resourceName": GPU}}
        try:
            installed.client.apply(NodeDevice.from_dict(body), field_manager="admin")
            status = NodeDevice.Status.from_dict({"metadata": {"name": name}, "status": full(healthy=9)})
            installed.client.apply(status, field_manager="admin")

            def reason() -> str | None:
                return condition_of(bystander, name, "Advertised").get("reason")

            wait_until(lambda: reason() == names.Reason.NODE_MISSING, "it is told")
        finally:
            delete(installed.client, NodeDevice, name)

    def test_numbers_that_contradict_its_devices(self, node: PlayedNode, bystander: PlayedNode, told: Told) -> None:
        held = allocation("uid-a", "main", "gpu-0", "gpu-1")
        node.publish(healthy=4, allocations=[held])
        # as the API takes it: allocated + available is no more than total
        by_hand = {"status": {"allocated": 0, "available": 4}}
        node.client.patch(NodeDevice.Status, node.nd_name(), by_hand, patch_type=PatchType.MERGE, field_manager="admin")
        line = told.wait("NodeDevice contradicts itself")
        assert "available is 4, but 2 of the devices listed are healthy and held by nobody" in line["problem"]
        [message] = node.wait_events("StatusContradictsItself", about=node.nd_name())
        assert message.startswith(f"{GPU} on {node.name}: available is 4")
        node.wait_shown(2)
        node.publish(healthy=4, allocations=[held])
        node.wait_shown(4)
        follows(node)
        assert len(told.lines("NodeDevice contradicts itself")) == 1

    def test_as_many_devices_as_the_schema_takes(self, node: PlayedNode, bystander: PlayedNode) -> None:
        most = 4096

        def status(broken: int) -> dict[str, Any]:
            ids = [f"{number:04d}-{'x' * 123}" for number in range(most)]
            devices = [device(i, "Unhealthy" if place < broken else "Healthy") for place, i in enumerate(ids)]
            allocations = [allocation(f"uid-{n:04d}", "main", *ids[-4 - 4 * n :][:4]) for n in range(512)]
            held = 4 * len(allocations)
            return {
                "devices": devices,
                "allocations": allocations,
                "total": most,
                "healthy": most - broken,
                "allocated": held,
                "available": most - broken - held,
            }

        node.publish(**status(0))
        node.wait_shown(most, timeout_seconds=120)
        node.publish(**status(95))
        node.wait_shown(most - 95, timeout_seconds=120)
        node.wait_condition("Ready", "True")
        node.publish(healthy=4)
        node.wait_shown(4)

    def test_a_status_of_a_version_to_come(
        self, node: PlayedNode, bystander: PlayedNode, proxy: TroubleProxy, told: Told
    ) -> None:
        """What an API server with a newer CRD would send: more fields, and some that have become something else."""
        found: Any = node.client.get(NodeDevice, node.nd_name())
        body = found.to_dict()
        for change, is_told in (({"partitions": [{"of": "gpu-0"}]}, False), ({"devices": {"gpu-0": {}}}, True)):
            version = int(body["metadata"]["resourceVersion"]) + is_told
            body["metadata"]["resourceVersion"] = str(version)
            sent = {**body, "status": {**body["status"], **change}}
            line = json.dumps({"type": "MODIFIED", "object": sent}).encode() + b"\n"
            assert proxy.say(names.NODE_DEVICES, line) == 1
        assert told.wait("object is not understood, and left alone")["object"] == node.nd_name()
        node.renew_lease()
        assert node.shown() == ("4", "4")
        follows(node)
        assert len(told.lines("object is not understood, and left alone")) == 1

    @pytest.mark.parametrize(
        ("namespace", "pod"),
        [
            pytest.param("default", "../../../nodes", id="a path"),
            pytest.param("..", "..", id="dots"),
            pytest.param("default", "a/status", id="a subresource"),
            pytest.param("default", "a?watch=1", id="a query"),
            pytest.param("kube-system", "no-such-pod", id="no such pod"),
            pytest.param("Default", "a\nb", id="no name"),
        ],
    )
    def test_an_allocation_of_what_is_no_pod(
        self,
        installed: ControlPlane,
        operator: OperatorProcess,
        node: PlayedNode,
        bystander: PlayedNode,
        told: Told,
        namespace: str,
        pod: str,
    ) -> None:
        before = pod_device_writes(installed)
        held = allocation("uid-a", "main", "gpu-0", namespace=namespace, name=pod)
        waits = {
            "podUID": "uid-b",
            "container": "main",
            "reason": "NotEnoughDevices",
            "namespace": namespace,
            "name": pod,
        }
        node.publish(healthy=4, broken=1, allocations=[held], waiting=[waits])
        node.wait_shown(4)
        node.publish(healthy=3, broken=2, allocations=[held], waiting=[waits])
        node.wait_shown(3)
        node.wait_condition("Healthy", "False")
        node.wait_condition("Ready", "True")
        assert operator.get("/readyz")[0] == 200
        assert told.lines("look at node is repeated") == []
        assert pod_device_writes(installed) == before


@pytest.mark.parametrize("hours", [-1, 1])
def test_a_clock_that_is_an_hour_off(node: PlayedNode, bystander: PlayedNode, hours: int) -> None:
    renew_lease(node, hours * 3600)
    follows(node)
    # the next renewal comes from a clock that was put right
    renew_lease(node, 0)
    follows(node)
    assert node.events(names.Reason.LEASE_EXPIRED, about=node.nd_name()) == []
    assert node.conditions()["AgentReady"]["status"] == "True"


def test_an_admission_policy_that_refuses_the_write(
    installed: ControlPlane, operator: OperatorProcess, node: PlayedNode, bystander: PlayedNode, told: Told
) -> None:
    manifest = POLICY.replace("NAME", f"refuses-{node.name}").replace("NODE", node.name)
    installed.apply(manifest)
    try:
        wait_until(lambda: is_refused(node), "the policy is in force")
        node.publish(healthy=3, broken=1)
        line = told.wait("look at node is repeated")
        assert "this Node is frozen" in line["problem"]
        assert line["node"] == node.name
        assert node.shown() == ("4", "4")
        assert operator.get("/readyz")[0] == 200
    finally:
        for kind in ("validatingadmissionpolicybinding", "validatingadmissionpolicy"):
            installed.kubectl("delete", kind, f"refuses-{node.name}")
    node.wait_shown(3)
    follows(node)
    assert len(told.lines("look at node is repeated")) == 1


POLICY = """
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: NAME}
spec:
  matchConstraints:
    resourceRules:
      - {apiGroups: [""], apiVersions: [v1], resources: [nodes/status], operations: [UPDATE], resourceNames: [NODE]}
  validations:
    - {expression: "object.status.capacity == oldObject.status.capacity", message: this Node is frozen, reason: Forbidden}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: NAME}
spec: {policyName: NAME, validationActions: [Deny]}
"""


def is_refused(node: PlayedNode) -> bool:
    """Whether a change of the Node's capacity is refused; nothing is changed."""
    try:
        node.client.patch(Node.Status, node.name, {"status": {"capacity": {"example.com/probe": "1"}}}, dry_run=True)
    except ApiError as error:
        return error.status.code == 403
    return False


def follows(node: PlayedNode) -> None:
    """Its Node goes along with its devices, is repaired, and is told to be ready."""
    for broken in (1, 0):
        node.publish(healthy=4 - broken, broken=broken)
        node.wait_shown(4 - broken)
    node.wait_condition("Ready", "True")


def condition_of(node: PlayedNode, name: str, kind: str) -> dict[str, Any]:
    """That condition of any NodeDevice; {} where it has none."""
    found: Any = node.client.get(NodeDevice, name)
    return next((c for c in (found.status or {}).get("conditions", ()) if c["type"] == kind), {})


def renew_lease(node: PlayedNode, ahead_seconds: int) -> None:
    """Renew the agent's Lease by a clock that is so far ahead."""
    moment = time.time() + ahead_seconds
    text = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(moment))
    renewed = f"{text}.{time.time_ns() // 1000 % 1000000:06d}Z"
    spec = {"holderIdentity": node.name, "leaseDurationSeconds": names.AGENT_LEASE_SECONDS, "renewTime": renewed}
    metadata = {"name": node.name, "namespace": names.AGENTS_NAMESPACE}
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}
    node.control_plane.apply(json.dumps(lease))


def somebody_makes_a_pod_device(node: PlayedNode) -> None:
    """One that nothing calls for: the operator takes it away."""
    body = pod_device("default", f"pod-{node.name}", nodeName=node.name)
    node.client.apply(body, field_manager="admin")

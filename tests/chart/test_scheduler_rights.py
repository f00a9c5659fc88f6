"""What the extender and the scheduler beside it may do, tried with their tokens; and that a real scheduler needs no more."""

import json
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from nodedevice_api.names import GROUP

from hack import yaml_text
from tests.chart.rendering import named, pod_of, render
from tests.chart.test_chart_rights import Right, each_verb, rights
from tests.chart.values import VALUE_SETS
from tests.cluster.accounts import client_with_token
from tests.cluster.api import ApiError, Client, Event, Node, Object, PatchType, Pod, PodBinding
from tests.cluster.build.binaries import find
from tests.cluster.chart import SYSTEM_NAMESPACE, is_hook
from tests.cluster.cluster import a_pod
from tests.cluster.control_plane.control_plane import ControlPlane
from tests.cluster.processes.processes import Process, reserved_ports
from tests.cluster.waiting import wait_until

pytestmark = pytest.mark.cluster

ZONE = "topology.kubernetes.io/zone"
CHOICE = "nodedevice.io/assigned-parts"
MANAGED = "example.com/gpu"
VALUES = {
    "scheduler": VALUE_SETS["a second scheduler"],
    "extender": VALUE_SETS["an extender for the cluster's scheduler"],
}
EXTENDER: set[Right] = {
    *each_verb("", "pods", "get", "list", "watch"),
    *each_verb("", "pods/binding", "create"),
    *each_verb(GROUP, "nodedevices", "list", "watch"),
}
LEASE = each_verb("coordination.k8s.io", "leases ['nodedevice-extender']", "get", "create", "update")


def parts(component: str) -> list[dict[str, Any]]:
    """The chart's objects of that component, but for its pods."""
    return [
        each
        for each in render(VALUES[component])
        if not is_hook(each)
        and each["metadata"].get("labels", {}).get("app.kubernetes.io/component") == component
        and each["kind"] not in {"Deployment", "PodDisruptionBudget"}
    ]


@pytest.fixture(scope="module", params=list(VALUES))
def component(request: pytest.FixtureRequest, installed: ControlPlane) -> Iterator[str]:
    """Account, roles and policy of one of the two, in place while its tests run."""
    name: str = request.param
    manifests = yaml_text.dump_all(parts(name))
    installed.apply(manifests)
    yield name
    installed.kubectl("delete", "--ignore-not-found", "-f", "-", stdin=manifests)


@pytest.fixture(scope="module")
def account(installed: ControlPlane, component: str) -> Iterator[Client]:
    with client_with_token(installed, SYSTEM_NAMESPACE, f"nodedevice-{component}") as client:
        # roles are in force some moments after they were made
        wait_until(lambda: rights(client, SYSTEM_NAMESPACE) >= EXTENDER | LEASE, "it has an extender's rights")
        yield client


@pytest.fixture(scope="module")
def node(installed: ControlPlane) -> Iterator[str]:
    """A node of a zone, which the API server copies into each Binding."""
    installed.add_node("bound-node")
    labels = {"metadata": {"labels": {ZONE: "a"}}}
    installed.client.patch(Node, "bound-node", labels, patch_type=PatchType.MERGE)
    yield "bound-node"
    installed.remove_node("bound-node")


def bind(client: Client, namespace: str, kind: str = "Node", dry_run: bool = False, **metadata: Any) -> None:
    target = Object(kind=kind, name="bound-node")
    meta = Object(name="pod-a", namespace=namespace, **metadata)
    client.create(PodBinding(metadata=meta, target=target), "pod-a", namespace=namespace, dry_run=dry_run)


@pytest.fixture
def waiting(installed: ControlPlane, node: str, namespace: str) -> str:
    """A pod that no scheduler takes; its namespace."""
    pod = a_pod("pod-a", namespace, {})
    pod["spec"]["schedulerName"] = "nobody"
    installed.apply(json.dumps(pod))
    return namespace


@pytest.mark.parametrize("component", ["extender"], indirect=True)
def test_rights_of_the_extender_alone(installed: ControlPlane, account: Client) -> None:
    with client_with_token(installed, SYSTEM_NAMESPACE, "default") as nobody:
        for namespace in (SYSTEM_NAMESPACE, "kube-system", "default"):
            own = LEASE if namespace == SYSTEM_NAMESPACE else set()
            assert rights(account, namespace) - rights(nobody, namespace) == EXTENDER | own


@pytest.mark.parametrize("component", ["scheduler"], indirect=True)
def test_rights_beside_a_scheduler_are_those_of_both(account: Client) -> None:
    found = rights(account, SYSTEM_NAMESPACE)
    assert found >= EXTENDER | LEASE
    assert ("coordination.k8s.io", "leases ['nodedevice-scheduler']", "update") in found
    assert not {right for right in found if right[1].startswith("secrets")}


def test_the_choice_is_all_it_may_write_into_a_pod(installed: ControlPlane, account: Client, waiting: str) -> None:
    """Each refusal names what; then the proper one passes, with what the API server itself adds."""
    refused: dict[str, dict[str, Any]] = {
        f"no annotation of a pod but {CHOICE}": {"annotations": {"example.com/a": "b", CHOICE: "{}"}},
        "of at most 16384 characters": {"annotations": {CHOICE: "a" * 16385}},
        "sets no labels of a pod": {"labels": {"topology.kubernetes.io/rack": "a"}},
        "target.kind: Unsupported value": {"kind": "Other"},  # by the API server itself
    }
    for sentence, more in refused.items():

        def is_refused(sentence: str = sentence, more: dict[str, Any] = more) -> bool:
            try:
                bind(account, waiting, dry_run=True, **more)
            except ApiError as refusal:
                return sentence in str(refusal)
            return False

        # a policy is in force some moments after it was made
        wait_until(is_refused, sentence)
    made = installed.client.get(Pod, "pod-a", namespace=waiting)
    bind(account, waiting, annotations={CHOICE: "{}"}, uid=made.metadata.uid)
    bound = installed.client.get(Pod, "pod-a", namespace=waiting)
    assert bound.spec.nodeName == "bound-node"
    assert (bound.metadata.annotations or {})[CHOICE] == "{}"
    assert (bound.metadata.labels or {}) == {ZONE: "a"}


def test_others_bind_as_before(installed: ControlPlane, component: str, waiting: str) -> None:
    bind(installed.client, waiting, annotations={"example.com/a": "b"}, labels={"team": "a"})


@pytest.fixture
def second_scheduler(installed: ControlPlane, component: str, node: str, tmp_path: Path) -> Iterator[Process]:
    """A real kube-scheduler with the chart's configuration and account; no extender beside it."""
    data = named("ConfigMap", "nodedevice-scheduler", VALUES[component])["data"]
    kubeconfig = installed.service_account_kubeconfig(SYSTEM_NAMESPACE, "nodedevice-scheduler", tmp_path / "account")
    configuration = yaml_text.load(data["scheduler.yaml"])
    # a pod finds API server and token by itself
    configuration["clientConnection"]["kubeconfig"] = str(kubeconfig)
    file = tmp_path / "scheduler.yaml"
    with reserved_ports(2) as (port, extender):
        configuration["extenders"][0]["urlPrefix"] = f"http://127.0.0.1:{extender}"
        file.write_text(yaml_text.dump(configuration))
        command = [str(find(["kube-scheduler"])["kube-scheduler"]), f"--config={file}", f"--secure-port={port}"]
        command += [f"--authentication-kubeconfig={kubeconfig}", f"--authorization-kubeconfig={kubeconfig}"]
        process = Process("second-scheduler", [*command, "--bind-address=127.0.0.1"], tmp_path / "log")
        process.start()
        process.wait_ready(lambda: all(answers(port, path) for path in probes(component)), 60)
        yield process
        process.kill()
        installed.kubectl("delete", "lease", "nodedevice-scheduler", "-n", SYSTEM_NAMESPACE, "--ignore-not-found")


def probes(component: str) -> set[str]:
    """What the kubelet would ask the scheduler for."""
    pod = pod_of(named("Deployment", "nodedevice-scheduler", VALUES[component]))
    [container] = [each for each in pod["containers"] if each["name"] == "kube-scheduler"]
    return {container[probe]["httpGet"]["path"] for probe in ("startupProbe", "livenessProbe", "readinessProbe")}


def answers(port: int, path: str) -> bool:
    """As a kubelet asks: without a token, and whatever the certificate is."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with urlopen(f"https://127.0.0.1:{port}{path}", context=context, timeout=60) as answer:
            return int(answer.status) == 200
    except OSError:
        return False


def of_the_second(name: str, namespace: str, limits: dict[str, int]) -> str:
    pod = a_pod(name, namespace, limits)
    pod["spec"] |= {"schedulerName": "nodedevice-scheduler", "nodeSelector": {"kubernetes.io/hostname": "bound-node"}}
    return json.dumps(pod)


@pytest.mark.parametrize("component", ["scheduler"], indirect=True)
def test_while_the_extender_is_away_its_pods_wait_and_others_never_notice(
    installed: ControlPlane, second_scheduler: Process, namespace: str
) -> None:
    capacity = {"status": {"capacity": {MANAGED: "8"}, "allocatable": {MANAGED: "8"}}}
    installed.client.patch(Node.Status, "bound-node", capacity, patch_type=PatchType.MERGE)
    installed.apply(of_the_second("with-parts", namespace, {MANAGED: 2}))
    installed.apply(of_the_second("without", namespace, {}))

    def node_of(name: str) -> str | None:
        spec = installed.client.get(Pod, name, namespace=namespace).spec
        assert spec is not None
        return str(spec.nodeName) if spec.nodeName else None

    def words() -> str:
        second_scheduler.verify_alive()
        found = installed.client.list(Event, namespace=namespace, fields={"involvedObject.name": "with-parts"})
        return " ".join(event.message or "" for event in found if event.reason == "FailedScheduling")

    wait_until(lambda: node_of("without") == "bound-node", "the other pod is bound")
    wait_until(lambda: "/filter" in words(), "the scheduler says what it waits for")
    assert node_of("with-parts") is None
    assert "orbidden" not in second_scheduler.log.read_text()
    leases = installed.kubectl("get", "leases", "-n", SYSTEM_NAMESPACE, "-o", "name")
    assert "lease.coordination.k8s.io/nodedevice-scheduler" in leases

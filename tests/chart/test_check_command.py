"""`helm test`, on a real API server with its own account: a table of the components, and what is wrong in words."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from nodedevice_api import names
from nodedevice_operator import __version__
from nodedevice_operator.cli.crds import NAMES

from tests.chart.values import Command
from tests.cluster.agent_objects import lease, now_text
from tests.cluster.chart import SYSTEM_NAMESPACE, install_chart
from tests.cluster.control_plane.control_plane import ControlPlane
from tests.integration.operator_process import NIC, OperatorProcess, PlayedNode

pytestmark = pytest.mark.cluster


@pytest.fixture
def operator(installed: ControlPlane, tmp_path: Path) -> Iterator[OperatorProcess]:
    process = OperatorProcess(installed, tmp_path / "operator")
    process.start()
    yield process
    process.close()


@pytest.fixture
def node(installed: ControlPlane) -> Iterator[PlayedNode]:
    made = PlayedNode(installed)
    made.renew_lease()
    made.make()
    made.publish(healthy=3)
    yield made
    made.remove()
    installed.kubectl("delete", "leases", "--all", "-n", names.AGENTS_NAMESPACE)


def rows(output: str) -> dict[tuple[str, str], tuple[str, str]]:
    """By what and name: ok or NO, and what it says."""
    found = {}
    table = [line for line in output.splitlines() if not line.startswith("waiting up to ")]
    for line in table[1:]:
        verdict, what, name, message = line.split(maxsplit=3)
        found[what, name] = verdict, message
    return found


def test_all_is_well(operator: OperatorProcess, node: PlayedNode, as_hook: Command) -> None:
    status, output = as_hook("check", "--wait-seconds", "30")
    assert status == 0, output
    found = rows(output)
    assert {verdict for verdict, _ in found.values()} == {"ok"}
    for name in NAMES:
        assert found["kind", name] == ("ok", f"is served, of release {__version__}")
    assert [message for (what, _), (_, message) in found.items() if what == "operator"] == ["leads"]
    assert found["agents", "-"] == ("ok", "1 renew their Leases")
    assert found["NodeDevice", node.nd_name()] == ("ok", "3 of 3 available, Ready")


def test_shows_why_a_resource_is_not_ready(operator: OperatorProcess, node: PlayedNode, as_hook: Command) -> None:
    node.wait_condition("Ready", "True")
    node.make(NIC)
    node.publish(NIC, healthy=0, broken=1)
    node.wait_condition("Ready", "False", resource=NIC)
    status, output = as_hook("check", "--wait-seconds", "0")
    assert status == 1
    found = rows(output)
    assert found["NodeDevice", node.nd_name()][0] == "ok"
    # the agent that is played gives no message
    assert found["NodeDevice", node.nd_name(NIC)] == ("NO", "0 of 1 available; NoHealthyDevices")


def test_names_a_silent_agent(
    installed: ControlPlane, operator: OperatorProcess, node: PlayedNode, as_hook: Command
) -> None:
    installed.apply(json.dumps(lease("silent", "2026-01-02T03:04:05.000000Z")))
    status, output = as_hook("check", "--wait-seconds", "0")
    assert status == 1
    assert rows(output)["agent", "silent"][0] == "NO"
    assert rows(output)["agents", "-"] == ("ok", "1 renew their Leases")


def test_an_operator_that_has_died_is_reported(installed: ControlPlane, node: PlayedNode, as_hook: Command) -> None:
    dead = lease(names.OPERATOR_LEASE, now_text(-600), 4, namespace=SYSTEM_NAMESPACE, holder="gone")
    installed.kubectl("delete", "lease", names.OPERATOR_LEASE, "-n", SYSTEM_NAMESPACE, "--ignore-not-found")
    installed.apply(json.dumps(dead))
    try:
        status, output = as_hook("check", "--wait-seconds", "0")
        assert status == 1
        verdict, message = rows(output)["operator", "gone"]
        assert (verdict, message.startswith("renewed its Lease at ")) == ("NO", True)
        assert rows(output)["NodeDevice", node.nd_name()][1] == "3 of 3 available; no operator has reconciled it yet"
    finally:
        installed.kubectl("delete", "lease", names.OPERATOR_LEASE, "-n", SYSTEM_NAMESPACE)


def test_nothing_installed_is_reported_too(installed: ControlPlane, as_hook: Command) -> None:
    installed.kubectl("delete", "crd", *NAMES)
    installed.kubectl("delete", "lease", names.OPERATOR_LEASE, "-n", SYSTEM_NAMESPACE, "--ignore-not-found")
    try:
        status, output = as_hook("check", "--wait-seconds", "0")
        assert status == 1
        found = rows(output)
        assert all(found["kind", name][0] == "NO" and "crds apply" in found["kind", name][1] for name in NAMES)
        assert found["operator", "-"][1].startswith("none leads")
        assert found["agents", "-"] == ("NO", "0 renew their Leases; check the agents' pods and logs")
    finally:
        install_chart(installed)


def test_a_missing_image_is_no_slow_agent(installed: ControlPlane, as_hook: Command) -> None:
    installed.kubectl("delete", "lease", names.OPERATOR_LEASE, "-n", SYSTEM_NAMESPACE, "--ignore-not-found")
    labels = {"app.kubernetes.io/name": "nodedevice", "app.kubernetes.io/component": "agent"}
    # of no node, so that nobody plays it
    spec = {"containers": [{"name": "agent", "image": "none"}], "nodeSelector": {"none": "none"}}
    for pod, state in (("agent-1", {"waiting": {"reason": "ImagePullBackOff"}}), ("agent-2", None)):
        metadata = {"name": pod, "namespace": SYSTEM_NAMESPACE, "labels": labels}
        installed.apply(json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}))
        if state is not None:
            seen = {"name": "agent", "image": "none", "imageID": "", "ready": False, "restartCount": 0}
            patch = json.dumps({"status": {"containerStatuses": [{**seen, "state": state}]}})
            installed.kubectl("patch", "pod", pod, "-n", SYSTEM_NAMESPACE, "--subresource=status", "-p", patch)
    try:
        status, output = as_hook("check", "--wait-seconds", "0")
    finally:
        installed.kubectl("delete", "pods", "agent-1", "agent-2", "-n", SYSTEM_NAMESPACE, "--grace-period=0", "--force")
    assert status == 1
    found = rows(output)
    assert found["pod", "agent-1"][1].startswith("ImagePullBackOff on no node: the node does not get its image")
    assert found["pod", "agent-2"] == ("NO", "Pending on no node: kubectl describe pod has why")

"""Pods that wait for a resource before anybody manages it are marked before its capacity is on a Node."""

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from nodedevice_api.names import REQUIRED_PLUGINS_ANNOTATION as ANNOTATION
from nodedevice_operator.requiredplugins.policy import NAME, POLICIES

from tests.cluster.api import Object, Pod
from tests.cluster.chart import install_chart
from tests.cluster.control_plane.control_plane import ControlPlane
from tests.cluster.waiting import wait_until
from tests.integration.operator_process import GPU, NIC, OperatorProcess, PlayedNode, operator_writes

pytestmark = pytest.mark.cluster


@pytest.fixture
def node(installed: ControlPlane, namespace: str) -> Iterator[PlayedNode]:
    # a test begins without the name, whoever kept it; the API server applies what was deleted for some time
    for kind in (POLICIES, "mutatingadmissionpolicybindings"):
        installed.kubectl("delete", kind, NAME, "--ignore-not-found")
    wait_until(lambda: not is_marked_when_made(installed, namespace), "nobody marks pods", 60)
    made = PlayedNode(installed)
    made.renew_lease()
    made.make()
    yield made
    made.remove()


@pytest.fixture
def process(installed: ControlPlane, tmp_path: Path) -> Iterator[OperatorProcess]:
    """An operator that is started by the test: after the pods were made."""
    made = OperatorProcess(installed, tmp_path / "late")
    yield made
    made.close()


def make_pod(
    installed: ControlPlane, namespace: str, name: str, resource: str, *, dry_run: bool = False, **spec: Any
) -> Any:
    main = Object(name="main", image="img", resources=Object(limits={resource: "1"}))
    pod = Pod(metadata=Object(name=name, namespace=namespace), spec=Object(containers=[main], **spec))
    return installed.client.create(pod, dry_run=dry_run)


def is_marked_when_made(installed: ControlPlane, namespace: str) -> bool:
    """Whether a pod that asks for a GPU would be; none is made."""
    made = make_pod(installed, namespace, "probe", GPU, dry_run=True)
    return ANNOTATION in (made.metadata.annotations or {})


def marks(installed: ControlPlane, namespace: str) -> dict[str, str | None]:
    """By pod, what the annotation says; None where there is none."""
    pods = installed.client.list(Pod, namespace=namespace)
    return {str(pod.metadata.name): (pod.metadata.annotations or {}).get(ANNOTATION) for pod in pods if pod.metadata}


def test_who_waited_before_is_marked_before_the_capacity_is_there(
    installed: ControlPlane, process: OperatorProcess, node: PlayedNode, namespace: str
) -> None:
    make_pod(installed, namespace, "early", GPU)
    make_pod(installed, namespace, "gated", GPU, schedulingGates=[Object(name="example.com/later")])
    make_pod(installed, namespace, "bound", GPU, nodeName=node.name)
    make_pod(installed, namespace, "other", NIC)
    node.publish(healthy=2, delivery="nri")
    process.start()
    node.wait_shown(2)
    # asked once, at once: by now nothing is left to wait for
    mark = "[ nodedevice ]"
    assert marks(installed, namespace) == {"early": mark, "gated": mark, "bound": None, "other": None}
    patches = operator_writes(installed, f"/namespaces/{namespace}/pods/")
    assert {event["objectRef"]["name"] for event in patches} == {"early", "gated"}
    [capacity] = operator_writes(installed, f"/nodes/{node.name}/status")
    assert max(map(moment, patches)) < moment(capacity)
    process.stop()
    make_pod(installed, namespace, "late", GPU)
    process.start()
    node.advertise(3, delivery="nri")
    assert len(operator_writes(installed, f"/namespaces/{namespace}/pods/")) == 2
    assert marks(installed, namespace)["late"] == mark


def moment(event: dict[str, Any]) -> datetime:
    return datetime.fromisoformat(event["requestReceivedTimestamp"])


def test_without_the_right_it_is_reported_and_the_capacity_is_there_all_the_same(
    installed: ControlPlane, process: OperatorProcess, node: PlayedNode, namespace: str
) -> None:
    make_pod(installed, namespace, "early", GPU)
    node.publish(healthy=2, delivery="nri")
    try:
        install_chart(installed, {"markWaitingPods": False})
        # once it is refused it does not call itself ready for a while
        process.launch()
        node.wait_shown(2)
    finally:
        install_chart(installed)
    [line] = [line for line in process.lines() if line["event"].startswith("pending pods cannot be annotated")]
    assert (line["level"], "markWaitingPods" in line["remedy"]) == ("error", True)
    assert marks(installed, namespace) == {"early": None}

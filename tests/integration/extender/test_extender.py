"""The extender's process on a real API server: what it writes, what it refuses, and what it does while that is away."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.api import Pod
from tests.cluster.control_plane.control_plane import ControlPlane
from tests.cluster.waiting import wait_until
from tests.fakes.fault_proxy import FaultProxy
from tests.integration.extender.extender_process import MEMORY, ExtenderProcess, GpuNode, make_pod, placed
from tests.integration.operator_process import audited

_AGENT = "nodedevice-operator"


@pytest.fixture(scope="module")
def extender(installed: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ExtenderProcess]:
    with ExtenderProcess(installed, tmp_path_factory.mktemp("extender")).active() as running:
        yield running


@pytest.fixture
def gpus(installed: ControlPlane) -> Iterator[GpuNode]:
    """A node with two GPUs of 8 parts."""
    with GpuNode(installed) as node:
        node.settle_parts(8, 8)
        yield node


def wait_fits(extender: ExtenderProcess, pod: Any, node: GpuNode) -> None:
    wait_until(lambda: extender.filter(pod, node.name).get("NodeNames") == [node.name], "the pod fits")


def test_filter_finds_a_gpu_and_bind_writes_node_and_parts_at_once(
    installed: ControlPlane, extender: ExtenderProcess, gpus: GpuNode, namespace: str
) -> None:
    pods = [make_pod(installed, namespace, f"pod-{i}", 5) for i in range(3)]
    wait_fits(extender, pods[0], gpus)
    for pod in pods[:2]:
        assert extender.filter(pod, gpus.name, "unknown")["NodeNames"] == [gpus.name]
        assert extender.bind(pod, gpus.name) == (200, {"Error": ""})
    on = [placed(installed, pod) for pod in pods[:2]]
    assert [node for node, _ in on] == [gpus.name, gpus.name]
    assert sorted(parent for _, parts in on for parent in parts[MEMORY]["main"]) == ["GPU-0", "GPU-1"]
    # 6 parts are free, and no GPU has 5
    refused = extender.filter(pods[2], gpus.name)
    assert not refused.get("NodeNames")
    assert gpus.name in {**refused.get("FailedNodes", {}), **refused.get("FailedAndUnresolvableNodes", {})}
    status, answer = extender.bind(pods[2], gpus.name)
    assert (status, bool(answer["Error"])) == (200, True)
    requests = [
        event for event in audited(installed, f"/namespaces/{namespace}/pods/pod-0") if event["userAgent"] == _AGENT
    ]
    assert [event["verb"] for event in requests] == ["create"]


def test_a_pod_that_was_made_again_is_not_bound_and_has_nothing_promised(
    installed: ControlPlane, extender: ExtenderProcess, gpus: GpuNode, namespace: str
) -> None:
    old = make_pod(installed, namespace, "pod", 8)
    wait_fits(extender, old, gpus)
    installed.client.delete(Pod, "pod", namespace=namespace, grace_period=0)
    new = make_pod(installed, namespace, "pod", 8)
    status, answer = extender.bind(old, gpus.name)
    assert (status, "another pod has its name" in answer["Error"]) == (200, True)
    assert placed(installed, new) == (None, None)
    # both GPUs are free
    others = [make_pod(installed, namespace, f"other-{i}", 8) for i in range(2)]
    for pod in others:
        wait_fits(extender, pod, gpus)
        assert extender.bind(pod, gpus.name) == (200, {"Error": ""})


def test_while_the_api_server_is_away_a_bind_is_an_error_and_promised_once(
    installed: ControlPlane, gpus: GpuNode, namespace: str, proxy: FaultProxy, tmp_path: Path, extender: ExtenderProcess
) -> None:
    extender.close()
    away = ExtenderProcess(installed, tmp_path)
    away.reach_by(proxy.url, namespace)
    with away.active():
        pod, other = (make_pod(installed, namespace, name, 8) for name in ("pod", "other"))
        wait_fits(away, pod, gpus)
        # the API server does it, and its answer is lost
        proxy.rule("POST", "/binding", 1, 504)
        status, answer = away.bind(pod, gpus.name)
        assert (status, "until the outcome is known" in answer["Error"]) == (200, True)
        # its promise stays, and it fits nowhere else
        gpus.settle_parts(8)
        wait_until(lambda: not away.filter(other, gpus.name).get("NodeNames"), "what is promised is not offered")
        assert away.filter(pod, gpus.name)["NodeNames"] == [gpus.name]
        assert away.bind(pod, gpus.name) == (200, {"Error": ""})
        assert placed(installed, pod)[0] == gpus.name
    extender.launch()
    extender.wait_active()

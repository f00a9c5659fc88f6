"""Two extenders: one answers, the other takes over however the first one ends, and no parts are promised twice."""

import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed, wait
from pathlib import Path
from socket import gethostname
from typing import Any

import pytest
from nodedevice_api import names

from tests.cluster.api import Lease, Object
from tests.cluster.chart import SYSTEM_NAMESPACE
from tests.cluster.control_plane.control_plane import ControlPlane
from tests.cluster.waiting import wait_until
from tests.integration.extender.extender_process import MEMORY, ExtenderProcess, GpuNode, make_pod, placed

_MANY = 60
Pair = tuple[ExtenderProcess, ExtenderProcess]


@pytest.fixture
def pair(installed: ControlPlane, tmp_path: Path) -> Iterator[Pair]:
    """Two extenders, the first of which is active."""
    namespace = ("--namespace", SYSTEM_NAMESPACE)
    first, second = (ExtenderProcess(installed, tmp_path / name, *namespace) for name in ("first", "second"))
    try:
        first.launch()
        first.wait_active()
        second.launch()
        yield first, second
    finally:
        second.close()
        first.close()


@pytest.fixture
def gpu(installed: ControlPlane) -> Iterator[GpuNode]:
    """A node with one GPU of 8 parts."""
    with GpuNode(installed) as node:
        node.settle_parts(8)
        yield node


def bound(extender: ExtenderProcess, pod: Any, node: GpuNode) -> None:
    wait_until(lambda: extender.filter(pod, node.name).get("NodeNames") == [node.name], "the pod fits")
    assert extender.bind(pod, node.name) == (200, {"Error": ""})


def holder(control_plane: ControlPlane, namespace: str) -> str | None:
    """The holder of the extenders' Lease there; None once it is released."""
    found = control_plane.client.get(Lease, names.EXTENDER_LEASE, namespace=namespace)
    return found.spec.holderIdentity if found.spec else None


def test_after_a_crash_the_other_knows_what_was_bound(
    installed: ControlPlane, pair: Pair, gpu: GpuNode, namespace: str
) -> None:
    first, second = pair
    pods = [make_pod(installed, namespace, f"pod-{i}", 5) for i in range(2)]
    bound(first, pods[0], gpu)
    first.kill()
    second.wait_active()
    assert not second.filter(pods[1], gpu.name).get("NodeNames")
    assert second.bind(pods[1], gpu.name)[1]["Error"]
    assert placed(installed, pods[1]) == (None, None)


def test_one_that_was_stopped_binds_nothing_when_it_goes_on(
    installed: ControlPlane, pair: Pair, gpu: GpuNode, namespace: str
) -> None:
    first, second = pair
    pods = [make_pod(installed, namespace, f"pod-{i}", 5) for i in range(2)]
    wait_until(lambda: first.filter(pods[0], gpu.name).get("NodeNames") == [gpu.name], "the pod fits")
    first.signal(signal.SIGSTOP)
    second.wait_active()
    bound(second, pods[1], gpu)
    first.signal(signal.SIGCONT)
    status, text = first.bind(pods[0], gpu.name)
    assert (status, "stands by" in text) == (503, True)
    assert placed(installed, pods[0]) == (None, None)


def test_binds_of_one_that_was_stopped_promise_no_unit_twice(
    installed: ControlPlane, pair: Pair, gpu: GpuNode, namespace: str
) -> None:
    first, second = pair
    gpu.settle_parts(_MANY)
    pods = [make_pod(installed, namespace, f"pod-{i}", 1) for i in range(2 * _MANY)]
    wait_until(lambda: first.filter(pods[0], gpu.name).get("NodeNames") == [gpu.name], "the pod fits")
    with ThreadPoolExecutor(len(pods)) as scheduler:
        # some are bound, some wait for the API server, and others wait in the extender
        results = [scheduler.submit(first.bind, pod, gpu.name) for pod in pods]
        next(as_completed(results))
        first.signal(signal.SIGSTOP)
        second.wait_active()
        for pod in reversed(pods):
            second.bind(pod, gpu.name)
        first.signal(signal.SIGCONT)
        wait(results)
    given = [parts for _, parts in (placed(installed, pod) for pod in pods) if parts]
    assert [parts[MEMORY]["main"] for parts in given] == [{"GPU-0": 1}] * _MANY


def test_after_a_clean_end_the_other_is_active_at_once(installed: ControlPlane, pair: Pair) -> None:
    first, second = pair
    before = len(first.lines())
    # it would take the Lease before anybody saw that nobody holds it
    second.signal(signal.SIGSTOP)
    first.signal(signal.SIGTERM)
    assert first.wait_ended() == 0
    assert holder(installed, SYSTEM_NAMESPACE) is None
    second.signal(signal.SIGCONT)
    second.wait_active()
    # what came before is not of the end: a machine that stood still may have kept it from renewing
    assert [line["event"] for line in first.lines()[before:] if line["level"] in {"warning", "error"}] == []


def test_the_one_beside_the_leading_scheduler_is_active(
    installed: ControlPlane, tmp_path: Path, namespace: str
) -> None:
    extender = ExtenderProcess(
        installed, tmp_path, "--follow-lease", f"{namespace}/scheduler", "--namespace", namespace
    )
    client = installed.client

    def scheduler_leads(host: str) -> None:
        lease = Lease(metadata=Object(name="scheduler", namespace=namespace), spec=Object(holderIdentity=f"{host}_1"))
        client.apply(lease, field_manager="scheduler", force=True)

    try:
        extender.launch()
        wait_until(lambda: extender.get("/readyz")[0] == 200, "it is ready, for it has seen everything")
        assert not extender.is_active
        scheduler_leads(gethostname())
        extender.wait_active()
        scheduler_leads("elsewhere")
        wait_until(lambda: not extender.is_active, "it stands aside")
        wait_until(lambda: holder(installed, namespace) is None, "it has released its Lease")
        scheduler_leads(gethostname())
        extender.wait_active()
    finally:
        extender.close()
    extender.verify_no_traceback()

"""Whatever a pod has, a bounded amount of it is kept, and no request for devices is lost without a reason."""

import sys
from typing import Any

import msgspec
import pytest
from nodedevice_agent.devicemanager.pods import MAX_SETTINGS, NO_SETTINGS
from nodedevice_agent.kube.pod_objects import MAX_REQUESTS, from_api, seen

from tests.unit.node_agent.kube.test_pods import GPU, container, of_one_container, pod


def size(value: object) -> int:
    """Bytes of a value and all that it holds."""
    parts = msgspec.structs.astuple(value) if isinstance(value, msgspec.Struct) else ()
    if isinstance(value, tuple | frozenset):
        parts = tuple(value)
    elif isinstance(value, dict):
        parts = (*value.keys(), *value.values())
    return sys.getsizeof(value) + sum(map(size, parts))


MOUNTS = [{"mountPath": f"/{n:06}"} for n in range(30_000)]
VARIABLES = [{"name": f"V{n:06}"} for n in range(65_000)]


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param({"containers": [container(f"c{n}") for n in range(9_000)]}, id="containers"),
        pytest.param({"containers": [container("c", {GPU: "1"}, env=VARIABLES)]}, id="variables"),
        pytest.param({"containers": [container("c", {GPU: "1"}, volumeMounts=MOUNTS)]}, id="mounts"),
        pytest.param({"containers": [container("c", {GPU: "1"}, args=["$(A)"] * 200_000)]}, id="arguments"),
        pytest.param({"containers": [container("c", {f"v.com/r{n:06}": "1" for n in range(50_000)})]}, id="resources"),
        pytest.param(
            {"containers": [container(f"c{n}", {GPU: "1"}, env=[{"name": "x" * 250}]) for n in range(1_000)]},
            id="containers with variables",
        ),
        pytest.param({"containers": [container("c", {GPU: "1"}, env=[{"name": "x" * 10**6}])]}, id="a name"),
    ],
)
def test_what_is_kept_of_a_pod_is_bounded(spec: dict[str, Any]) -> None:
    found = seen(pod(spec))
    assert size(found.pod.containers) + size(found.metadata) < 512 * 1024


def test_a_pod_of_too_many_requests_has_none_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    few = from_api(pod({"containers": [container(f"c{n}", {GPU: "1"}) for n in range(MAX_REQUESTS)]}))
    many = from_api(pod({"containers": [container(f"c{n}", {GPU: "1"}) for n in range(MAX_REQUESTS + 1)]}))
    assert (len(few.device_requests), few.unread) == (MAX_REQUESTS, "")
    assert (many.device_requests, many.unread) == ((), "it has more than 256 requests of containers for devices")
    [line] = caplog.records
    assert line.__dict__["error"] == many.unread


@pytest.mark.parametrize("count", [MAX_SETTINGS, MAX_SETTINGS + 1])
def test_more_variables_than_are_kept(count: int) -> None:
    found = of_one_container(env=[{"name": f"V{n}"} for n in range(count)]).settings
    assert found.is_whole is (count == MAX_SETTINGS)
    assert len(found.envs) == (MAX_SETTINGS if found.is_whole else 0)


def test_what_is_set_twice_counts_once() -> None:
    mounts = [{"mountPath": "/a/../b"}, {"mountPath": "/b"}]
    found = of_one_container(env=[{"name": "A"}] * 5_000, volumeMounts=mounts).settings
    assert ({*found.envs}, {*found.paths}, found.is_whole) == ({"A"}, {"/b"}, True)


def test_lists_of_a_container_without_requests_are_not_read() -> None:
    found = from_api(pod({"containers": [container("c", env=7)]}))
    assert (found.containers[0].settings, found.unread) == (NO_SETTINGS, "")

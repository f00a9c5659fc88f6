"""Whatever a pod has, a bounded amount of it is kept, and no request for devices is lost without a reason."""

import sys
from typing import Any

import msgspec
import pytest
from nodedevice_agent.devicemanager.pods import MAX_SETTINGS, NO_SETTINGS, Pod
from nodedevice_agent.kube.pod_objects import MAX_REQUESTS, from_api, seen

from tests.unit.node_agent.kube.test_pods import GPU, container, pod


def size(value: object) -> int:
    """Bytes of a value and all that it holds."""
    parts = msgspec.structs.astuple(value) if isinstance(value, msgspec.Struct) else ()
    if isinstance(value, tuple | frozenset):
        parts = tuple(value)
    elif isinstance(value, dict):
        parts = (*value.keys(), *value.values())
    return sys.getsizeof(value) + sum(map(size, parts))


def kept(**more: Any) -> Pod:
    return from_api(pod({"containers": [container("main", {GPU: "1"}, **more)]}))


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param({"containers": [container(f"c{n}") for n in range(9_000)]}, id="containers"),
        pytest.param(
            {"containers": [container("c", {GPU: "1"}, env=[{"name": f"V{n:06}"} for n in range(65_000)])]},
            id="variables",
        ),
        pytest.param(
            {
                "containers": [
                    container("c", {GPU: "1"}, volumeMounts=[{"mountPath": f"/{n:06}"} for n in range(30_000)])
                ]
            },
            id="mounts",
        ),
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
    [found] = kept(env=[{"name": f"V{n}"} for n in range(count)]).containers
    assert found.settings.is_whole is (count == MAX_SETTINGS)
    assert len(found.settings.envs) == (MAX_SETTINGS if found.settings.is_whole else 0)


def test_what_is_set_twice_counts_once() -> None:
    [found] = kept(env=[{"name": "A"}] * 5_000, volumeMounts=[{"mountPath": "/a/../b"}, {"mountPath": "/b"}]).containers
    assert ({*found.settings.envs}, {*found.settings.paths}, found.settings.is_whole) == ({"A"}, {"/b"}, True)


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_of_a_pod_that_has_ended_its_name_is_kept(phase: str) -> None:
    found = from_api(pod({"containers": [container("c", {GPU: "1"})]}, status={"phase": phase}))
    assert (found.has_ended, found.containers) == (True, ())


def test_lists_of_a_container_without_requests_are_not_read() -> None:
    found = from_api(pod({"containers": [container("c", env=7)]}))
    assert (found.containers[0].settings, found.unread) == (NO_SETTINGS, "")

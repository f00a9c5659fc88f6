"""What the demo writes in the place of a kubelet: each step of a pod's life, and nothing between them."""

from datetime import UTC, datetime
from typing import Any

import pytest

from hack.cluster.api import Node, Object, Pod
from hack.demo.kubelet_writes import Write, next_write, node_lease, ready_node

_NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
_TIME = "2026-01-02T03:04:05Z"
_CREATED = {"phase": "Pending", "containerStatuses": [{"name": "main", "image": "x", "imageID": "", "ready": False}]}
_CREATED["containerStatuses"][0]["restartCount"] = 0  # type: ignore[index]


def _pod(
    status: dict[str, Any] | None, *, is_deleted: bool = False, initial: list[dict[str, Any]] | None = None
) -> Object:
    deleted = {"deletionTimestamp": _TIME} if is_deleted else {}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "train", "namespace": "default", "uid": "u1", "generation": 3, **deleted},
        "spec": {"containers": [{"name": "main", "image": "x"}], "initContainers": initial},
        **({} if status is None else {"status": status}),
    }
    return Pod.from_dict(pod)


def _patch(write: Write | None) -> dict[str, Any]:
    assert write is not None
    assert write.patch is not None
    assert write.patch["metadata"] == {"uid": "u1"}
    status: dict[str, Any] = write.patch["status"]
    assert status.pop("observedGeneration") == 3
    return status


def _conditions(status: dict[str, Any]) -> dict[str, str]:
    return {each["type"]: each["status"] for each in status["conditions"]}


@pytest.mark.parametrize("status", [None, {"phase": "Pending"}], ids=["no status", "bound"])
def test_first_its_containers_are_created(status: dict[str, Any] | None) -> None:
    written = _patch(next_write(_pod(status), _NOW))
    assert "phase" not in written
    assert written["startTime"] == _TIME
    assert written["containerStatuses"][0]["state"] == {"waiting": {"reason": "ContainerCreating"}}
    assert _conditions(written)["Ready"] == "False"


def test_then_it_runs() -> None:
    written = _patch(next_write(_pod(_CREATED), _NOW))
    assert written["phase"] == "Running"
    assert written["containerStatuses"][0]["state"] == {"running": {"startedAt": _TIME}}
    assert written["containerStatuses"][0]["ready"]
    assert _conditions(written) == {"PodReadyToStartContainers": "True", "ContainersReady": "True", "Ready": "True"}


def test_init_containers_are_over_and_sidecars_run() -> None:
    initial = [{"name": "first", "image": "x"}, {"name": "beside", "image": "x", "restartPolicy": "Always"}]
    written = _patch(next_write(_pod(_CREATED, initial=initial), _NOW))
    states = {each["name"]: [*each["state"]] for each in written["initContainerStatuses"]}
    assert states == {"first": ["terminated"], "beside": ["running"]}
    assert all(each["ready"] for each in written["initContainerStatuses"])


@pytest.mark.parametrize("phase", ["Pending", "Running"])
def test_a_deleted_one_ends(phase: str) -> None:
    written = _patch(next_write(_pod({**_CREATED, "phase": phase}, is_deleted=True), _NOW))
    assert written["phase"] == "Succeeded"
    assert written["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 0
    assert not written["containerStatuses"][0]["ready"]
    assert _conditions(written)["Ready"] == "False"


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_deleted_one_that_has_ended_is_removed(phase: str) -> None:
    assert next_write(_pod({"phase": phase}, is_deleted=True), _NOW) == Write(None)


@pytest.mark.parametrize("phase", ["Running", "Succeeded", "Failed", "Unknown"])
def test_nothing_is_written_until_somebody_changes_it(phase: str) -> None:
    assert next_write(_pod({"phase": phase}), _NOW) is None


@pytest.mark.parametrize(
    ("conditions", "is_written"),
    [
        pytest.param([], True, id="new"),
        pytest.param([{"type": "Ready", "status": "Unknown"}], True, id="not heard of for a while"),
        pytest.param([{"type": "Ready", "status": "False"}], True, id="not ready"),
        pytest.param([{"type": "Ready", "status": "True"}], False, id="ready"),
    ],
)
def test_a_node_is_made_ready_once(conditions: list[dict[str, str]], *, is_written: bool) -> None:
    patch = ready_node(_node(conditions), _NOW)
    assert (patch is not None) is is_written
    if patch is not None:
        assert patch["status"].keys() == {"conditions"}, "capacity belongs to others"
        assert {each["type"]: each["status"] for each in patch["status"]["conditions"]}["Ready"] == "True"


def test_its_lease_ends_with_it() -> None:
    lease = node_lease(_node([]), _NOW)
    assert lease["metadata"]["ownerReferences"] == [{"apiVersion": "v1", "kind": "Node", "name": "node-a", "uid": "u2"}]
    assert lease["spec"]["renewTime"] == "2026-01-02T03:04:05.000000Z"


def _node(conditions: list[dict[str, str]]) -> Object:
    metadata = {"name": "node-a", "uid": "u2"}
    return Node.from_dict({"metadata": metadata, "status": {"conditions": conditions}})

"""The agent lost in each phase of a pod's start: no container ever runs without its device, no device is ever in two of them.

Every start of every container tells what it found, and holds a lock for each device as long as it lives; nothing is
sampled. E2E_ROUNDS says how often each point is tried (default 1).
"""

import os

import pytest

from tests.e2e.real_node.kill_points import Loss, Phase, give_back, lost_at
from tests.e2e.real_node.node_under_test import NodeUnderTest
from tests.e2e.real_node.pods import Json, container, pod

_ROUNDS = int(os.environ.get("E2E_ROUNDS", "1"))
_ASKING = ("a", "b")


@pytest.mark.parametrize("loss", Loss, ids=lambda found: found.value)
@pytest.mark.parametrize("phase", Phase, ids=lambda found: found.name.lower())
def test_never_without_its_device(nri_node: NodeUnderTest, phase: Phase, loss: Loss) -> None:
    for number in range(_ROUNDS):
        _round(nri_node, phase, loss, f"r{number}")


def _round(of: NodeUnderTest, phase: Phase, loss: Loss, prefix: str) -> None:
    """Two pods that ask, one with two containers; then one that does not. All run in the end, and told the truth."""
    rw = of.kinds["rw"]
    asking = [f"{prefix}-{letter}" for letter in _ASKING]
    with lost_at(phase, loss, of, rw.resource) as lost:
        for name, pod_of in zip(asking, (_one, _two), strict=True):
            of.create(pod_of(name, rw.resource))
        lost()
    of.run(pod(f"{prefix}-plain", [container("main")]))
    give_back(loss, of)
    for name in asking:
        of.wait_running_nudged(name)
    for name in asking:
        for start in (of.seen(name, "main"), *of.starts(name)):
            assert rw.env in start.env, f"{name} ran without its device"
            given = start.env[rw.env].split(",")
            assert all(start.modes(rw.path_of(device_id)) == "rw" for device_id in given)
            assert not start.shared
    of.delete(*asking, f"{prefix}-plain")


def _one(name: str, resource: str) -> Json:
    return pod(name, [_container("main", resource)])


def _two(name: str, resource: str) -> Json:
    return pod(name, [_container("main", resource), _container("other", resource)])


def _container(name: str, resource: str) -> Json:
    look = [argument for number in range(3) for argument in ("-open", f"/dev/given/rw-{number}")]
    return container(name, {resource: 1}, look)

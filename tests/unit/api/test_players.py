"""What tests and benchmarks play of an agent: statuses that the API server would take, and that decode as they were encoded."""

from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec
import pytest
from nodedevice_api.nodedevice import NodeDeviceStatus

from hack.bench.operator import fleet
from hack.scheduling.node_model import BoundPod, NodeModel
from tests.monitoring import status_objects
from tests.unit.node_agent.kube import crd_rules

Json = dict[str, Any]


def of_fleet() -> Iterator[Json]:
    pods = {name: fleet.Owner(name, f"uid-{name}") for name in (fleet.pod_name("a", n) for n in range(fleet.PODS))}
    for is_broken in (False, True):
        yield fleet.node_device_status("a", fleet.RESOURCES[0], pods, is_broken)["status"]


def of_scheduling() -> Iterator[Json]:
    model = NodeModel("a")
    yield model.status()["status"]
    for number in range(20):
        model.bound(BoundPod("default", f"pod-{number}", f"uid-{number}", 40, None))
    yield model.status()["status"]


def of_monitoring() -> Iterator[Json]:
    yield from (found["status"] for found in status_objects.node_devices() if "status" in found)


PLAYERS: Final[list[Callable[[], Iterator[Json]]]] = [of_fleet, of_scheduling, of_monitoring]


@pytest.mark.parametrize("player", PLAYERS)
def test_what_is_played_is_what_an_agent_could_send(player: Callable[[], Iterator[Json]]) -> None:
    for status in player():
        found = msgspec.convert(status, NodeDeviceStatus)
        assert msgspec.convert(msgspec.to_builtins(found), NodeDeviceStatus) == found
        # of the operator's conditions the server adds what a dashboard does not need
        of_agent = [each for each in status["conditions"] if "lastTransitionTime" in each]
        assert crd_rules.problems({**status, "conditions": of_agent}) == []

"""Pods and containers of NRI, decoded; a missing field is empty."""

from typing import cast

import pytest
from nodedevice_agent.devicemanager.runtime import ContainerState, RunningContainer, Sandbox
from nodedevice_agent.nri import codec
from nodedevice_api.upstream.nri.v1alpha1 import api_pb2


@pytest.mark.parametrize(
    ("number", "state"),
    [
        (0, ContainerState.UNKNOWN),
        (1, ContainerState.CREATED),
        (2, ContainerState.PAUSED),
        (3, ContainerState.RUNNING),
        (4, ContainerState.STOPPED),
        (5, ContainerState.UNKNOWN),
        (-1, ContainerState.UNKNOWN),
    ],
)
def test_states(number: int, state: ContainerState) -> None:
    message = api_pb2.Container(state=cast("api_pb2.ContainerState.ValueType", number))
    assert codec.container(message).state is state


def test_missing_fields() -> None:
    assert codec.sandbox(api_pb2.PodSandbox()) == Sandbox("", "", "", "")
    assert codec.container(api_pb2.Container()) == RunningContainer("", "", "")


def test_a_process() -> None:
    assert codec.container(api_pb2.Container(pid=7)).pid == 7

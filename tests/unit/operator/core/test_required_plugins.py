"""What is to be done about the policy, for every way in which the two objects may stand."""

from typing import Any

import pytest
from nodedevice_operator.core.required_plugins import (
    BINDINGS,
    POLICIES,
    Spec,
    Step,
    Stored,
    binding_spec,
    names_of,
    plan,
    policy_spec,
)

from tests.fakes.operator_model import node_device

GPU, NIC = "example.com/gpu", "example.com/nic"
POLICY, BINDING = policy_spec((GPU,)), binding_spec()
WITH_DEFAULT = {**POLICY, "aDefaultOfTomorrow": 1}


@pytest.mark.parametrize(
    ("names", "stored", "accepted", "kinds"),
    [
        pytest.param((GPU,), Stored(), {}, [POLICIES, BINDINGS], id="nothing is there"),
        pytest.param((GPU,), Stored(POLICY), {}, [BINDINGS], id="no binding"),
        pytest.param((GPU,), Stored(None, BINDING), {}, [POLICIES], id="no policy"),
        pytest.param((GPU,), Stored(POLICY, BINDING), {}, [], id="as it should be"),
        pytest.param((GPU, NIC), Stored(POLICY, BINDING), {}, [POLICIES], id="a name more"),
        pytest.param((GPU,), Stored(WITH_DEFAULT, BINDING), {}, [POLICIES], id="somebody's change"),
        pytest.param(
            (GPU,), Stored(WITH_DEFAULT, BINDING), {POLICIES: WITH_DEFAULT}, [], id="the server's own default"
        ),
        pytest.param((GPU,), Stored(), {POLICIES: WITH_DEFAULT}, [POLICIES, BINDINGS], id="deleted since"),
        pytest.param((), Stored(), {}, [], id="nothing needed, nothing there"),
        pytest.param((), Stored(POLICY, BINDING), {}, [BINDINGS, POLICIES], id="needed no more"),
        pytest.param((), Stored(POLICY), {}, [POLICIES], id="half of it is left"),
    ],
)
def test_plan(names: tuple[str, ...], stored: Stored, accepted: dict[str, Spec], kinds: list[str]) -> None:
    steps = plan(names, stored, accepted)
    assert [step.kind for step in steps] == kinds
    wanted: dict[str, Any] = {POLICIES: policy_spec(names), BINDINGS: BINDING} if names else {}
    assert steps == tuple(Step(kind, wanted.get(kind)) for kind in kinds)


def test_names_are_those_of_agents_that_work_by_nri() -> None:
    records = [
        node_device(resource=NIC, runtime="nri"),
        node_device(resource=GPU, runtime="nri"),
        node_device(resource=GPU, runtime="nri"),
        node_device(resource="example.com/a", runtime="kubelet"),
        node_device(resource="example.com/b", runtime="none"),
    ]
    assert names_of(records) == (GPU, NIC)

"""What is to be done about the policy, for every way in which the two objects may stand."""

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from nodedevice_operator.requiredplugins.policy import (
    BINDINGS,
    POLICIES,
    Spec,
    Stored,
    binding_spec,
    guarded_by,
    is_annotated,
    names_of,
    plan,
    policy_spec,
)

from tests.fakes.operator.operator_model import node_device

GPU, NIC = "example.com/gpu", "example.com/nic"
POLICY, BINDING = policy_spec((GPU,)), binding_spec()
WITH_DEFAULT = {**POLICY, "aDefaultOfTomorrow": 1}


def both(policy: Spec | None = None, binding: Spec | None = None) -> Stored:
    return {POLICIES: policy, BINDINGS: binding}


@pytest.mark.parametrize(
    ("names", "stored", "accepted", "kinds"),
    [
        pytest.param((GPU,), both(), {}, [POLICIES, BINDINGS], id="nothing is there"),
        pytest.param((GPU,), both(POLICY), {}, [BINDINGS], id="no binding"),
        pytest.param((GPU,), both(None, BINDING), {}, [POLICIES], id="no policy"),
        pytest.param((GPU,), both(POLICY, BINDING), {}, [], id="as it should be"),
        pytest.param((GPU, NIC), both(POLICY, BINDING), {}, [POLICIES], id="a name more"),
        pytest.param((GPU,), both(WITH_DEFAULT, BINDING), {}, [POLICIES], id="somebody's change"),
        pytest.param((GPU,), both(WITH_DEFAULT, BINDING), {POLICIES: WITH_DEFAULT}, [], id="the server's own default"),
        pytest.param((GPU,), both(), {POLICIES: WITH_DEFAULT}, [POLICIES, BINDINGS], id="deleted since"),
        pytest.param((), both(), {}, [], id="nothing needed, nothing there"),
        pytest.param((), both(POLICY, BINDING), {}, [BINDINGS, POLICIES], id="needed no more"),
        pytest.param((), both(POLICY), {}, [POLICIES], id="half of it is left"),
    ],
)
def test_plan(names: tuple[str, ...], stored: Stored, accepted: dict[str, Spec], kinds: list[str]) -> None:
    steps = plan(names, stored, accepted)
    assert list(steps) == kinds
    wanted: dict[str, Any] = {POLICIES: policy_spec(names), BINDINGS: BINDING} if names else {}
    assert steps == {kind: wanted.get(kind) for kind in kinds}


def test_names_are_those_of_agents_that_work_by_nri() -> None:
    records = [
        node_device(resource=NIC, runtime="nri"),
        node_device(resource=GPU, runtime="nri"),
        node_device(resource=GPU, runtime="nri"),
        node_device(resource="example.com/a", runtime="kubelet"),
        node_device(resource="example.com/b", runtime="none"),
    ]
    assert names_of(records) == (GPU, NIC)


@pytest.mark.parametrize(
    ("stored", "guarded"),
    [
        pytest.param(both(policy_spec((GPU, NIC)), BINDING), {GPU, NIC}, id="as it should be"),
        pytest.param(both(), set(), id="nothing is there"),
        pytest.param(both(POLICY), set(), id="no binding"),
        pytest.param(both(None, BINDING), set(), id="no policy"),
        pytest.param(both(POLICY, {**BINDING, "matchResources": {}}), set(), id="bound to a part"),
        pytest.param(both({**POLICY, "failurePolicy": "Ignore"}, BINDING), set(), id="changed"),
        pytest.param(
            both({**POLICY, "matchConditions": [{"name": "a", "expression": 'r in ["x" oh]'}]}, BINDING),
            set(),
            id="another's condition",
        ),
        pytest.param(both({"matchConditions": 7}, BINDING), set(), id="no conditions at all"),
    ],
)
def test_guarded_names_are_those_of_a_policy_that_is_whole(stored: Stored, guarded: set[str]) -> None:
    assert guarded_by(stored) == guarded


KEY = "required-plugins.noderesource.dev"


@pytest.mark.parametrize(
    ("annotations", "marked"),
    [
        ({}, False),
        ({"other": "[ nodedevice ]"}, False),
        ({KEY: "[ nodedevice ]"}, True),
        ({KEY: "[ other ]"}, False),
        ({KEY: "[ other, nodedevice ]"}, True),
        ({KEY: "- other\n- nodedevice\n"}, True),
        ({KEY: "{ nodedevice }"}, False),
        ({KEY: "[ nodedevice ]", f"{KEY}/container.a": "[ other ]"}, False),
        ({KEY: "[ nodedevice ]", f"{KEY}/container.a": '[ "nodedevice" ]'}, True),
        ({f"{KEY}/pod": "[ nodedevice ]"}, False),
        ({KEY: "[ other, nodedevice-x ]"}, False),
        ({KEY: "- other\n- 'nodedevice'"}, True),
        ({KEY: "- nodedevice-x\n"}, False),
        # as the policy reads it, to which white space is ASCII's and the end is the end
        ({KEY: "[\u00a0nodedevice ]"}, False),
        ({KEY: "[\vnodedevice ]"}, False),
        ({KEY: "[\fnodedevice ]"}, True),
        ({KEY: "- nodedevice\n\n"}, False),
    ],
)
def test_a_pod_is_annotated_when_every_key_names_us(annotations: dict[str, str], marked: bool) -> None:
    assert is_annotated(annotations) is marked


WORDS = ["nodedevice", "'nodedevice'", "other", ",", "\n- ", "\n", "[", "]", "'", '"', "#", "-"]
SPACE = [" ", "\t", "\v", "\u00a0", "\u2003"]


@given(
    st.sampled_from(["[", "- "]), st.lists(st.sampled_from(WORDS + SPACE), max_size=6), st.sampled_from(["]", "", "\n"])
)
def test_the_runtime_reads_a_mark_as_a_list_with_our_name_or_not_at_all(begin: str, inner: list[str], end: str) -> None:
    value = begin + "".join(inner) + end
    if not is_annotated({KEY: value}):
        return
    try:
        read = yaml.safe_load(value)
    except yaml.YAMLError:
        return  # no container of such a pod starts, whoever is there
    assert "nodedevice" in read
    assert all(isinstance(name, str) for name in read)


@pytest.mark.parametrize(
    ("begin", "again", "end", "marked"),
    [
        ("[", "nodedevice,", "!", False),
        ("[", "nodedevice,", "a]", True),
        ("[", "a , ", "b", False),
        ("[", " ", "!", False),
        ("[a", " ", "!", False),
        ("", "- nodedevice\n", "!", False),
        ("", "- nodedevice\n", "", True),
        ("-", " ", "!", False),
    ],
)
def test_the_longest_value_that_a_pod_can_have_is_read(begin: str, again: str, end: str, marked: bool) -> None:
    """An expression that tries all ways to match one of these is at it for minutes, in which the operator does nothing else."""
    value = begin + again * ((256 * 1024 - 100) // len(again)) + end
    assert is_annotated({KEY: value}) is marked


def test_what_is_longer_than_wished_is_not_read_and_counts_as_not_marked() -> None:
    value = "[ nodedevice ]"
    annotations = {KEY: value, f"{KEY}/pod": value, "other": "o" * 100}
    assert is_annotated(annotations, longest=2 * len(value))
    assert not is_annotated(annotations, longest=2 * len(value) - 1)

"""What is to be done about the policy, for every way in which the two objects may stand."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from nodedevice_api import names
from nodedevice_api.extended_resources import domain_of
from nodedevice_operator.objects.node import NodeRecord
from nodedevice_operator.objects.nodedevice import NodeDeviceRecord
from nodedevice_operator.requiredplugins.policy import (
    BINDINGS,
    MOST_CHARACTERS,
    POLICIES,
    PolicyNames,
    Spec,
    Stored,
    binding_spec,
    guarded_by,
    is_annotated,
    is_candidate,
    plan,
    policy_spec,
    select,
)

from tests.fakes.operator.node_status import NodeStatusModel
from tests.fakes.operator.operator_model import node_device

GPU, NIC = "example.com/gpu", "example.com/nic"
NODES = {"node-a": NodeStatusModel().record()}
POLICY, BINDING = policy_spec((GPU,)), binding_spec()
WITH_DEFAULT = {**POLICY, "aDefaultOfTomorrow": 1}


def selected(
    records: Iterable[NodeDeviceRecord], nodes: Mapping[str, NodeRecord], patterns: Collection[str] = ("*",)
) -> PolicyNames:
    return select([record for record in records if is_candidate(record, nodes.get(record.node))], patterns)


def both(policy: Spec | None = None, binding: Spec | None = None) -> Stored:
    return {POLICIES: policy, BINDINGS: binding}


@pytest.mark.parametrize(
    ("names", "stored", "kinds"),
    [
        pytest.param((GPU,), both(POLICY), [BINDINGS], id="no binding"),
        pytest.param((GPU,), both(None, BINDING), [POLICIES], id="no policy"),
        pytest.param((GPU,), both(POLICY, BINDING), [], id="as it should be"),
        pytest.param((GPU, NIC), both(POLICY, BINDING), [POLICIES], id="a name more"),
        pytest.param((GPU,), both(WITH_DEFAULT, BINDING), [POLICIES], id="somebody's change"),
        pytest.param((), both(), [], id="nothing needed, nothing there"),
        pytest.param((), both(POLICY, BINDING), [BINDINGS, POLICIES], id="needed no more"),
        pytest.param((), both(POLICY), [POLICIES], id="half of it is left"),
    ],
)
def test_plan(names: tuple[str, ...], stored: Stored, kinds: list[str]) -> None:
    steps = plan(names, stored)
    assert list(steps) == kinds
    wanted: dict[str, Any] = {POLICIES: policy_spec(names), BINDINGS: BINDING} if names else {}
    assert steps == {kind: wanted.get(kind) for kind in kinds}


@pytest.mark.parametrize(
    ("fields", "is_in"),
    [
        pytest.param({}, True, id="in use"),
        pytest.param({"endpoint": "Stopped"}, True, id="its plugin restarts"),
        pytest.param({"endpoint": "Gone"}, False, id="gone"),
        pytest.param({"endpoint": "Gone", "allocated": 1}, True, id="gone and held"),
        pytest.param({"endpoint": "Gone", "releasing": 1}, True, id="gone and held until a container ends"),
        pytest.param({"owner_uid": "uid-0"}, False, id="of an earlier Node"),
        pytest.param({"owner_uid": None}, False, id="nobody's"),
        pytest.param({"node": "node-c"}, False, id="its Node does not exist"),
        pytest.param({"name": "by-hand"}, False, id="under another name"),
        pytest.param({"served_by": names.SERVED_BY_KUBELET}, False, id="the kubelet serves it"),
        pytest.param({"delivery": "kubelet"}, False, id="the kubelet delivers it"),
        pytest.param({"delivery": "none"}, False, id="nobody delivers it"),
    ],
)
def test_only_devices_that_an_agent_delivers_by_nri_are_in_the_policy(fields: dict[str, Any], is_in: bool) -> None:
    nics = [node_device(NIC, delivery="nri", node=node) for node in ("node-a", "node-b")]
    found = selected([*nics, node_device(GPU, **{"delivery": "nri", **fields})], {**NODES, "node-b": NODES["node-a"]})
    assert found == PolicyNames((GPU, NIC) if is_in else (NIC,))


def aged(count: int, node: str = "node-a", *, length: int = 0, since: int = 0) -> list[NodeDeviceRecord]:
    """So many NodeDevices of a node, the last ones the oldest, with names of about that length."""
    fill = "a." * ((length - 63 - len(f"{node}.example.com/")) // 2)
    return [
        node_device(
            f"{fill}{node}.example.com/{number:0>{min(max(length - 19, 4), 63)}}",
            node=node,
            delivery="nri",
            created=f"{since + count - number:09}",
        )
        for number in range(count)
    ]


def test_a_node_has_64_names_the_oldest_first_and_takes_none_from_another() -> None:
    old = aged(70)
    also = node_device(old[0].resource, node="node-b", delivery="nri")
    ordered = [record.resource for record in old]
    assert selected(old, NODES) == PolicyNames(tuple(ordered[6:]), dict.fromkeys(ordered[:6], "TooManyNames"))
    both = selected([*old, also], {**NODES, "node-b": NODES["node-a"]})
    assert (len(both.names), ordered[0] in both.names) == (65, True)


def of_domain(domain: str, count: int, since: int, **more: Any) -> list[NodeDeviceRecord]:
    return [
        node_device(f"{domain}/{number:04}", delivery="nri", created=f"{since + number:09}", **more)
        for number in range(count)
    ]


def domains(found: PolicyNames) -> Counter[str]:
    return Counter(map(domain_of, found.names))


JUNK = of_domain("junk.example", 200, 0)
INVENTED = [record for number in range(100) for record in of_domain(f"junk-{number}.example", 1, 0)]


class TestTheShareOfADomain:
    def test_a_domain_that_comes_late_gets_a_place_at_once(self) -> None:
        good = of_domain("good.example", 1, 1000)
        before = select(JUNK)
        found = select([*JUNK, *good], before=before, now=5)
        assert domains(found) == {"junk.example": 63, "good.example": 1}
        # the newest of those that had one
        assert {*before.names} - {*found.names} == {JUNK[63].resource}
        assert found.left_out[JUNK[63].resource] == "TooManyNames"

    def test_it_gets_a_place_a_minute_until_both_have_as_many(self) -> None:
        records = [*JUNK, *of_domain("good.example", 100, 1000)]
        found, numbers = select(JUNK), []
        for now in range(0, 40 * 60, 30):
            found = select(records, before=found, now=now)
            numbers.append(domains(found)["good.example"])
        assert (numbers[:5], numbers[-1]) == ([1, 1, 2, 2, 3], 32)

    def test_where_nothing_has_a_place_yet_they_go_round(self) -> None:
        records = [*JUNK, *of_domain("good.example", 100, 1000), *of_domain("few.example", 3, 2000)]
        assert sorted(domains(select(records)).values()) == [3, 30, 31]

    def test_any_number_of_invented_domains_displaces_one_name_a_minute(self) -> None:
        good = of_domain("good.example", 60, 1000)
        found, left = select(good), []
        for now in range(0, 600, 10):
            found = select([*good, *INVENTED], before=found, now=now)
            left.append(domains(found)["good.example"])
        # four were free
        assert (left[0], left[5], left[6], left[-1]) == (59, 59, 58, 50)

    def test_which_has_lost_its_place_does_not_take_that_of_another(self) -> None:
        found = select(INVENTED[:65])
        seen = {found.names}
        for now in range(0, 6000, 60):
            found = select(INVENTED[:65], before=found, now=now)
            seen.add(found.names)
        assert len(seen) <= 2

    @pytest.mark.parametrize("fields", [{"allocated": 1}, {"releasing": 1}])
    def test_what_pods_hold_stays(self, fields: dict[str, Any]) -> None:
        held = of_domain("junk.example", 100, 0, **fields)
        before = select(held)
        assert select([*held, *of_domain("good.example", 1, 1000)], before=before, now=5) == PolicyNames(
            before.names, {**before.left_out, "good.example/0000": "TooManyNames"}
        )

    def test_after_a_start_the_stored_names_have_their_places(self) -> None:
        records = [*JUNK, *of_domain("good.example", 100, 1000)]
        stored = PolicyNames(tuple(record.resource for record in JUNK[100:164]))
        assert domains(select(records, before=stored, now=5)) == {"junk.example": 63, "good.example": 1}


def test_all_names_together_fit_into_one_expression_the_oldest_first() -> None:
    nodes = {f"node-{letter}": NODES["node-a"] for letter in "abcdefgh"}
    records = [record for i, node in enumerate(nodes) for record in aged(60, node, length=300, since=1000 * i)]
    found = selected(reversed(records), nodes)
    [expression] = [each["expression"] for each in policy_spec(found.names)["matchConditions"]]
    assert MOST_CHARACTERS - 310 < len(expression) <= MOST_CHARACTERS
    oldest = sorted(records, key=lambda record: record.created)[: len(found.names)]
    assert found.names == tuple(sorted(record.resource for record in oldest))
    assert set(found.left_out.values()) == {"TooManyNames"}


@pytest.mark.parametrize(
    ("patterns", "names"),
    [
        (("*",), {GPU, NIC}),
        ((GPU,), {GPU}),
        (("example.com/*",), {GPU, NIC}),
        (("*/nic", "other.com/*"), {NIC}),
        (("example.com/g",), set()),
        (("exampleXcom/*",), set()),
    ],
)
def test_an_administrator_may_say_which_names(patterns: tuple[str, ...], names: set[str]) -> None:
    found = selected([node_device(each, delivery="nri") for each in (GPU, NIC)], NODES, patterns)
    assert (set(found.names), found.left_out) == (names, dict.fromkeys({GPU, NIC} - names, "NameExcluded"))


ODD = [{"name": "a", "expression": 'r in ["x" oh]'}]


@pytest.mark.parametrize(
    ("stored", "guarded"),
    [
        pytest.param(both(policy_spec((GPU, NIC)), BINDING), {GPU, NIC}, id="as it should be"),
        pytest.param(both(), set(), id="nothing is there"),
        pytest.param(both(POLICY), set(), id="no binding"),
        pytest.param(both(None, BINDING), set(), id="no policy"),
        pytest.param(both(POLICY, {**BINDING, "matchResources": {}}), set(), id="bound to a part"),
        pytest.param(both({**POLICY, "failurePolicy": "Ignore"}, BINDING), set(), id="changed"),
        pytest.param(both({**POLICY, "matchConditions": ODD}, BINDING), set(), id="another's condition"),
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
        ({KEY: "[ nodedevice ]"}, True),
        ({KEY: "[ other ]"}, False),
        ({KEY: "[ other, nodedevice ]"}, True),
        ({KEY: "- other\n- nodedevice\n"}, True),
        ({KEY: "[ nodedevice ]", f"{KEY}/container.a": "[ other ]"}, False),
        ({KEY: "[ nodedevice ]", f"{KEY}/container.a": '[ "nodedevice" ]'}, True),
        ({f"{KEY}/pod": "[ nodedevice ]"}, False),
        ({KEY: "[ other, nodedevice-x ]"}, False),
        ({KEY: "- other\n- 'nodedevice'"}, True),
        # as the policy reads it, to which white space is ASCII's and the end is the end
        ({KEY: "[\u00a0nodedevice ]"}, False),
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
        ("[", "a , ", "b", False),
        ("[a", " ", "!", False),
        ("", "- nodedevice\n", "!", False),
        ("", "- nodedevice\n", "", True),
    ],
)
def test_the_longest_value_that_a_pod_can_have_is_read(begin: str, again: str, end: str, marked: bool) -> None:
    """An expression that tries all ways to match one of these is at it for minutes, in which the operator does nothing else."""
    value = begin + again * ((256 * 1024 - 100) // len(again)) + end
    assert is_annotated({KEY: value}) is marked

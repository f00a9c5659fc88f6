"""What is shown of a pool: which devices a pod could get, what its conditions are, and how much of it fits a NodeDevice."""

import json
from collections.abc import Sequence

import pytest
from nodedevice_agent.devicemanager.resources.presence import EndpointState
from nodedevice_agent.dra import status
from nodedevice_agent.dra.devices import Slice
from nodedevice_agent.dra.pools import Pool
from nodedevice_agent.dra.slices import slice_of
from nodedevice_agent.dra.status import Offered, attributes_of, conditions, snapshot, with_times
from nodedevice_agent.kube.conditions import MAX_MESSAGE
from nodedevice_api.names import Condition, Reason
from nodedevice_api.nodedevice import AllocationStatus, ClaimedDevice

from tests.unit.node_agent.dra.offered import offered, pool_of, pool_of_slices, shown, tainted
from tests.unit.node_agent.dra.published import DRIVER, NAME, NODE, Json, a_slice, device, published, row
from tests.unit.node_agent.kube.shown_status import MONDAY, TUESDAY


def numbers(found: Offered) -> tuple[int, int, int, int]:
    whole = shown(found)
    return whole["total"], whole["healthy"], whole["allocated"], whole["available"]


def condition_of(found: Offered, kind: str = Condition.REGISTERED) -> tuple[str, str, str]:
    return conditions(found, snapshot(found))[kind]


ADMIN, SHARE = ClaimedDevice(id="a", admin_access=True), ClaimedDevice(id="a", share_id="s")


@pytest.mark.parametrize(
    ("devices", "rows", "more", "found"),
    [
        pytest.param(["a", "b"], [], {}, (2, 2, 0, 2), id="free"),
        pytest.param(["a", "b"], [row("p", "a")], {}, (2, 2, 1, 1), id="held"),
        pytest.param(["a", "b"], [row("p", "a"), row("q", "a")], {}, (2, 2, 1, 1), id="held twice"),
        pytest.param(["a"], [row("p", "a", shares=[ADMIN])], {}, (1, 1, 0, 1), id="administered"),
        pytest.param(["a"], [row("p", "a", shares=[ADMIN, SHARE])], {}, (1, 1, 1, 0), id="administered and shared"),
        pytest.param(["a"], [row("p", "a", shares=[ADMIN]), row("q", "a")], {}, (1, 1, 1, 0), id="and held"),
        pytest.param([tainted("a", "NoSchedule"), "b"], [], {}, (2, 2, 0, 1), id="no pods on it"),
        pytest.param([tainted("a", "NoExecute"), "b"], [], {}, (2, 2, 0, 1), id="nor any longer"),
        pytest.param(["a", "b"], [row("p", "a")], {"unhealthy": {"a": "ECC"}}, (2, 1, 1, 1), id="reported unhealthy"),
        pytest.param(["a"], [row("p", "z")], {}, (2, 1, 1, 1), id="held, and in no slice any more"),
    ],
)
def test_numbers(devices: list[Json | str], rows: list[AllocationStatus], more: Json, found: tuple[int, ...]) -> None:
    assert numbers(offered(pool_of(*devices), *rows, **more)) == found


def test_devices_of_a_pod_that_has_ended_are_releasing() -> None:
    whole = shown(offered(pool_of("a", "b", "c"), row("p", "a", releasing=True), row("q", "b")))
    assert (whole["allocated"], whole["releasing"], whole["available"]) == (1, 1, 1)
    both = shown(offered(pool_of("a"), row("p", "a", releasing=True), row("q", "a")))
    assert (both["allocated"], both["releasing"], both["available"]) == (1, 0, 0)


def test_a_pool_that_is_incomplete_or_has_a_device_twice_has_none_available() -> None:
    assert numbers(offered(pool_of("a", "b", count=2))) == (2, 2, 0, 0)
    twice = pool_of_slices(a_slice("s0", ["a"], count=2), a_slice("s1", ["a", "b"], count=2))
    assert numbers(offered(twice)) == (2, 2, 0, 0)


def test_while_a_generation_comes_slice_by_slice_the_numbers_stay() -> None:
    pool = pool_of_slices(a_slice("s", ["a", "b"]), a_slice("s", ["a", "b", "c"], generation=2, count=2))
    assert numbers(offered(pool)) == (2, 2, 0, 2)
    assert numbers(offered(pool, is_late=True)) == (2, 2, 0, 0)


def part(name: str, amount: int | str) -> Json:
    return device(name, consumesCounters=[{"counterSet": "gpu-0", "counters": {"slices": {"value": amount}}}])


def counter(amount: int | str) -> list[Json]:
    return [{"name": "gpu-0", "counters": {"slices": {"value": amount}}}]


def test_what_shares_a_device_with_held_ones_is_available_while_enough_is_left() -> None:
    parts = part("whole", 7), part("half", 3), part("other", 4), part("most", 5)
    pool = pool_of(*parts, "alone", sharedCounters=counter(7))
    assert numbers(offered(pool))[3] == 5
    assert numbers(offered(pool, row("p", "half")))[3] == 2
    assert numbers(offered(pool, row("p", "whole")))[3] == 1
    assert numbers(offered(pool, row("p", "alone")))[3] == 4
    # what several hold adds up
    few = [part(f"part-{amount}", amount) for amount in (2, 3, 4)]
    assert numbers(offered(pool_of(*few, sharedCounters=counter(7)), row("p", "part-2", "part-3")))[3] == 0
    # amounts need not be whole
    parts = part("whole", "1500m"), part("third", "500m"), part("rest", 1), part("most", "1001m")
    pool = pool_of(*parts, sharedCounters=counter("1500m"))
    assert numbers(offered(pool))[3] == 4
    assert numbers(offered(pool, row("p", "third")))[3] == 1
    # of a set that is nowhere there is nothing
    assert numbers(offered(pool_of(part("whole", 1))))[3] == 0


def test_without_slices_held_devices_are_missing() -> None:
    found = offered(None, row("p", "a", "b"))
    whole = shown(found)
    assert (numbers(found), whole["endpoint"]["state"]) == ((2, 0, 2, 0), "Gone")
    assert [(d["id"], d["health"], d["presence"], d["reason"]) for d in whole["devices"]] == [
        (device_id, "Unhealthy", "Missing", Reason.NOT_LISTED) for device_id in "ab"
    ]


def test_a_held_device_may_be_among_those_that_a_slice_has_too_many_of() -> None:
    pool = pool_of(*(f"d{n:03}" for n in range(300)))
    assert numbers(offered(pool, row("p", "d299"))) == (300, 300, 1, 256)
    # ... but no more than these
    gone = [f"gone-{n:02}" for n in range(50)]
    assert numbers(offered(pool, row("p", *gone))) == (306, 300, 50, 256)


def test_times_stay_while_a_row_does() -> None:
    before = with_times([row("p", "a"), row("p", "a", claim="d")], (), MONDAY)
    rows = [row("p", "a", "b"), row("p", "a", claim="d", container="other"), row("p", "a", claim="e"), row("q", "a")]
    assert [each.since for each in with_times(rows, before, TUESDAY)] == [MONDAY, TUESDAY, TUESDAY, TUESDAY]


def test_attributes_lose_their_domain_where_no_other_has_that_name() -> None:
    attributes = {
        f"{DRIVER}/model": "A100",
        "other.com/model": "other",
        "resource.kubernetes.io/pciBusID": "0000:1b:00.0",
        "x.com/serial": "1",
        "y.com/serial": "2",
        "uuid": "GPU-1",
    }
    found = a_slice("s", [device("d", attributes=attributes)]).devices[0]
    assert attributes_of(found, DRIVER) == (
        ("model", "A100"),
        ("other.com/model", "other"),
        ("pciBusID", "0000:1b:00.0"),
        ("uuid", "GPU-1"),
        ("x.com/serial", "1"),
        ("y.com/serial", "2"),
    )
    both = a_slice("s", [device("d", attributes={"model": "plain", f"{DRIVER}/model": "A100"})]).devices[0]
    assert dict(attributes_of(both, DRIVER)).keys() == {"model", f"{DRIVER}/model"}
    many = a_slice("s", [device("d", attributes={f"a{n}": n for n in range(60)})]).devices[0]
    assert len(attributes_of(many, DRIVER)) == status.MAX_SHOWN


def test_a_device_is_shown_with_all_that_is_known_of_it() -> None:
    taint: Json = {"key": "a.com/hot", "value": "90C", "effect": "NoSchedule", "timeAdded": MONDAY}
    attributes = {f"{DRIVER}/model": "A100", "other.com/model": "B", "resource.kubernetes.io/numaNode": 1}
    found = offered(pool_of(device("d", attributes=attributes, taints=[taint])), unhealthy={"d": "ECC errors"})
    [only] = shown(found)["devices"]
    assert only["attributes"] == {"model": "A100", "numaNode": "1", "other.com/model": "B"}
    assert only["taints"] == [{"key": "a.com/hot", "value": "90C", "effect": "NoSchedule", "since": MONDAY}]
    assert only["numaNodes"] == [1]
    assert (only["health"], only["reason"], only["message"]) == ("Unhealthy", Reason.REPORTED_UNHEALTHY, "ECC errors")


def test_the_conditions_of_a_pool() -> None:
    found = offered(pool_of("a"))
    assert condition_of(found)[:2] == ("True", Reason.SERVED_BY_DRA)
    assert condition_of(found, Condition.INJECTABLE)[:2] == ("True", Reason.SERVED_BY_DRA)
    status_, reason, message = condition_of(offered(None))
    assert (status_, reason) == ("False", Reason.ENDPOINT_GONE)
    assert DRIVER in message
    assert NODE in message
    lost = offered(pool_of("a"), lost_to="example.com/gpu")
    assert condition_of(lost)[:2] == ("False", Reason.PLACE_TAKEN)
    assert "example.com/gpu has its place" in condition_of(lost)[2]


def test_an_incomplete_pool_is_only_reported_once_it_is_late() -> None:
    pool = pool_of("a", count=3)
    assert condition_of(offered(pool))[1] == Reason.SERVED_BY_DRA
    found = condition_of(offered(pool, is_late=True))
    assert found[:2] == ("True", Reason.POOL_INCOMPLETE)
    assert found[2] == (
        f"2 of 3 ResourceSlices of the pool {NODE} are missing in its newest generation, and only the devices of the others are "
        "shown: the scheduler allocates none of these devices until the driver has published all slices; or these belong to "
        "several nodes, and are in no NodeDevice"
    )
    complete = a_slice("s", ["a"])
    pool = pool_of_slices(complete, a_slice("s", [{"name": 7}], generation=2))
    message = condition_of(offered(pool, is_late=True))[2]
    assert "last complete generation are shown: the devices of s are of a form" in message
    assert "allocates none" not in message
    lighter = published("s", ["a"], generation=2)
    lighter.lighten()
    pool = pool_of_slices(complete, slice_of(lighter))
    assert "the devices of s are not read" in condition_of(offered(pool, is_late=True))[2]


@pytest.mark.parametrize(
    ("slices", "reason", "words"),
    [
        pytest.param(
            [a_slice("s0", ["a"]), a_slice("s1", ["b"])],
            Reason.POOL_INCOMPLETE,
            f"the pool {NODE} has 2 ResourceSlices in its newest generation, but they state 1: the scheduler",
            id="too many slices",
        ),
        pytest.param(
            [a_slice("s0", ["a"], count=2), a_slice("s1", ["a"], count=2)],
            Reason.DEVICES_REFUSED,
            "a in s0 and s1",
            id="a device in two slices",
        ),
        pytest.param(
            [a_slice("s", [part("a", 1), "b"])],
            Reason.DEVICES_REFUSED,
            "missing in their pool or occur twice: slices of gpu-0 for a; its driver",
            id="counters that are nowhere",
        ),
    ],
)
def test_a_pool_that_the_scheduler_refuses_says_why(slices: Sequence[Slice], reason: str, words: str) -> None:
    found = offered(pool_of_slices(*slices), is_late=True)
    assert numbers(found)[3] == 0
    assert condition_of(found)[:2] == ("True", reason)
    assert words in condition_of(found)[2]


@pytest.mark.parametrize(
    ("cordons", "device_of_rule", "more"),
    [
        pytest.param(["a"], "a", "", id="one"),
        pytest.param(["b", "a", "unknown"], "a", ", and such a rule for each of b", id="several"),
        pytest.param(["*"], None, "", id="all"),
        pytest.param([f"d{n}" for n in range(5)], "d0", ", and such a rule for each of d1, d2, d3, …", id="many"),
    ],
)
def test_a_cordon_is_answered_with_the_rule_for_it(cordons: list[str], device_of_rule: str | None, more: str) -> None:
    pool = pool_of("a", "b", *(f"d{n}" for n in range(9)))
    found = condition_of(offered(pool, cordons=cordons, has_rules=True))
    assert found[:2] == ("True", Reason.CORDON_NOT_POSSIBLE)
    assert f"and create this DeviceTaintRule{more} (with NoExecute, pods" in found[2]
    rule = json.loads(found[2][found[2].index("{") :])
    expected = {"driver": DRIVER, "pool": NODE} | ({"device": device_of_rule} if device_of_rule else {})
    taint = {"key": "nodedevice.io/cordoned", "effect": "NoSchedule"}
    assert rule == {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceTaintRule",
        "metadata": {"generateName": "cordon-"},
        "spec": {"deviceSelector": expected, "taint": taint},
    }


def test_without_such_rules_the_driver_alone_can() -> None:
    assert "DeviceTaintRule" not in condition_of(offered(pool_of("a"), cordons=["a"]))[2]
    assert "lists no device zz" in condition_of(offered(pool_of("a"), cordons=["zz"], has_rules=True))[2]


def test_the_longest_rule_fits_a_condition() -> None:
    devices = {name: a_slice("s", [name]).devices[0] for name in (letter * 63 for letter in "abcdef")}
    pool = Pool("d" * 63, "/".join(["p" * 63] * 3) + "/" + "p" * 61, 1, devices)
    found = Offered(pool.key, NAME, pool, EndpointState.RUNNING, cordons=[*devices], has_rules=True)
    message = condition_of(found)[2]
    assert len(message) < MAX_MESSAGE
    json.loads(message[message.index("{") :])


@pytest.mark.parametrize(
    ("found", "reason", "words"),
    [
        (offered(pool_of("a", "b")), Reason.ALL_HEALTHY, "all 2 devices are healthy"),
        (offered(pool_of()), Reason.NO_DEVICES, "list no devices"),
        (offered(None), Reason.NO_DEVICES, "no ResourceSlice offers devices of this pool"),
        (offered(None, row("p", "a")), Reason.NONE_HEALTHY, "1 in use by pods"),
        (offered(pool_of("a"), unhealthy={"a": "x"}), Reason.NONE_HEALTHY, "unhealthy: a (ReportedUnhealthy)"),
        (
            offered(pool_of("a", "b"), row("p", "z")),
            Reason.SOME_UNHEALTHY,
            "1 of 3 devices are unhealthy: z (NotListed)",
        ),
        (offered(pool_of(*"abcdef"), unhealthy=dict.fromkeys("abcde", "x")), Reason.SOME_UNHEALTHY, "), …"),
    ],
)
def test_its_condition_of_health(found: Offered, reason: str, words: str) -> None:
    status_, shown_reason, message = condition_of(found, Condition.HEALTHY)
    assert (status_, shown_reason) == ("True" if reason == Reason.ALL_HEALTHY else "False", reason)
    assert message.endswith(words)


@pytest.mark.parametrize(
    ("attributes", "value"), [(0, ""), (32, "x" * 64), (32, "😀" * 64)], ids=["none", "ascii", "all"]
)
def test_a_long_list_is_cut_and_counted_with_what_matters_in_it(attributes: int, value: str) -> None:
    names = [f"device-{n:05}" for n in range(6_000)]
    values = {f"attribute-{n}": value for n in range(attributes)}
    devices = [device(name, attributes=values) for name in names]
    slices = [a_slice(f"s{n}", devices[n : n + 128], count=47) for n in range(0, 5_888, 128)]
    last = a_slice("s5888", [*names[5888:-1], tainted(names[-1], "NoSchedule")], count=47)
    pool = pool_of_slices(*slices, last)
    whole = shown(offered(pool, row("p", names[-2]), row("q", "gone"), unhealthy={names[-2]: "ECC"}))
    assert (whole["total"], whole["healthy"], whole["allocated"], whole["available"]) == (6_001, 5_999, 2, 5_998)
    listed = [each["id"] for each in whole["devices"]]
    assert {"gone", names[-1], names[-2]} <= {*listed}
    assert len(listed) >= 1_000 - 1
    assert whole["devicesOmitted"] == 6_001 - len(listed)


@pytest.mark.parametrize("taints", [1, 16])
def test_where_all_are_tainted_those_that_are_broken_or_held_are_in_the_list(taints: int) -> None:
    keys = [f"a.com/{'k' * 250}-{number}" for number in range(taints)]
    of_each = [{"key": key, "value": "v" * 63, "effect": "NoSchedule", "timeAdded": MONDAY} for key in keys]
    attributes = {f"attribute-{number}": "x" * 64 for number in range(32)}
    names = [f"device-{number:04}" for number in range(2_000)]
    devices = [device(name, taints=of_each, attributes=attributes) for name in names]
    pool = pool_of_slices(*(a_slice(f"s{n}", devices[n : n + 64], count=32) for n in range(0, 2_000, 64)))
    whole = shown(offered(pool, row("p", names[-2]), unhealthy={names[-1]: "ECC"}))
    listed = [each["id"] for each in whole["devices"]]
    assert listed == sorted(listed)
    assert {names[-1], names[-2], names[0]} <= {*listed}

"""ResourceSlices as they come: what is shown is bounded, and nothing that a driver can write hurts."""

import json
from decimal import Decimal
from typing import Any

import pytest
from nodedevice_agent.dra import slices
from nodedevice_agent.dra.devices import Device
from nodedevice_agent.dra.slices import ResourceSliceObject, slice_of
from nodedevice_api.nodedevice import DeviceTaint
from nodedevice_common.decoding import Undecodable, decode

from tests.unit.common.test_decoding import hostile, nested
from tests.unit.node_agent.dra.published import DRIVER, NODE, Json, a_slice, body, device

SINCE = "2026-01-01T12:00:00Z"


def only(whole: Json) -> Device:
    (found,) = a_slice("s", [whole]).devices
    return found


def test_a_slice() -> None:
    counters = [{"name": "gpu-0", "counters": {"memory": {"value": "80Gi"}, "slices": {"value": 7}}}]
    found = a_slice("s", ["d0", "d1"], generation=4, count=2, sharedCounters=counters)
    assert (found.name, found.key, found.generation, found.count) == ("s", (DRIVER, NODE), 4, 2)
    assert [each.name for each in found.devices] == ["d0", "d1"]
    assert found.counters == (("gpu-0", "memory", Decimal(80 * 2**30)), ("gpu-0", "slices", Decimal(7)))
    assert (found.omitted, found.problem) == (0, "")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("A100", "A100"),
        (7, "7"),
        (True, "true"),
        ({"version": "1.2.3"}, "1.2.3"),
        ({"strings": ["a", "b"]}, "a, b"),
        ({"bools": [True, False]}, "true, false"),
        ({"string": "x" * 300}, "x" * 256),
        ({"strings": ["x" * 100] * 9}, ("x" * 100 + ", ") * 2 + "x" * 52),
    ],
)
def test_each_kind_of_attribute(value: Any, text: str) -> None:
    assert only(device("d", attributes={"a": value})).attributes == {"a": text}


@pytest.mark.parametrize("value", [{}, {"strings": []}, {"quaternion": [1, 2, 3, 4]}, {"string": None}])
def test_an_attribute_of_no_known_kind_is_left_out(value: Json) -> None:
    assert only({"name": "d", "attributes": {"a": value, "b": {"int": 1}}}).attributes == {"b": "1"}


def test_a_capacity_is_an_attribute_too() -> None:
    whole = device("d", attributes={"memory": "fast"}, capacity={"memory": {"value": "80Gi"}, "cores": {"value": 8}})
    assert only(whole).attributes == {"memory": "fast", "capacity.memory": "80Gi", "cores": "8"}


def test_taints() -> None:
    taints = [
        {"key": "a.com/hot", "value": "90C", "effect": "NoExecute", "timeAdded": SINCE},
        {"key": "k" * 400, "value": "v" * 100, "effect": "NoSchedule", "timeAdded": "yesterday"},
        {"effect": "NoSchedule"},
        {"key": "a.com/cold", "effect": "None"},
    ]
    assert only(device("d", taints=taints)).taints == (
        DeviceTaint(key="a.com/hot", value="90C", effect="NoExecute", since=SINCE),
        DeviceTaint(key="k" * 317, value="v" * 63, effect="NoSchedule"),
        DeviceTaint(key="a.com/cold", effect="None"),
    )


@pytest.mark.parametrize(
    ("value", "nodes"),
    [
        (0, (0,)),
        (1023, (1023,)),
        (-1, ()),
        (1024, ()),
        ("1", ()),
        # the device's own, and another of the same socket
        ({"ints": [3, 2]}, (3,)),
        ({"ints": []}, ()),
        ({"ints": [-1]}, ()),
    ],
)
def test_the_numa_node(value: Any, nodes: tuple[int, ...]) -> None:
    assert only(device("d", attributes={"resource.kubernetes.io/numaNode": value})).numa_nodes == nodes


def test_what_is_beyond_the_bounds_is_left_out_and_devices_are_counted() -> None:
    attributes = {f"a{n}": {"string": "x"} for n in range(100)} | {"n" * 200: {"int": 1}}
    taints = [{"key": f"k{n}", "effect": "None"} for n in range(50)]
    consumes = [{"counterSet": "s", "counters": {f"c{n}": {"value": "1"} for n in range(500)}}]
    whole = {"attributes": attributes, "capacity": attributes, "taints": taints, "consumesCounters": consumes}
    many = [{**whole, "name": f"d{n}"} for n in range(slices.MAX_DEVICES + 5)]
    found = a_slice("s", [device("x" * 200), device(""), *many])
    assert (len(found.devices), found.omitted) == (slices.MAX_DEVICES, 7)
    first = found.devices[0]
    assert len(first.attributes) == slices.MAX_ATTRIBUTES
    assert (len(first.taints), len(first.consumes)) == (slices.MAX_TAINTS, slices.MAX_COUNTERS)


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param({"devices": 7}, id="devices are no list"),
        pytest.param({"devices": [7]}, id="a device is none"),
        pytest.param({"devices": [{"name": []}]}, id="a name is none"),
        pytest.param({"devices": [{"name": "d", "attributes": {"a": 7}}]}, id="an attribute is none"),
        pytest.param({"devices": [{"name": "d", "attributes": {"a": {"int": 123}}}]}, id="a number is too great"),
        pytest.param({"devices": [{"name": "d", "attributes": []}]}, id="attributes are a list"),
        pytest.param({"devices": [{"name": "d"}], "sharedCounters": [{"counters": 7}]}, id="counters are none"),
    ],
)
def test_devices_of_another_form_are_a_problem_of_their_slice(spec: Json) -> None:
    # 123: a number that Python itself does not print
    text = json.dumps(body("s", **spec)).replace("123", "9" * 5_000)
    found = slice_of(decode(text, ResourceSliceObject))
    assert found.problem
    assert (found.key, found.devices) == ((DRIVER, NODE), ())


@pytest.mark.parametrize("depth", [100, 1_100, 10_000])
def test_any_depth(depth: int) -> None:
    deep = nested(depth)
    devices = f'[{{"name":"d","unknown":{deep}}}]'
    text = f'{{"metadata":{{"name":"s"}},"spec":{{"driver":"{DRIVER}","unknown":{deep},"devices":{devices}}}}}'
    assert [each.name for each in slice_of(decode(text, ResourceSliceObject)).devices] == ["d"]
    for attribute in (deep, f'{{"a":{deep}}}', f'{{"a":{{"string":{deep}}}}}'):
        text = f'{{"metadata":{{"name":"s"}},"spec":{{"devices":[{{"name":"d","attributes":{attribute}}}]}}}}'
        assert all(not each.attributes for each in slice_of(decode(text, ResourceSliceObject)).devices)


def test_whatever_text() -> None:
    for _, text in hostile():
        for whole in (text, b'{"spec":{"devices":[' + text + b"]}}", b'{"spec":{"sharedCounters":' + text + b"}}"):
            try:
                found = decode(whole, ResourceSliceObject)
            except Undecodable:
                continue
            slice_of(found)


def test_amounts_may_be_fractions_and_what_is_no_number_is_left_out() -> None:
    consumes = [{"counterSet": "s", "counters": {"a": {"value": "500m"}, "b": {"value": "2"}, "c": {"value": "many"}}}]
    assert only(device("d", consumesCounters=consumes)).consumes == (("s", "a", Decimal("0.5")), ("s", "b", Decimal(2)))

"""Equal small values are one object; big ones are not remembered, as their objects may be long gone."""

import gc
import weakref
from dataclasses import dataclass

import msgspec
import pytest
from nodedevice_kube.planner import Need
from nodedevice_operator.objects.bound_pod import BoundPodSchema, PodNeeds, bound_pod
from nodedevice_operator.objects.meta import shared


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Value:
    of: object


def test_equal_small_values_are_one_object() -> None:
    make = shared(Value)
    assert make(("a", 1)) is make(("a", 1))


@pytest.mark.parametrize(
    "big",
    [
        pytest.param("x" * 2000, id="text"),
        pytest.param(("x" * 500,) * 3, id="texts"),
        pytest.param(frozenset(range(100)), id="a set"),
        pytest.param(((Need(1, container="c" * 1100),),), id="in an object"),
        pytest.param((1, None, "x" * 1100), id="after a number and nothing"),
    ],
)
def test_nothing_keeps_a_big_value_that_nobody_has(big: object) -> None:
    make = shared(Value)
    made = make(big)
    assert made == Value(big)
    gone = weakref.ref(made)
    del made
    gc.collect()
    assert gone() is None


def test_of_very_many_small_values_the_last_are_kept() -> None:
    make = shared(Value)
    first = weakref.ref(make("the first"))
    gc.collect()
    assert first() is not None
    for number in range(4096):
        make(number)
    gc.collect()
    assert first() is None


def pod(number: int, containers: int) -> BoundPodSchema:
    """One whose containers have names of their own."""
    spec = {
        "nodeName": "n",
        "containers": [
            {"name": f"c-{number}-{each}", "resources": {"limits": {"example.com/gpu": "1"}}}
            for each in range(containers)
        ],
    }
    metadata = {"name": f"p-{number}", "uid": f"u-{number}", "resourceVersion": "1", "namespace": "default"}
    return msgspec.convert({"metadata": metadata, "spec": spec}, BoundPodSchema)


def test_pods_that_are_gone_leave_nothing_that_grows() -> None:
    """One tenant's pod of 2,500 containers, created and deleted in turn, ended the extender."""
    before = _needs()
    for number in range(30):
        assert len(bound_pod(pod(number, 200)).needs.of[0][1]) == 200
    gc.collect()
    assert _needs() - before <= 1


def _needs() -> int:
    return sum(isinstance(each, PodNeeds) for each in gc.get_objects())

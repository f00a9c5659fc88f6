"""Quantities at their bounds, and pods that ask for nothing."""

import pytest
from kubectl_nodedevice import quantities
from kubectl_nodedevice.cluster import Container, Meta, Pod

GPU = "example.com/gpu"


@pytest.mark.parametrize(
    ("quantity", "number"),
    [
        ("9" * 18, 10**18 - 1),
        ("1" * 19, None),
        *((f"3{suffix}", 3 * factor) for suffix, factor in quantities._SUFFIXES.items()),
        ("k", None),
        ("1ik", None),
        ("k1", None),
    ],
)
def test_a_number_of_devices(quantity: str, number: int | None) -> None:
    assert quantities.count(quantity) == number


def test_who_asks_for_nothing() -> None:
    for pod in (Pod(Meta("p")), Pod(Meta("p"), containers=(Container("c"), Container("d", requests={GPU: "none"})))):
        assert (quantities.largest(pod, GPU), dict(quantities.requests(pod))) == (0, {})

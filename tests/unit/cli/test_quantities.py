"""Quantities at their bounds, and pods that ask for nothing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kubectl_nodedevice import quantities
from kubectl_nodedevice.cluster import Container, Meta, Pod
from nodedevice_api import extended_resources

from tests.unit.quantities import CASES

GPU = "example.com/gpu"


@pytest.mark.parametrize(("quantity", "number"), CASES)
def test_a_number_of_devices(quantity: str, number: int | None) -> None:
    assert quantities.count(quantity) == number


@given(st.from_regex(r"[+-]?[0-9]{0,20}[.]?[0-9]{0,20}([eE][+-]?[0-9]{1,9}|[numkKMGTPEi]{0,2})", fullmatch=True))
def test_any_quantity_means_what_the_other_programs_take_it_for(quantity: str) -> None:
    assert quantities.count(quantity) == extended_resources.count(quantity)


def test_who_asks_for_nothing() -> None:
    for pod in (Pod(Meta("p")), Pod(Meta("p"), containers=(Container("c"), Container("d", requests={GPU: "none"})))):
        assert (quantities.needs_of(pod, GPU), dict(quantities.requests(pod))) == ((), {})

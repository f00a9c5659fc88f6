"""Names that an extended resource may have, and whole numbers as the API server spells them."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nodedevice_api.extended_resources import MOST, amount, count, resource_name_problem

from tests.unit.quantities import CASES


@pytest.mark.parametrize("name", ["example.com/gpu", "a/b", "vendor.example.com/A_b.c-1", "x" * 60 + ".y/" + "n" * 63])
def test_good_names(name: str) -> None:
    assert resource_name_problem(name) == ""


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("gpu", "domain/name"),
        ("", "domain/name"),
        ("kubernetes.io/gpu", "reserved"),
        ("node.kubernetes.io/gpu", "reserved"),
        ("requests.example.com/gpu", "quota"),
        ("Example.com/gpu", "lower-case"),
        ("/gpu", "lower-case"),
        ("example.com/", "after the slash"),
        ("example.com/a/b", "after the slash"),
        ("example.com/gpu\n", "after the slash"),
        ("example.com/" + "n" * 64, "63"),
        (".".join(["a" * 60] * 5) + "/gpu", "244"),
    ],
)
def test_errors_of_bad_names_name_what_is_wrong(name: str, message: str) -> None:
    assert message in resource_name_problem(name)


@pytest.mark.parametrize(("quantity", "number"), CASES)
def test_count(quantity: str, number: int | None) -> None:
    assert count(quantity) == number


@pytest.mark.parametrize(
    ("quantity", "number"),
    [("1500m", "1.5"), ("100u", "0.0001"), ("2.5Ki", "2560"), ("1e-3", "0.001"), ("1e5000", MOST), ("-10E", -MOST)],
)
def test_an_amount_may_be_less_than_one(quantity: str, number: str | int) -> None:
    assert amount(quantity) == Decimal(number)
    assert amount("one") is None


@given(st.from_regex(r"[+-]?[0-9]{0,30}[.]?[0-9]{1,30}[eE][+-]?[0-9]{1,30}", fullmatch=True))
def test_any_exponent_is_answered(quantity: str) -> None:
    number, any_number = count(quantity), amount(quantity)
    assert any_number is not None
    assert -MOST <= any_number <= MOST
    assert number is None or number == any_number


@given(st.text(max_size=20))
def test_any_text_is_answered(text: str) -> None:
    assert count(text) is None or isinstance(count(text), int)
    assert amount(text) is None or isinstance(amount(text), Decimal)

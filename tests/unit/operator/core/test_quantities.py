"""Whole numbers as the API server spells them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nodedevice_operator.core.quantities import count


@pytest.mark.parametrize(
    ("quantity", "number"),
    [
        ("0", 0),
        ("8", 8),
        ("8000m", 8),
        ("1k", 1000),
        ("1500m", None),
        ("1.5k", 1500),
        ("2Ki", 2048),
        ("1M", 1_000_000),
        ("2e3", 2000),
        ("1E", 10**18),
        ("-1", -1),
        ("", None),
        ("k", None),
        ("1x", None),
        ("one", None),
    ],
)
def test_count(quantity: str, number: int | None) -> None:
    assert count(quantity) == number


@given(st.integers(0, 10**15))
def test_plain_digits_mean_themselves(number: int) -> None:
    assert count(str(number)) == number
    assert count(f"{number * 1000}m") == number


@given(st.text(max_size=20))
def test_any_text_is_answered(text: str) -> None:
    assert count(text) is None or isinstance(count(text), int)

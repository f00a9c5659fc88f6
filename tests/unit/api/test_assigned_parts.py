"""The annotation by which the scheduler extender assigns parts: what is written is read, and nothing else is taken for it."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nodedevice_api.assigned_parts import MAX_CHARACTERS, Assigned, decode, encode

_GPU = {"aliyun.com/gpu-mem": {"main": {"GPU-1": 16}}}


def _filled(values: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.dictionaries(st.text(min_size=1, max_size=20), values, min_size=1, max_size=3)


@given(_filled(_filled(_filled(st.integers(1, 4096)))))
def test_what_is_written_is_read(assigned: Assigned) -> None:
    assert decode(encode("uid", assigned), "uid") == assigned


def test_the_form() -> None:
    assert encode("u-1", _GPU) == '{"parts":{"aliyun.com/gpu-mem":{"main":{"GPU-1":16}}},"podUID":"u-1"}'


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        pytest.param("{", "not JSON", id="truncated"),
        pytest.param("[" * 16_000, "not JSON", id="nested too deep"),
        pytest.param("[]", "not an object with podUID and parts", id="a list"),
        pytest.param('{"podUID":"uid"}', "not an object with podUID and parts", id="no parts"),
        pytest.param(encode("another", _GPU), "for another pod, of UID 'another'", id="copied from another pod"),
        pytest.param(json.dumps({"parts": _GPU}), "for another pod", id="no pod"),
        pytest.param("x" * (MAX_CHARACTERS + 1), "more than 16384 characters", id="too long"),
    ],
)
def test_another_text_is_refused(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        decode(text, "uid")


@pytest.mark.parametrize(
    "parts",
    [{"r": []}, {"r": {"c": 1}}, {"r": {"c": {}}}, *({"r": {"c": {"g": n}}} for n in (0, -1, True, 1.5, "1", None))],
    ids=json.dumps,
)
def test_parts_of_another_form_are_refused(parts: Any) -> None:
    with pytest.raises(ValueError, match=r"by resource, container and device|not a number of parts"):
        decode(json.dumps({"podUID": "uid", "parts": parts}), "uid")

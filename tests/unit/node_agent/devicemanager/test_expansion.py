"""Environment variables in a container's command, as the kubelet expands them."""

import pytest
from nodedevice_agent.devicemanager.expansion import arguments, references


@pytest.mark.parametrize(
    ("word", "names"),
    [
        ("", []),
        ("$(A)", ["A"]),
        ("--x=$(A),$(B.c-d)", ["A", "B.c-d"]),
        ("$$(A)", []),
        ("$$$(A)", ["A"]),
        ("$$$$(A)", []),
        ("$A ${A} $ (A) $(A", []),
        ("$x$(A)", ["A"]),
        ("$()", [""]),
        ("$($(A))", ["$(A"]),
    ],
)
def test_references(word: str, names: list[str]) -> None:
    """Source: third_party/forked/golang/expansion/expand_test.go."""
    assert list(references(["--", word])) == names


def test_a_word_without_an_end_is_read_once() -> None:
    """A tenant's command of 100,000 openings took minutes of the event loop."""
    word = "$(" * 500_000
    assert list(references([word])) == []
    assert list(references(["$(A)" + word])) == ["A"]
    assert arguments(["$(A)" + word], {"A": "1"}, None) == ["1" + word]


def test_only_what_is_known_is_replaced() -> None:
    values = {"A": "1", "B": "$(A)"}
    args = ["x", "$(A)$(B)$(C)", "$A", "$(A"]
    assert arguments(args, values, None) == ["x", "1$(A)$(C)", "$A", "$(A"]
    assert arguments(args, values, {"A", "C"}) == ["x", "1$(B)$(C)", "$A", "$(A"]
    assert arguments(args, values, {"C"}) == []
    assert arguments(["x", "$(C)"], values, None) == []
    assert arguments([], values, None) == []

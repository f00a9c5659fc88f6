"""Environment variables in a container's command, as the kubelet expands them."""

import pytest
from nodedevice_agent.devicemanager.expansion import expanded, references


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


def test_only_what_is_known_is_replaced() -> None:
    values = {"A": "1", "B": "$(A)"}
    assert expanded(["x", "$(A)$(B)$(C)", "$A", "$(A"], values) == ["x", "1$(A)$(C)", "$A", "$(A"]
    assert expanded(["x", "$(C)"], values) == []
    assert expanded([], values) == []

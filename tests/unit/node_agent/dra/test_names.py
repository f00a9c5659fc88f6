"""By which resource name a pool of a DRA driver has a NodeDevice: readable where that is unambiguous, and never another's."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nodedevice_agent.dra.names import is_observed, resource_name
from nodedevice_api.names import node_device_name

from tests.examples import examples
from tests.unit.node_agent.dra.published import DRIVER
from tests.unit.node_agent.kube import crd_rules

NODE = "node-a.example.com"
NAME = re.compile(
    r"[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
)


def free(name: str) -> bool:
    return False


@pytest.mark.parametrize(
    ("pool", "name"),
    [
        pytest.param(NODE, "devices", id="the node's name"),
        pytest.param("gpus", "gpus", id="another"),
        pytest.param(f"{NODE}-gpus", "gpus", id="begins with it"),
        pytest.param(f"{NODE}/gpus", "gpus", id="is below it"),
        pytest.param(f"gpus-{NODE}", "gpus", id="ends with it"),
        pytest.param(f"gpus.{NODE}", "gpus", id="ends with it, as a domain"),
        pytest.param(f"{NODE}gpus", f"{NODE}gpus", id="is no part of it"),
        pytest.param("node-a", "node-a", id="is longer than it"),
        pytest.param("x" * 63, "x" * 63, id="the longest"),
    ],
)
def test_the_nodes_name_is_left_out(pool: str, name: str) -> None:
    assert resource_name(NODE, DRIVER, pool, free) == f"{DRIVER}/{name}"


@pytest.mark.parametrize("pool", ["a/b", f"{NODE}/a/b", "x" * 64, "a/" + "y" * 250, "-", "☃", "a b", "", "_"])
def test_what_does_not_fit_has_a_hash(pool: str) -> None:
    name = resource_name(NODE, DRIVER, pool, free)
    assert re.fullmatch(rf"{DRIVER}/([-A-Za-z0-9_.]+-)?[0-9a-f]{{8}}", name)
    assert NAME.fullmatch(name)


def test_a_hash_is_the_same_in_each_release() -> None:
    assert resource_name(NODE, DRIVER, "a/b", free) == f"{DRIVER}/a-b-27426f57"


def test_a_name_that_is_taken_is_no_pools() -> None:
    taken = {f"{DRIVER}/gpus"}
    first = resource_name(NODE, DRIVER, "gpus", taken.__contains__)
    assert first.startswith(f"{DRIVER}/gpus-")
    assert len(first) == len(f"{DRIVER}/gpus-") + 8
    # ... nor where somebody named a pool like the hash of this one
    second = resource_name(NODE, DRIVER, "gpus", {*taken, first}.__contains__)
    assert second not in {*taken, first}
    assert second.startswith(first)


WORDS = st.sampled_from([NODE, "a", "gpus"])
POOLS = st.lists(
    st.sampled_from([NODE, "devices", "gpus", "a/b", "a-b", "x" * 70, "x" * 71])
    | st.builds("{}{}{}".format, WORDS, st.sampled_from("-./"), WORDS)
    | st.from_regex(r"[a-z0-9]([-a-z0-9./]{0,80}[a-z0-9])?", fullmatch=True),
    unique=True,
    max_size=8,
)


@settings(max_examples=examples(200))
@given(POOLS)
def test_no_two_pools_have_one_name_and_each_fits_the_crd(pools: list[str]) -> None:
    names: dict[str, str] = {}
    for pool in pools:
        names[pool] = resource_name(NODE, DRIVER, pool, [*names.values()].__contains__)
    assert len(set(names.values())) == len(pools)
    for name in names.values():
        assert NAME.fullmatch(name)
        assert len(name) <= 308
        assert len(node_device_name(NODE, name)) <= 253


@pytest.mark.parametrize(
    ("key", "is_shown"),
    [
        ((DRIVER, NODE), True),
        (("nodedevice.io", NODE), False),
        (("gpu.nodedevice.io", NODE), True),
        (("x" * 64, NODE), False),
        (("x" * 60 + ".com", NODE), False),
        (("Gpu.Example.com", NODE), True),
        (("Gpu_1.example.com", NODE), False),
        (("", NODE), False),
        ((DRIVER, ""), False),
        ((DRIVER, "x" * 253), True),
        ((DRIVER, "x" * 254), False),
    ],
)
def test_which_pools_are_shown(key: tuple[str, str], is_shown: bool) -> None:
    assert is_observed(key) is is_shown
    assert crd_rules.STATUS["properties"]["driver"]["maxLength"] == 63

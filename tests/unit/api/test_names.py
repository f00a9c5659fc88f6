"""Names of NodeDevices: valid, readable, the same each time, and never one name for two pairs."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nodedevice_api.names import node_device_name

# RFC 1123 as Kubernetes reads it (apimachinery, validation.IsDNS1123Subdomain)
SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")

labels = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", fullmatch=True)


def subdomains(longest: int) -> st.SearchStrategy[str]:
    return st.lists(labels, min_size=1, max_size=6).map(".".join).map(lambda name: name[:longest].rstrip("-."))


node_names = subdomains(253)
resource_names = st.builds(
    "{}/{}".format, subdomains(244), st.from_regex(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?", fullmatch=True)
)


@pytest.mark.parametrize(
    ("node_name", "resource_name", "name"),
    [
        pytest.param("node-a", "example.com/gpu", "node-a.example.com.gpu", id="nothing lost: no hash"),
        pytest.param("node-a", "a-b.example.com/gpu-2", "node-a.a-b.example.com.gpu-2", id="dashes are kept"),
        pytest.param("node.a", "b/c", "node.a.b.c-db2402e0", id="a dot in the node: where does it end?"),
        pytest.param("node", "a.b/c", "node.a.b.c", id="... and the pair it would be mistaken for"),
        pytest.param("node-a", "example.com/GPU", "node-a.example.com.gpu-562ead09", id="capitals"),
        pytest.param("node-a", "example.com/my_gpu", "node-a.example.com.my-gpu-9d28c0d1", id="underscore"),
    ],
)
def test_examples(node_name: str, resource_name: str, name: str) -> None:
    assert node_device_name(node_name, resource_name) == name


# Few characters and short names, so that pairs that look alike come often.
alike_nodes = st.from_regex(r"[ab]([-.]?[ab]){0,3}", fullmatch=True)
alike_resources = st.from_regex(r"[ab](\.?[ab]){0,3}/[aAb]([-_.]{0,2}[aAb]){0,3}", fullmatch=True)


pair, alike = st.tuples(node_names, resource_names), st.tuples(alike_nodes, alike_resources)


@given(st.tuples(pair, pair) | st.tuples(alike, alike))
def test_names_are_valid_and_two_pairs_never_share_one(pairs: tuple[tuple[str, str], tuple[str, str]]) -> None:
    one, other = pairs
    name = node_device_name(*one)
    assert (name == node_device_name(*other)) == (one == other)
    assert SUBDOMAIN.fullmatch(name)
    assert len(name) <= 253


@given(node_names, st.from_regex(r"[a-z]{1,5}/[a-z]{1,5}", fullmatch=True))
def test_begins_as_its_node_does(node_name: str, resource_name: str) -> None:
    """Somebody who lists the objects sees the node's name first, whatever is lost further on."""
    assert node_device_name(node_name, resource_name).startswith(node_name[:200].rstrip("-."))


def test_cannot_be_asked_for_by_another_pair() -> None:
    """A resource called what a hashed name ends with gets a hash of its own."""
    hashed = node_device_name("node-a", "example.com/GPU")
    assert node_device_name("node-a", hashed.removeprefix("node-a.").replace(".com.", ".com/")) != hashed


def test_longest_names_fit() -> None:
    longest = [node_device_name("n" * 253, f"{'d' * 244}/{name}") for name in ("a" * 63, "a" * 62 + "b")]
    assert all(len(name) <= 253 for name in longest)
    assert longest[0] != longest[1]

"""A plugin's answer in any form gives a container the same with `nri` as with the kubelet alone, or the container is refused.

docs/delivery.md has the cases that differ.
"""

from asyncio import AbstractEventLoop
from collections.abc import Iterator, Mapping

import pytest

from tests.e2e.real_node.answers import CASES, OWNED, Outcome, host_files, outcomes
from tests.e2e.real_node.node_under_test import BARE, NRI, NodeUnderTest

# A container's own, which differ from pod to pod.
_OWN = {"HOSTNAME", "IN_POD"}


@pytest.fixture(scope="module")
def files() -> Iterator[None]:
    with host_files():
        yield


@pytest.fixture(scope="module")
def came_to(
    bare_node: NodeUnderTest, nri_node: NodeUnderTest, plugin_loop: AbstractEventLoop, files: None
) -> Mapping[str, Mapping[str, Outcome]]:
    """By node and case."""
    return {of.delivery: outcomes(of, plugin_loop, CASES, "answers") for of in (bare_node, nri_node)}


@pytest.fixture(scope="module")
def owned(
    bare_node: NodeUnderTest, nri_node: NodeUnderTest, plugin_loop: AbstractEventLoop, files: None
) -> Mapping[str, Mapping[str, Outcome]]:
    """The same where device_ownership_from_security_context is on; the agent reads that in the runtime's file."""
    found = {}
    usual = "enable_cdi = true"
    for of in (bare_node, nri_node):
        with of.containerd_with(usual, f"{usual}\ndevice_ownership_from_security_context = true"):
            of.wait_advertised()
            if of.delivery == BARE:
                found[BARE] = outcomes(of, plugin_loop, OWNED, "owned")
                continue
            with of.agent_with({"--runtime-config": str(of.node.folder / "containerd.toml")}):
                of.wait_advertised()
                found[NRI] = outcomes(of, plugin_loop, OWNED, "owned")
    return found


@pytest.mark.parametrize("name", CASES)
def test_it_is_the_same_or_refused(name: str, came_to: Mapping[str, Mapping[str, Outcome]]) -> None:
    _compare(name, came_to)


@pytest.mark.parametrize("name", OWNED)
def test_a_device_of_the_containers_user(name: str, owned: Mapping[str, Mapping[str, Outcome]]) -> None:
    _compare(name, owned)


def _compare(name: str, came_to: Mapping[str, Mapping[str, Outcome]]) -> None:
    case, bare, nri = {**CASES, **OWNED}[name], came_to[BARE][name], came_to[NRI][name]
    if case.refused:
        assert case.refused in nri.message, nri
        assert case.kubelets in bare.message, bare
        return
    assert nri.seen is not None, nri.message
    assert case.has(nri.seen), nri.seen
    if case.joined:
        return
    assert bare.seen is not None, bare.message
    # a privileged container has what the machine has at that moment
    if "privileged" not in case.more:
        assert nri.seen.nodes == bare.seen.nodes
    assert nri.seen.opened == bare.seen.opened
    assert nri.seen.mounts == bare.seen.mounts
    assert _environment(nri) == _environment(bare)
    assert (nri.mounts, nri.owners, nri.overridden) == (bare.mounts, bare.owners, bare.overridden)


def _environment(outcome: Outcome) -> dict[str, str]:
    assert outcome.seen is not None
    return {name: value for name, value in outcome.seen.env.items() if name not in _OWN}

"""Slices that come again: by a list, after they were deleted, and before they were decoded."""

from pathlib import Path

import pytest
from nodedevice_agent.dra import observer

from tests.fakes.virtual_time import later, virtual_time
from tests.unit.node_agent.dra.observed import Node
from tests.unit.node_agent.dra.published import DRIVER

pytestmark = virtual_time


@pytest.fixture
async def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


async def test_slices_that_one_list_lacks_and_the_next_one_has_are_shown(node: Node) -> None:
    await node.put("s", "a")
    # which is ignored all the time
    await node.put("other", "b", node="node-b")
    async with node.running():
        assert node.api.handler is not None
        for listed in ([], [*node.api.slices.values()]):
            node.api.handler.synced(listed, 2)
            await later(0.1)
        assert node.devices() == ["a"]


async def test_a_slice_that_was_deleted_and_is_in_the_next_list_is_shown(node: Node) -> None:
    await node.put("s", "a")
    async with node.running():
        assert node.api.handler is not None
        listed = [*node.api.slices.values()]
        await node.remove("s")
        assert node.devices() == []
        node.api.handler.synced(listed, 2)
        await later(0.1)
        assert node.devices() == ["a"]


async def test_a_slice_that_comes_again_is_a_new_one_whose_first_changes_are_decoded_at_once(node: Node) -> None:
    async with node.running():
        for version in range(2 * observer.DECODED_AT_ONCE):
            await node.put("s", f"d{version}", version=version)
        assert node.devices() == [f"d{observer.DECODED_AT_ONCE - 1}"]
        # while it waits others do not
        await node.put("t", "b", pool="other")
        assert node.devices((DRIVER, "other")) == ["b"]
        await node.remove("s")
        await node.put("s", "again", version=99)
        assert node.devices() == ["again"]

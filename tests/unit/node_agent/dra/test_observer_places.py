"""Pools of DRA drivers that have no place any more: the observer finds out when there is room again."""

from pathlib import Path
from typing import Final

import pytest
from nodedevice_agent.devicemanager.resource_name_limit import MAX_NAMES

from tests.fakes.virtual_time import later, virtual_time
from tests.unit.node_agent.dra.observed import KEY, NAME, Node

pytestmark = virtual_time

FULL: Final = {f"example.com/r{n}": True for n in range(MAX_NAMES)}


@pytest.fixture
async def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


async def test_a_pool_that_lost_its_place_has_one_as_soon_as_there_is_room(node: Node) -> None:
    await node.put("s", "a")
    async with node.running():
        node.served.places.others = lambda: FULL
        node.observer.displace([NAME], "example.com/gpu")
        # its NodeDevice is deleted
        assert node.served.forget(NAME)
        await later(60)
        assert (node.served.resources, node.served.without_place) == ({}, {KEY})
        node.served.places.others = dict
        await later(60)
        assert [*node.served.resources] == [NAME]

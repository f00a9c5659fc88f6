"""A resource that moves between the agent and the kubelet's own device manager, on a node where both allocate."""

import time
from asyncio import AbstractEventLoop
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace
from nodedevice_agent.checkpoint.format import encode
from nodedevice_agent.kubelet.directory import CHECKPOINT, read_checkpoint
from nodedevice_agent.runtime.kubelet_takeover import CHECK_SECONDS
from nodedevice_api import names

from tests.cluster.node.kubelet import PLUGIN_DIR as KUBELET_PLUGIN_DIR
from tests.e2e.real_node.device_plugins import Kind, Plugins, device_files
from tests.e2e.real_node.node_under_test import AGENT_PLUGIN_DIR, NodeUnderTest
from tests.e2e.real_node.pods import container, pod
from tests.e2e.real_node.pods_on_node import OURS

_MOUNTED = f"{OURS}/moving"


@pytest.fixture
def kind() -> Kind:
    return Kind("moving", {"moving-0": device_files()[0]})


class Move:
    """One resource and its plugin, which serves in one of two directories of the node."""

    def __init__(self, of: NodeUnderTest, kind: Kind, loop: AbstractEventLoop) -> None:
        self._of, self._kind, self._loop = of, kind, loop

    @contextmanager
    def serving_in(self, directory: str) -> Iterator[None]:
        """For the length of the block, and then it ends in order."""
        node = self._of.node
        with Plugins(
            self._loop, node.outside(directory), [self._kind], node.outside(_MOUNTED), mounted_on_node=Path(_MOUNTED)
        ):
            yield

    def until_served_by(self, who: str) -> None:
        """Wait until that device manager gives it out."""
        resource = self._kind.resource

        def is_so() -> bool:
            return bool(self._of.node_device(resource).get("agent", {}).get("servedBy") == who)

        self._of.until(is_so, f"{resource} is served by {who}")

    def run(self, name: str) -> None:
        """A pod that asks for one runs with it, and is deleted."""
        self._of.run(pod(name, [container("main", {self._kind.resource: 1})]))
        assert self._of.seen(name).env[self._kind.env] == "moving-0"
        self._of.delete(name)

    def kubelet_has_given_it_up(self) -> None:
        """Five minutes after its plugin has left it does: its file has only what it gave out, and nobody serves the name."""
        of = self._of
        file = of.node.outside(KUBELET_PLUGIN_DIR) / CHECKPOINT
        with of.registering_again():
            of.node.kubelet.kill()
            before = read_checkpoint(file.parents[1])
            assert self._kind.resource in {a.resource_name for a in before.allocations}
            registered = {name: ids for name, ids in before.registered.items() if name != self._kind.resource}
            file.write_text(encode(replace(before, registered=registered)))
            of.node.start_kubelet()

    def remove_from_node(self) -> None:
        name = self._kind.resource.replace("/", "~1")
        patch = ",".join(f'{{"op": "remove", "path": "/status/{kind}/{name}"}}' for kind in ("capacity", "allocatable"))
        self._of.control_plane.kubectl(
            "patch", "node", self._of.node.name, "--subresource=status", "--type=json", "-p", f"[{patch}]"
        )


def test_a_plugin_moves_to_the_kubelet_and_back(
    nri_node: NodeUnderTest, kind: Kind, plugin_loop: AbstractEventLoop
) -> None:
    """Without a restart of the agent, and no pod fails."""
    move = Move(nri_node, kind, plugin_loop)
    with move.serving_in(AGENT_PLUGIN_DIR):
        nri_node.wait_allocatable(kind.resource, 1)
        move.run("ours")
    with move.serving_in(KUBELET_PLUGIN_DIR):
        # the agent sees that the kubelet gives the device out, and leaves the name to it at once
        move.until_served_by(names.SERVED_BY_KUBELET)
        nri_node.wait_allocatable(kind.resource, 1)
        move.run("the-kubelets")
    with move.serving_in(AGENT_PLUGIN_DIR):
        move.kubelet_has_given_it_up()
        # after its restart the kubelet has the devices of ended pods again; the agent has it forget them
        time.sleep(2 * CHECK_SECONDS)
        move.until_served_by(names.SERVED_BY_NODEDEVICE)
        move.remove_from_node()
        nri_node.wait_allocatable(kind.resource, 1)
        move.run("ours-again")
        nri_node.wait_numbers(kind.resource, allocated=0, available=1)

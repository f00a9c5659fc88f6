"""A device is free when the container that had it has ended, not when the API has forgotten the pod."""

from tests.e2e.real_node.node_under_test import NodeUnderTest
from tests.e2e.real_node.pods import container, pod


def test_force_deleted_and_the_next_waits_for_the_same(nri_node: NodeUnderTest) -> None:
    """The API forgets at once; the process, which does not listen to SIGTERM, lives on for two seconds."""
    rw = nri_node.kinds["rw"]
    for _ in range(3):
        nri_node.run(pod("deaf", [container("main", {rw.resource: 3}, ["-deaf"])]))
        assert not nri_node.seen("deaf").shared
        nri_node.create(pod("next", [container("main", {rw.resource: 3})]))
        nri_node.delete("deaf", force=True)
        nri_node.wait_running_nudged("next")
        assert not nri_node.seen("next").shared
        nri_node.delete("next")


def test_what_is_being_given_back_is_not_advertised(nri_node: NodeUnderTest) -> None:
    rw = nri_node.kinds["rw"]
    nri_node.run(pod("deaf", [container("main", {rw.resource: 2}, ["-deaf"])]))
    with nri_node.watched(rw.resource) as seen:
        nri_node.delete("deaf", force=True)
        nri_node.wait_numbers(rw.resource, releasing=0, available=3)
    releasing = [status for status in seen if status.get("releasing")]
    assert releasing, "nothing was ever shown as releasing"
    assert all(status["releasing"] == 2 and status["available"] == 1 for status in releasing)
    nri_node.wait_allocatable(rw.resource, 3)

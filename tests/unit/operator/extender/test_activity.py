"""When an extender answers: only while it leads, and only after it has read everything since it began to."""

import asyncio

from nodedevice_operator.extender.activity import Activity
from nodedevice_operator.informers.informer import Informer
from nodedevice_operator.kube.write_fence import WriteFence

from tests.fakes.operator.collaborators import running


class Lists(Informer):
    """Lists when it is let."""

    def __init__(self) -> None:
        self.begun = 0
        self.let = asyncio.Event()

    async def refresh(self) -> None:
        self.begun += 1
        await self.let.wait()


async def settled() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_a_new_leader_reads_everything_before_it_answers() -> None:
    fence, pods, nodes = WriteFence(), Lists(), Lists()
    activity = Activity(fence, (pods, nodes))
    assert "stands by" in activity.problem()
    async with running(activity.work()):
        fence.open_for_good()
        activity.begin_term(True, 0.0)
        pods.let.set()
        await settled()
        assert "has just begun to lead" in activity.problem()
        nodes.let.set()
        await settled()
        assert activity.problem() == ""
        # nobody else has led since: all that was bound is known
        fence.close()
        assert "stands by" in activity.problem()
        fence.open_for_good()
        activity.begin_term(False, 0.0)
        assert activity.problem() == ""
        assert (pods.begun, nodes.begun) == (1, 1)


async def test_a_list_of_an_earlier_term_is_not_enough() -> None:
    fence, pods = WriteFence(), Lists()
    fence.open_for_good()
    activity = Activity(fence, (pods,))
    async with running(activity.work()):
        activity.begin_term(True, 0.0)
        await settled()
        activity.begin_term(True, 0.0)
        pods.let.set()
        pods.let.clear()
        await settled()
        assert pods.begun == 2
        assert activity.problem() != ""
        pods.let.set()
        await settled()
        assert activity.problem() == ""

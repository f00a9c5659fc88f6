"""With `allocateRetry: never` no sequence of events makes two Allocate calls for a container, whatever restarts or is lost.

A built-in plugin is called again.

All other invariants of the device manager hold meanwhile; the second resource is retried as ever.
"""

from collections import Counter
from collections.abc import Iterable

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant
from nodedevice_agent.devicemanager.effects import CallAllocate, Effect
from nodedevice_agent.devicemanager.pods import Pod

from tests.examples import examples
from tests.unit.node_agent.devicemanager.test_manager_machine import NAMES, PLUGINS_BACK, ManagerMachine

ONCE = NAMES[0]


class AllocateOnceMachine(ManagerMachine):
    """made: Allocate calls for the resource without retries, by pod UID and container. A UID is never used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.made: Counter[tuple[str, str]] = Counter()

    @initialize(waits_for_runtime=st.booleans(), waits_for_cordons=st.booleans(), plugins=PLUGINS_BACK)
    def begins(self, plugins: int, **options: bool) -> None:
        super().begins(plugins, **options, allocate_retry={ONCE: "never"})

    def carry_out(self, effects: Iterable[Effect]) -> None:
        effects = list(effects)
        for effect in effects:
            if isinstance(effect, CallAllocate):
                is_once = effect.resource_name == ONCE and not self.manager.resources[ONCE].presence.is_built_in
                assert bool(effect.recorded_for) is is_once
            if isinstance(effect, CallAllocate) and effect.recorded_for:
                # a call whose pod is not in progress any more would be none of this pod's
                request = self.manager.allocator.in_progress[effect.recorded_for].request
                assert request is not None
                assert request.resource_name == ONCE
                self.made[effect.recorded_for, request.container] += 1
        super().carry_out(effects)

    @invariant()
    def no_container_has_two_calls(self) -> None:
        assert max(self.made.values(), default=0) <= 1

    @invariant()
    def records_belong_to_pods_that_are_not_over(self) -> None:
        ours = {pod.uid for pod in self.pods.values()}
        # after a restart they are dropped when all pods are listed
        if self.published is not None:
            assert {key[0] for key in self.manager.checkpoint().allocate_calls} - {"*"} <= ours

    def is_in_backoff(self, pod: Pod) -> bool:
        pending = [found for name in self.manager.resources for found in self.manager.pending(name)]
        return super().is_in_backoff(pod) or any(found.pod_uid == pod.uid and found.is_final for found in pending)


AllocateOnceMachine.TestCase.settings = settings(max_examples=examples(60), stateful_step_count=40, deadline=None)
TestAllocateOnce = AllocateOnceMachine.TestCase

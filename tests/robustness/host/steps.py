"""Random steps on the made-up host, and a run of them. A step is a word and a seed, so that any of them can be left out."""

import logging
import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from unittest import mock

from nodedevice_agent.lib import filesystem
from nodedevice_agent.plugins.generic import source

from tests.robustness.host import actions
from tests.robustness.host.faults import ERRORS, UNRELATED, Faults
from tests.robustness.host.referee.records import Breach
from tests.robustness.host.referee.referee import Referee
from tests.robustness.host.referee.waits import Wait
from tests.robustness.host.world import World

Step = tuple[str, int]
_SECONDS_A_STEP = 1.0
# of one host; a failed run of so many is made shorter in a minute
STEPS_A_RUN = 400
# how often each is drawn
WEIGHTS = {
    "plug": 12,
    "unplug": 6,
    "replug": 5,
    "power_loss": 2,
    "firmware": 2,
    "rebind": 1,
    "reboot": 1,
    "edit": 5,
    "kill_agent": 2,
    "start_agent": 6,
    "kill_plugin": 2,
    "start_plugin": 3,
    "create_pod": 16,
    "delete_pod": 8,
    "start_container": 20,
    "end_container": 7,
    "restart_container": 6,
    "unreadable": 4,
    "readable": 3,
    "exhausted": 1,
    "recovered": 6,
    "broken": 2,
    "repaired": 2,
    "cordon": 1,
    "uncordon": 3,
    "foreign": 1,
    "wait": 4,
    "idle": 0.5,
}


def draw_steps(seed: int, count: int) -> list[Step]:
    draw = random.Random(seed)
    words = draw.choices(list(WEIGHTS), list(WEIGHTS.values()), k=count)
    return [(word, draw.getrandbits(32)) for word in words]


@dataclass
class Result:
    """breach: what ended the run, or None. at: the step. log: what each step did."""

    breach: Breach | None
    at: int
    log: list[str]
    checks: Counter[str] = field(default_factory=Counter)
    waits: Counter[Wait] = field(default_factory=Counter)


def run(seed: int, steps: list[Step]) -> Result:
    """seed: of the host and its first configuration."""
    with ExitStack() as stack:
        root = stack.enter_context(_host_tree())
        faults = Faults(root)
        stack.enter_context(faults.injected())
        world = World(root, random.Random(seed), faults)
        # scans count a minute by the clock of the steps
        stack.enter_context(mock.patch.object(source, "time", _Clock(world)))
        faults.error = random.Random(seed).choice(ERRORS)
        # in every run there is a file that cannot be read
        faults.add_unrelated(random.Random(seed).choice(UNRELATED))
        referee = Referee(world)
        log = [f"configuration: {world.config}"]
        for number, (word, step_seed) in enumerate(steps):
            draw = random.Random(step_seed)
            try:
                done = _STEPS[word](world, referee, draw)
                if done:
                    log.append(f"{number} {done}")
                    world.pass_time(_SECONDS_A_STEP)
                    world.settle(draw)
                    referee.check()
            except Breach as breach:
                return Result(breach, number, log, Counter(referee.checks), referee.waits)
        return Result(None, len(steps), log, Counter(referee.checks), referee.waits)


class _Clock:
    """In place of the module `time`."""

    def __init__(self, world: World) -> None:
        self.monotonic = lambda: world.now


@contextmanager
def _host_tree() -> Iterator[Path]:
    """In memory where there is such a directory."""
    memory = Path("/dev/shm")
    root = Path(tempfile.mkdtemp(prefix="host-", dir=memory if memory.is_dir() else None))
    # what the product logs of so much change takes more time than the change
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with mock.patch.object(filesystem, "BOOT_ID", root / "boot_id"):
            yield root
    finally:
        logging.disable(before)
        shutil.rmtree(root)


_STEPS: dict[str, Callable[[World, Referee, random.Random], str]] = {word: getattr(actions, word) for word in WEIGHTS}

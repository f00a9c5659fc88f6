"""A process that saves one state after another until it is killed, and prints the number of each saved state.

Arguments: the directory, and the number of the first state. Whole files are frequent, so that kills hit them as well as lines.
"""

import sys
from itertools import count
from pathlib import Path

from nodedevice_agent.checkpoint.writer import CheckpointStore
from nodedevice_agent.devicemanager.records.allocations import Allocation
from nodedevice_agent.devicemanager.records.checkpoint import Checkpoint

RESOURCE = "example.com/gpu"
_PODS = 5
_LINES_A_FILE = 7


def state(number: int) -> Checkpoint:
    """State `number`: each adds a pod, and the oldest pod ends and leaves its device to the next."""
    pods = range(max(number - _PODS, 0), number)
    entries = (Allocation(f"uid-{n}", "main", RESOURCE, {-1: (f"d{n % _PODS}",)}, b"answer" * (n % 40)) for n in pods)
    return Checkpoint(tuple(entries), {RESOURCE: (str(number),)})


def number_of(found: Checkpoint | None) -> int:
    """The number of a state that was read; -1 for none. Raises AssertionError if it never was passed to save()."""
    if found is None:
        return -1
    number = int(found.registered[RESOURCE][0])
    assert sorted(found.allocations, key=repr) == sorted(state(number).allocations, key=repr)
    return number


def main() -> None:
    store = CheckpointStore(Path(sys.argv[1]))
    for number in count(int(sys.argv[2])):
        store.save(state(number), whole=number % _LINES_A_FILE == 0)
        print(number, flush=True)


if __name__ == "__main__":
    main()

"""Containers of the made-up host as they start: each with its own devices, and with no number of another pod's."""

from tests.robustness.host.hardware import FUSE, Node, is_same
from tests.robustness.host.referee.held import HeldDevices
from tests.robustness.host.referee.knowledge import may_be
from tests.robustness.host.referee.reasons import why_refused
from tests.robustness.host.referee.records import Counts, Held, breach
from tests.robustness.host.world import FOREIGN, Started, World


class ContainerChecks:
    def __init__(self, world: World, devices: HeldDevices, counts: Counts) -> None:
        self._world, self._devices, self._counts = world, devices, counts

    def check(self, started: Started) -> None:
        """Raises Breach."""
        held = [self._devices.by_key[a.key] for a in started.held if a.key in self._devices.by_key]
        if started.refusal:
            self._counts.checks["refusals"] += 1
            self._check_refusal(started, held)
            return
        self._counts.checks["grants"] += 1
        for file in started.files:
            if file.resource_name != FOREIGN and file.path != FUSE:
                self._check_right_device(started, held, file.path, file.node)
        self._check_numbers(started, held)

    def _check_right_device(self, started: Started, held: list[Held], path: str, node: Node) -> None:
        given = [given for each in held for given in each.files]
        if not any(may_be(self._world.host, one, path, node) for one in given):
            had = ", ".join(f"{one.path} of {one.node.unit[0]} {one.identity} at {one.port}" for one in given)
            stick = node.stick
            now = f"{stick.identity} at {stick.port}" if stick is not None else ""
            breach(
                "wrong device", f"{started.pod_uid} starts with {path} of {node.unit[0]} {now}, and was allocated {had}"
            )

    def _check_numbers(self, started: Started, held: list[Held]) -> None:
        """No other pod has a number of what this container opens."""
        shared = {each.allocation.resource_name: each.was_shared for each in held}
        by_number = self._world.host.by_number
        for instance in self._world.instances.values():
            if instance.pod_uid == started.pod_uid:
                continue
            for theirs in instance.files:
                node = by_number.get(theirs.node.number)
                for ours in started.files:
                    if node is None or ours.path == FUSE or theirs.path == FUSE or not is_same(node, ours.node):
                        continue
                    if FOREIGN in (ours.resource_name, theirs.resource_name) and ours.node.number != node.number:
                        # a device of a plugin that is not built in is known by its number alone
                        continue
                    if shared.get(ours.resource_name) and self._shares(instance.pod_uid, theirs.resource_name, node):
                        continue
                    identity = node.stick.identity if node.stick is not None else ("", "", "")
                    is_passed = (node.unit, identity) != (theirs.node.unit, theirs.identity)
                    if is_passed and node.number != ours.node.number:
                        # the number in a container does not show what else has become of its device
                        continue
                    breach(
                        "number passed on" if is_passed else "two pods",
                        f"{started.pod_uid} starts with {ours.path} ({ours.node.number}, {ours.node.unit}), and "
                        f"{instance.pod_uid} runs with {theirs.path} ({theirs.node.number}, then {theirs.node.unit}, "
                        f"now {node.unit})",
                    )

    def _shares(self, pod_uid: str, resource_name: str, node: Node) -> bool:
        """Whether that pod has it as one of several: by this resource, or by another that leads to it by now."""
        held = [each for each in self._devices.by_key.values() if each.allocation.pod_uid == pod_uid]
        if all(each.was_shared for each in held if each.allocation.resource_name == resource_name):
            return True
        return any(is_same(node, one) for each in held if each.was_shared for one in self._devices.certainly(each))

    def _check_refusal(self, started: Started, held: list[Held]) -> None:
        """Where everything is as it was when it was allocated, a container starts."""
        wait = why_refused(self._world, self._devices, started, held)
        if wait is None:
            breach("refused", f"{started.pod_uid} has all its devices, and does not start: {started.refusal}")
        self._counts.waits[wait] += 1

"""Runs a case through the kubelet's device manager and through ours, step by step, and says where they part.

What one side refused or gave up on purpose is taken from the other, too (a pod that the kubelet failed is Failed, so its
replacement is another pod), and it is counted by the paragraph of docs/differences.md that it stands on.
"""

import contextlib
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

from nodedevice_agent.checkpoint import files as checkpoint_file
from nodedevice_agent.checkpoint.format import decode
from nodedevice_api.device_ids import original_id

from tests.oracle.differences import VANISHED, WAITS, Difference, Situation, differences
from tests.oracle.kubelet import Kubelet, KubeletDied
from tests.oracle.maker import Held, Verdict
from tests.oracle.ours import Ours
from tests.oracle.sides import Side
from tests.oracle.steps import Admit, Case, Ctr, End, Failing, Register, Restart, Step, Stop, Update, pasted


@dataclass
class Tally:
    """What has been compared so far."""

    sequences: int = 0
    steps: Counter[str] = field(default_factory=Counter)
    allowed: Counter[str] = field(default_factory=Counter)

    def lines(self) -> list[str]:
        steps = ", ".join(f"{name} {count}" for name, count in sorted(self.steps.items()))
        allowed = "; ".join(f"{title}: {count}" for title, count in sorted(self.allowed.items()))
        return [
            f"sequences {self.sequences}, steps {sum(self.steps.values())} ({steps})",
            f"differences on purpose: {allowed or 'none met'}",
        ]


class Parted(AssertionError):
    """The makers differ where nothing allows it; the text has the case, to be pasted."""


class Comparison:
    """Both makers, used for one case after another. tally: over all of them."""

    def __init__(self, kubelet: Kubelet, ours_dir: Path, state_dir: Path) -> None:
        self.kubelet = kubelet
        self._ours_dir = ours_dir
        self._state_dir = state_dir
        self.tally = Tally()

    def sides(self) -> tuple[Side, Side]:
        """The kubelet and us, neither started, with nothing left of former cases."""
        self.kubelet.checkpoint.unlink(missing_ok=True)
        ours = Ours(self._ours_dir, self._state_dir)
        ours.checkpoint.unlink(missing_ok=True)
        return Side(self.kubelet), Side(ours)

    async def run(self, case: Case) -> list[Difference]:
        """Raises Parted at the first difference without an allowance. Returns the allowed ones."""
        run = _Run(case, *self.sides(), self.tally)
        self.tally.sequences += 1
        try:
            met = await run.through()
        except KubeletDied as died:
            await self.kubelet.start_again()
            if not run.may_die(str(died)):
                run.part(str(died))
            self.tally.allowed[VANISHED] += 1
            return [Difference("the kubelet died", str(died), "goes on", VANISHED)]
        await self._compare_checkpoints(run)
        return met

    async def _compare_checkpoints(self, run: "_Run") -> None:
        """Each side's file, read by the other's code: it says what its writer holds."""
        if self.kubelet.checkpoint.exists():
            found = decode(self.kubelet.checkpoint.read_text())
            read: Held = {
                (a.pod_uid, a.container, a.resource_name): dict.fromkeys(map(original_id, a.device_ids), ())
                for a in found.allocations
                # the kubelet does not write when it frees, so pods that are gone are still there
                if a.pod_uid in run.pods
            }
            run.must_agree("the kubelet's checkpoint, read by us", _ids(run.kubelet_held), _ids(read))
        ours = self._state_dir / checkpoint_file.FILE_NAME
        if ours.exists():
            reported = await self.kubelet.verify(ours)
            entries = {
                (e["PodUID"], e["ContainerName"], e["ResourceName"]): sorted(
                    {device_id for ids in e["DeviceIDs"].values() for device_id in ids}
                )
                for e in reported["entries"] or ()
            }
            run.must_agree("our checkpoint, read by the kubelet", entries, _ids(run.ours_held))


class _Run:
    """One case on its way."""

    def __init__(self, case: Case, kubelet: Side, ours: Side, tally: Tally) -> None:
        self._case = case
        self._sides = (kubelet, ours)
        self._tally = tally
        self._admitted = 0
        self._failing: set[str] = set()
        self._advising: set[str] = set()
        self._at = 0
        self.pods: dict[str, tuple[Ctr, ...]] = {}
        self.kubelet_held: Held = {}
        self.ours_held: Held = {}

    async def through(self) -> list[Difference]:
        met: list[Difference] = []
        async with contextlib.AsyncExitStack() as stack:
            for side in self._sides:
                await side.start(self._case.machine)
                # each in any case: what one leaves behind would be in the next case's way
                stack.push_async_callback(side.stop)
            for at, step in enumerate(self._case.steps):
                self._at = at
                self._tally.steps[type(step).__name__] += 1
                met += await self._one(step)
        return met

    def may_die(self, words: str) -> bool:
        """Under a topology policy the kubelet dies of a pod that comes again and holds a device that is not listed any more."""
        is_known = "nil pointer" in words and "generateDeviceTopologyHints" in words
        return is_known and isinstance(self._case.steps[self._at], Restart) and self._case.machine.policy != "none"

    async def _one(self, step: Step) -> list[Difference]:
        self._note(step)
        verdicts = [await self._carry_out(side, step) for side in self._sides]
        theirs, ours = [await side.seen(verdicts_of) for side, verdicts_of in zip(self._sides, verdicts, strict=True)]
        failing, advising = frozenset(self._failing), frozenset(self._advising)
        now = Situation(self.pods, failing, advising, isinstance(step, Restart))
        found = list(differences(theirs, ours, now))
        for difference in found:
            if not difference.paragraph:
                self.part(str(difference))
            self._tally.allowed[difference.paragraph] += 1
        refused = sorted(
            {uid for verdicts_of in verdicts for uid, verdict in verdicts_of.items() if not verdict.is_admitted}
        )
        for uid in refused:
            self._tally.allowed[WAITS] += 1
            found.append(Difference(f"the end of {uid}", "Failed for good", "waits", WAITS))
            await self._take_away(uid)
        self.kubelet_held, self.ours_held = [await side.maker.held() for side in self._sides]
        return found

    def _note(self, step: Step) -> None:
        match step:
            case Admit(containers):
                self.pods[f"p{self._admitted}"] = containers
                self._admitted += 1
            case End(pod):
                self.pods.pop(f"p{pod}", None)
            case Failing(resource, is_failing):
                (self._failing.add if is_failing else self._failing.discard)(resource)
            case Register(resource, _, advice):
                self._failing.discard(resource)
                (self._advising.add if advice else self._advising.discard)(resource)

    async def _carry_out(self, side: Side, step: Step) -> dict[str, Verdict]:
        match step:
            case Register(resource, devices, advice):
                await side.register(resource, devices, advice=advice)
            case Update(resource, devices):
                await side.update(resource, devices)
            case Stop(resource):
                await side.stop_plugin(resource)
            case Failing(resource, is_failing):
                side.set_failing(resource, is_failing=is_failing)
            case Admit():
                uid = f"p{self._admitted - 1}"
                return {uid: await side.admit(uid, step)}
            case End(pod):
                await side.end(f"p{pod}")
            case Restart():
                return await side.restart()
        return {}

    async def _take_away(self, uid: str) -> None:
        """A pod that one side refused is not there any more on either."""
        self.pods.pop(uid, None)
        for side in self._sides:
            await side.end(uid)

    def must_agree(self, what: str, theirs: object, ours: object) -> None:
        if theirs != ours:
            self.part(str(Difference(what, theirs, ours)))

    def part(self, what: str) -> NoReturn:
        so_far = Case(self._case.steps[: self._at + 1], self._case.machine)
        raise Parted(f"after step {self._at}: {what}\n{pasted(so_far)}")


def _ids(held: Held) -> dict[tuple[str, str, str], list[str]]:
    return {key: sorted(ids) for key, ids in held.items()}

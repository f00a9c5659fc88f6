"""The parts that the scheduler extender has assigned to a pod: a preference, which is checked before it is used.

A tenant can also write the annotation, and devices may change after it was written. An invalid assignment is reported and replaced
by a plan of the agent.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from nodedevice_api.assigned_parts import Assigned, decode
from nodedevice_api.parts import Placement, parent_and_number
from nodedevice_kube.planner import Misfit, Need, Parts, Planner

from nodedevice_agent.devicemanager.effects import AssignedParts
from nodedevice_agent.devicemanager.marks import Marks
from nodedevice_agent.devicemanager.pods import DeviceRequest, Pod
from nodedevice_agent.devicemanager.records.allocations import Allocation
from nodedevice_agent.devicemanager.resources.resource import Resource

USED = "used"
NOT_FITTING = "not_fitting"
INVALID = "invalid"


class Assignments:
    """The parts assigned to one pod. problem: why its annotation is invalid; "" for a valid annotation or without one."""

    def __init__(self, pod: Pod) -> None:
        self._pod = f"{pod.namespace}/{pod.name}"
        self._assigned: Assigned = {}
        self.problem = ""
        if pod.assigned_parts:
            try:
                self._assigned = decode(pod.assigned_parts, pod.uid_in_api)
            except ValueError as exc:
                self.problem = str(exc)

    def plan(self, planner: Planner, needs: Sequence[Need], requests: Sequence[DeviceRequest]) -> list[Parts] | Misfit:
        """The assignment if it meets all requests; otherwise a plan of the agent. requests: the pod's requests for one resource."""
        of_resource = self._assigned.get(requests[0].resource_name, {}) if requests else {}
        wanted = [dict(of_resource.get(request.container, {})) for request in requests]
        return wanted if all(wanted) and planner.can_take(needs, wanted) else planner.plan(needs)

    def report(self, allocated: Iterable[Allocation], resources: Mapping[str, Resource], marks: Marks) -> None:
        """The outcome of the assignment for each resource, once the pod has its devices."""
        if not self._assigned and not self.problem:
            return
        outcomes: dict[str, str] = {}
        for one in allocated:
            rules = resources[one.resource_name].listed.part_rules
            if rules is None or rules.placement is Placement.ANY:
                continue
            if self.problem:
                outcomes[one.resource_name] = INVALID
            elif one.resource_name in self._assigned and outcomes.get(one.resource_name) != NOT_FITTING:
                is_used = _parts(one) == self._assigned[one.resource_name].get(one.container)
                outcomes[one.resource_name] = USED if is_used else NOT_FITTING
        for name, outcome in outcomes.items():
            marks.report(AssignedParts(self._pod, name, outcome, self.problem))


def _parts(allocation: Allocation) -> Parts:
    return Counter(part[0] for part in map(parent_and_number, allocation.device_ids) if part is not None)


NOT_ASSIGNED = Assignments(Pod("", "", "", ()))

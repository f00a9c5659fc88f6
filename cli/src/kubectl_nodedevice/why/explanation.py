"""The parts of an explanation: findings by precedence, with their evidence. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from kubectl_nodedevice.shell import typed
from kubectl_nodedevice.why.facts import Unread
from kubectl_nodedevice.why.reasons.row import Row
from kubectl_nodedevice.why.reasons.table import BY_CODE, PRECEDENCE


@dataclass(frozen=True, slots=True)
class Obstacle:
    """One cause that stops the pod: everywhere if node is "", else on that node. detail: a few words.

    fields: placeholders of the row.
    """

    code: str
    node: str = ""
    resource: str = ""
    detail: str = ""
    as_of: str = ""
    fields: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Finding:
    """Obstacles of one code and resource.

    of_nodes: how many nodes could serve the pod without obstacles. context: fields of every sentence, such as the pod's name.
    subject: a `pod`, a `node` or a `device`.
    """

    code: str
    resource: str
    obstacles: tuple[Obstacle, ...]
    of_nodes: int = 0
    context: Mapping[str, str] = field(default_factory=dict)
    subject: str = "pod"

    @property
    def row(self) -> Row:
        """The row with words about the subject, and with its advice filled in."""
        row = BY_CODE[self.code].asked_of(self.subject)
        return replace(row, advice=row.advice.format(**self.fields))

    @property
    def nodes(self) -> tuple[str, ...]:
        return tuple(each.node for each in self.obstacles if each.node)

    @property
    def fields(self) -> Mapping[str, str]:
        """The fields of the first obstacle, as a command names one object."""
        first = self.obstacles[0]
        number = len(self.nodes)
        on = f"{number} of {self.of_nodes} nodes"
        if number == self.of_nodes:
            on = f"all {number} nodes" if number > 1 else f"node {first.node}"
        has = "has" if number == 1 else "have"
        options = typed("--resource", self.resource)
        own = {"resource": self.resource, "resource_options": options, "node": first.node, "on": on, "has": has}
        return {**self.context, **own, **first.fields}

    @property
    def sentence(self) -> str:
        return self.row.sentence.format(**self.fields)


@dataclass(frozen=True, slots=True)
class Explanation:
    """state: a sentence. findings: by precedence. notes: further facts. words: quoted from the scheduler or the kubelet."""

    subject: str
    state: str
    is_stopped: bool = True
    findings: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()
    words: str = ""
    words_by: str = "scheduler"
    words_at: str = ""
    unread: tuple[Unread, ...] = ()


def findings_of(
    obstacles: Iterable[Obstacle],
    of_nodes: int = 0,
    context: Mapping[str, str] = MappingProxyType({}),
    subject: str = "pod",
) -> tuple[Finding, ...]:
    """Group obstacles by code and resource. An obstacle of a node counts once."""
    grouped: dict[tuple[str, str], dict[str, Obstacle]] = {}
    for each in obstacles:
        of_code = grouped.setdefault((each.code, each.resource), {})
        of_code.setdefault(each.node or str(sorted(each.fields.items())), each)
    found = [
        Finding(code, resource, tuple(each.values()), of_nodes, context, subject)
        for (code, resource), each in grouped.items()
    ]
    return ordered(found)


def ordered(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    return tuple(sorted(findings, key=lambda each: PRECEDENCE[each.code]))

"""The requests of kube-scheduler to an extender, and the responses. Go's field names, decoded once.

Source: k8s.io/kube-scheduler/extender/v1 types.go @ v1.37.1. Unneeded fields are left out.
"""

from collections.abc import Iterable, Mapping
from typing import TypeVar

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType
from nodedevice_common import decoding

T = TypeVar("T")


class BadRequest(ValueError):
    """A malformed request; the text names the problem."""


class _Metadata(Struct, gc=False):
    name: str


class _Named(Struct, gc=False):
    metadata: _Metadata


class _NodeList(Struct, gc=False):
    items: list[Raw] | None = None


class FilterRequest(Struct, rename="pascal", gc=False):
    """kube-scheduler sends nodes by name if the extender is nodeCacheCapable, else as objects. pod: decoded on demand."""

    pod: Raw
    nodes: _NodeList | None = None
    node_names: list[str] | None = None

    def named(self) -> dict[str, Raw | None]:
        """The nodes by name, in their order, with the objects if sent. Raises BadRequest."""
        if self.node_names is not None:
            return dict.fromkeys(self.node_names)
        if self.nodes is None:
            raise BadRequest("the request has neither NodeNames nor Nodes")
        return {decode(item, _Named).metadata.name: item for item in self.nodes.items or ()}


class BindRequest(Struct, rename="pascal", gc=False):
    name: str = msgspec.field(name="PodName")
    namespace: str = msgspec.field(name="PodNamespace")
    uid: str = msgspec.field(name="PodUID")
    node: str

    @property
    def key(self) -> str:
        """NAMESPACE/NAME, for logs."""
        return f"{self.namespace}/{self.name}"


class _VictimMetadata(Struct, gc=False):
    uid: str


class _Victim(Struct, gc=False):
    metadata: _VictimMetadata


class _Victims(Struct, rename="pascal", gc=False):
    pods: list[_Victim] | None = None
    violations: int = msgspec.field(name="NumPDBViolations", default=0)


class MetaPod(Struct, gc=False):
    uid: str = msgspec.field(name="UID")


class MetaVictims(Struct, rename="pascal", gc=False):
    """Pods that are to end on one node, the most important first. violations: of disruption budgets."""

    pods: list[MetaPod] | None = None
    violations: int = msgspec.field(name="NumPDBViolations", default=0)


class PreemptRequest(Struct, rename="pascal", gc=False):
    """Of preempt: which pods would end on which node, by UID from a nodeCacheCapable extender's scheduler, whole from others."""

    pod: Raw
    node_name_to_meta_victims: dict[str, MetaVictims] | None = None
    node_name_to_victims: dict[str, _Victims] | None = None

    def victims(self) -> dict[str, MetaVictims]:
        """By node. Raises BadRequest."""
        if self.node_name_to_meta_victims is not None:
            return self.node_name_to_meta_victims
        if self.node_name_to_victims is None:
            raise BadRequest("the request has neither NodeNameToMetaVictims nor NodeNameToVictims")
        return {
            node: MetaVictims([MetaPod(pod.metadata.uid) for pod in of.pods or ()], of.violations)
            for node, of in self.node_name_to_victims.items()
        }


class PreemptAnswer(Struct, rename="pascal", gc=False):
    """The response of preempt, always by UID. A node that is left out is not a candidate."""

    node_name_to_meta_victims: dict[str, MetaVictims]


class FilterAnswer(Struct, rename="pascal", omit_defaults=True, gc=False):
    """Either Nodes or NodeNames, as the request had it; reasons by node."""

    failed_nodes: Mapping[str, str] = {}
    failed_and_unresolvable_nodes: Mapping[str, str] = {}
    nodes: dict[str, list[Raw]] | UnsetType = UNSET
    node_names: list[str] | UnsetType = UNSET


class NotYet(Struct, rename="pascal", gc=False):
    """The response to a filter that the scheduler then retries by itself, after a second and with growing pauses of up to 10 s.

    Source: pkg/scheduler/schedule_one.go: after an error of an extender the pod goes to the backoff queue.
    """

    error: str


class HostPriority(Struct, rename="pascal", gc=False):
    """score: 0 to 10, more is better."""

    host: str
    score: int


class BindAnswer(Struct, rename="pascal", gc=False):
    """error: "" where the pod is bound; kube-scheduler shows it in the pod's event FailedScheduling."""

    error: str = ""


def decode(data: bytes | Raw, form: type[T]) -> T:
    """A request, or a part of one. Raises BadRequest."""
    try:
        return decoding.decode(data, form)
    except decoding.Undecodable as exc:
        raise BadRequest(f"the request is not what kube-scheduler sends: {exc}") from exc


def filter_answer(
    named: Mapping[str, Raw | None], fitting: Iterable[str], failed: Mapping[str, str], unresolvable: Mapping[str, str]
) -> FilterAnswer:
    """The nodes that fit, in the form in which the request had them, and why others do not."""
    fits = list(fitting)
    objects = [item for name in fits if (item := named[name]) is not None]
    # none fits: a scheduler reads an absent list and an empty one alike
    if objects:
        return FilterAnswer(failed, unresolvable, nodes={"items": objects})
    return FilterAnswer(failed, unresolvable, node_names=fits)

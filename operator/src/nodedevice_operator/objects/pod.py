"""Pod: its schema, and the record of the few facts that are read of a single pod."""

from dataclasses import dataclass
from typing import Final

import msgspec

from nodedevice_operator.objects.meta import Schema

_OVER: Final = frozenset({"Succeeded", "Failed"})


class _PodSpec(Schema):
    node_name: str = ""


class PodPhase(Schema):
    phase: str = ""


class _PodMetadata(Schema):
    uid: str = ""
    deletion_timestamp: str | None = None


class Pod(Schema):
    metadata: _PodMetadata
    spec: _PodSpec = msgspec.field(default_factory=_PodSpec)
    status: PodPhase = msgspec.field(default_factory=PodPhase)


@dataclass(frozen=True, slots=True)
class PodRecord:
    """What is asked of a pod: which one it is, where it runs ("" while it is not bound), and whether it is about to end."""

    uid: str
    node: str
    is_ending: bool = False


def pod_record(wire: Pod) -> PodRecord:
    is_ending = bool(wire.metadata.deletion_timestamp) or wire.status.phase in _OVER
    return PodRecord(wire.metadata.uid, wire.spec.node_name, is_ending)

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


class PodSchema(Schema):
    metadata: _PodMetadata
    spec: _PodSpec = msgspec.field(default_factory=_PodSpec)
    status: PodPhase = msgspec.field(default_factory=PodPhase)


@dataclass(frozen=True, slots=True)
class PodRecord:
    """A pod: its uid, its node ("" while it is not bound), and whether it is ending."""

    uid: str
    node: str
    is_ending: bool = False


def pod_record(obj: PodSchema) -> PodRecord:
    is_ending = bool(obj.metadata.deletion_timestamp) or obj.status.phase in _OVER
    return PodRecord(obj.metadata.uid, obj.spec.node_name, is_ending)

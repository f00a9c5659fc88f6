"""Kinds that are requested and never watched: their schemas, and the records of a single Pod and of an agent's Lease."""

from dataclasses import dataclass
from typing import Final

import msgspec
from nodedevice_api import names

from nodedevice_operator.objects.meta import ObjectMetadata, Schema

_OVER: Final = frozenset({"Succeeded", "Failed"})
# An agent writes fewer refusals, and shorter ones.
_MOST_REFUSALS: Final = 16
_LONGEST_REFUSAL: Final = 900


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


class LeaseSpec(Schema):
    renew_time: str = ""
    lease_duration_seconds: int | None = None
    holder_identity: str | None = None
    acquire_time: str = ""
    lease_transitions: int | None = None


class LeaseMetadata(ObjectMetadata):
    annotations: dict[str, str] = {}


class LeaseSchema(Schema):
    metadata: LeaseMetadata
    spec: LeaseSpec = msgspec.field(default_factory=LeaseSpec)


@dataclass(frozen=True, slots=True)
class LeaseRecord:
    """An agent's Lease. `renewed` is the API's own text; it only matters whether it changes.

    refusals: registrations of device plugins that the agent refused lately, one sentence each.
    """

    renewed: str
    duration_seconds: int
    refusals: tuple[str, ...] = ()


def lease_record(obj: LeaseSchema) -> LeaseRecord:
    refusals = obj.metadata.annotations.get(names.REFUSALS_ANNOTATION, "").splitlines()[:_MOST_REFUSALS]
    return LeaseRecord(
        obj.spec.renew_time,
        obj.spec.lease_duration_seconds or names.AGENT_LEASE_SECONDS,
        tuple(refusal[:_LONGEST_REFUSAL] for refusal in refusals if refusal),
    )

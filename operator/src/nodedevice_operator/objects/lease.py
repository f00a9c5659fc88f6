"""Lease: its schema, and the record of an agent's Lease."""

from dataclasses import dataclass
from typing import Final

import msgspec
from nodedevice_api import names

from nodedevice_operator.objects.meta import ListMetadata, MetadataSchema, Schema

# An agent writes fewer refusals, and shorter ones.
_MOST_REFUSALS: Final = 16
_LONGEST_REFUSAL: Final = 900


class LeaseSpec(Schema):
    renew_time: str = ""
    lease_duration_seconds: int | None = None
    holder_identity: str | None = None
    acquire_time: str = ""
    lease_transitions: int | None = None


class LeaseMetadata(MetadataSchema):
    annotations: dict[str, str] = {}


class LeaseSchema(Schema):
    metadata: LeaseMetadata
    spec: LeaseSpec = msgspec.field(default_factory=LeaseSpec)


class LeaseList(Schema):
    metadata: ListMetadata
    items: list[LeaseSchema] = []


@dataclass(frozen=True, slots=True)
class LeaseRecord:
    """An agent's Lease. `renewed` is the API's own text; it only matters whether it changes.

    refusals: registrations of device plugins that the agent refused lately, one sentence each.
    """

    renewed: str
    duration_seconds: int
    refusals: tuple[str, ...] = ()


def lease_record(obj: LeaseSchema, default_seconds: int) -> LeaseRecord:
    refusals = obj.metadata.annotations.get(names.REFUSALS_ANNOTATION, "").splitlines()[:_MOST_REFUSALS]
    return LeaseRecord(
        obj.spec.renew_time,
        obj.spec.lease_duration_seconds or default_seconds,
        tuple(refusal[:_LONGEST_REFUSAL] for refusal in refusals if refusal),
    )

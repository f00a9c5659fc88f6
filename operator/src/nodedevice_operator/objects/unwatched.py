"""Kinds that are requested and never watched: their schemas, and the records of a single Pod and of an agent's Lease."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import msgspec
from nodedevice_api import names
from nodedevice_kube.interning import intern

from nodedevice_operator.objects.bound_pod import CONFIG_MIRROR, BoundPodSchema
from nodedevice_operator.objects.meta import ObjectMetadata, Schema

# phases of a pod that holds nothing any more
OVER: Final = frozenset({"Succeeded", "Failed"})
# An agent writes fewer refusals, and shorter ones.
_MOST_REFUSALS: Final = 16
_LONGEST_REFUSAL: Final = 900
# of what an agent reports of configurations; a policy holds it to 2048
_LONGEST_CONFIGS: Final = 4096


class _PodPhase(Schema):
    phase: str = ""


class PodSchema(BoundPodSchema):
    status: _PodPhase = msgspec.field(default_factory=_PodPhase)


@dataclass(frozen=True, slots=True)
class PodRecord:
    """node: "" while it is not bound. asks_for: resource names in its containers' limits above 0."""

    uid: str
    node: str
    is_ending: bool = False
    namespace: str = ""
    name: str = ""
    asks_for: frozenset[str] = frozenset()
    annotations: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_mirror(self) -> bool:
        """Whether it mirrors a static pod: a file on its node, which the API cannot end."""
        return CONFIG_MIRROR in self.annotations


def pod_record(obj: PodSchema) -> PodRecord:
    meta = obj.metadata
    containers = (*(obj.spec.containers or ()), *(obj.spec.init_containers or ()))
    limits = [limit for container in containers for limit in (container.resources.limits or {}).items()]
    return PodRecord(
        meta.uid,
        obj.spec.node_name,
        bool(meta.deletion_timestamp) or obj.status.phase in OVER,
        meta.namespace,
        meta.name,
        frozenset(name for name, limit in limits if str(limit) != "0"),
        meta.annotations or {},
    )


class LeaseSpec(Schema):
    renew_time: str = ""
    lease_duration_seconds: int | None = None


class LeaseMetadata(ObjectMetadata):
    annotations: dict[str, str] = {}


class LeaseSchema(Schema):
    metadata: LeaseMetadata
    spec: LeaseSpec = msgspec.field(default_factory=LeaseSpec)


@dataclass(frozen=True, slots=True)
class LeaseRecord:
    """`renewed`: the API's own text. refusals: recent ones of plugins, as sentences. configs: the agent's report, undecoded."""

    renewed: str
    duration_seconds: int
    refusals: tuple[str, ...] = ()
    version: int = 0
    configs: str = ""


def lease_record(obj: LeaseSchema) -> LeaseRecord:
    refusals = obj.metadata.annotations.get(names.REFUSALS_ANNOTATION, "").splitlines()[:_MOST_REFUSALS]
    return LeaseRecord(
        obj.spec.renew_time,
        obj.spec.lease_duration_seconds or names.AGENT_LEASE_SECONDS,
        tuple(refusal[:_LONGEST_REFUSAL] for refusal in refusals if refusal),
        int(version) if (version := obj.metadata.resource_version).isdecimal() else 0,
        # of many nodes it is the same
        intern(obj.metadata.annotations.get(names.CONFIGS_ANNOTATION, "")[:_LONGEST_CONFIGS]),
    )

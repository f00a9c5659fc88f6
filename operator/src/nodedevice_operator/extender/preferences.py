"""Decides whether kube-scheduler would score nodes for a pod by a wish of the pod itself. Pure.

With one node in the extender's filter response, kube-scheduler neither runs its score plugins nor calls prioritize. These plugins
score by something that the pod asks for, so their pods get all nodes:

NodeAffinity, InterPodAffinity   preferred terms of the pod
PodTopologySpread                constraints of the pod with ScheduleAnyway
TaintToleration                  tolerations of PreferNoSchedule
VolumeBinding                    claims of volumes: their storage capacity is scored, StorageCapacityScoring
DynamicResources                 resource claims: the alternatives of a request are scored
pod groups                       the placement of the whole group is scored

Not counted, as they score without a wish of the pod: NodeResourcesFit, NodeResourcesBalancedAllocation, ImageLocality, default
constraints of PodTopologySpread, preferred terms of other pods, added affinity of a scheduler profile, and taints of nodes that the
pod says nothing about.
Source: pkg/scheduler/schedule_one.go, apis/config/v1/default_plugins.go and framework/plugins @ v1.37.2.
"""

from collections.abc import Iterable
from typing import Final

from msgspec import Raw, field

from nodedevice_operator.objects.bound_pod import BoundPodSchema, BoundPodSpec
from nodedevice_operator.objects.meta import Schema

_SOFT_SPREAD: Final = "ScheduleAnyway"
_SOFT_TAINT: Final = "PreferNoSchedule"


class _Terms(Schema):
    preferred: list[Raw] | None = field(name="preferredDuringSchedulingIgnoredDuringExecution", default=None)


class _Affinity(Schema):
    node_affinity: _Terms | None = None
    pod_affinity: _Terms | None = None
    pod_anti_affinity: _Terms | None = None


class _Spread(Schema):
    when_unsatisfiable: str = ""


class _Toleration(Schema):
    effect: str = ""


class _Volume(Schema):
    """ephemeral: has the template of a claim."""

    persistent_volume_claim: dict[str, Raw] | None = None
    ephemeral: dict[str, Raw] | None = None


class PendingPodSpec(BoundPodSpec):
    affinity: _Affinity | None = None
    topology_spread_constraints: list[_Spread] | None = None
    tolerations: list[_Toleration] | None = None
    volumes: list[_Volume] | None = None
    resource_claims: list[Raw] | None = None
    scheduling_group: dict[str, Raw] | None = None


class PendingPodSchema(BoundPodSchema):
    """The pod of a filter or prioritize request."""

    spec: PendingPodSpec = field(default_factory=PendingPodSpec)


def has_preference(pod: PendingPodSchema) -> bool:
    """Whether a score plugin of kube-scheduler would prefer nodes by a wish of this pod."""
    spec = pod.spec
    return bool(
        (spec.affinity is not None and _has_preferred(spec.affinity))
        or any(each.when_unsatisfiable == _SOFT_SPREAD for each in spec.topology_spread_constraints or ())
        or any(each.effect == _SOFT_TAINT for each in spec.tolerations or ())
        or any(_is_claimed(each) for each in spec.volumes or ())
        or spec.resource_claims
        or spec.scheduling_group is not None
    )


def _has_preferred(affinity: _Affinity) -> bool:
    kinds: Iterable[_Terms | None] = (affinity.node_affinity, affinity.pod_affinity, affinity.pod_anti_affinity)
    return any(terms is not None and terms.preferred for terms in kinds)


def _is_claimed(volume: _Volume) -> bool:
    return volume.persistent_volume_claim is not None or volume.ephemeral is not None

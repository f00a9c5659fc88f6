"""Pods with a preference of their own, for which kube-scheduler has to score nodes, and pods without one."""

import json
from typing import Any

import pytest
from nodedevice_operator.extender.preferences import PendingPodSchema, has_preference
from nodedevice_operator.extender.wire import decode

PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
TERM = {"weight": 1, "preference": {"matchExpressions": [{"key": "zone", "operator": "Exists"}]}}
FILTERED = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}


def pod(spec: dict[str, Any]) -> PendingPodSchema:
    return decode(json.dumps({"metadata": {"uid": "u"}, "spec": spec}).encode(), PendingPodSchema)


@pytest.mark.parametrize(
    "spec",
    [
        {"affinity": {"nodeAffinity": {PREFERRED: [TERM]}}},
        {"affinity": {"podAffinity": {REQUIRED: [{}], PREFERRED: [TERM]}}},
        {"affinity": {"nodeAffinity": {REQUIRED: {}}, "podAntiAffinity": {PREFERRED: [TERM]}}},
        {"topologySpreadConstraints": [FILTERED, {**FILTERED, "whenUnsatisfiable": "ScheduleAnyway"}]},
        {"tolerations": [{"effect": "NoExecute"}, {"key": "old", "operator": "Exists", "effect": "PreferNoSchedule"}]},
        {"volumes": [{"name": "a", "emptyDir": {}}, {"name": "b", "persistentVolumeClaim": {"claimName": "c"}}]},
        {"volumes": [{"name": "a", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}}]},
        {"resourceClaims": [{"name": "a", "resourceClaimName": "b"}]},
        {"schedulingGroup": {"podGroupName": "a"}},
    ],
    ids="+".join,
)
def test_a_wish_that_a_plugin_scores_is_a_preference(spec: dict[str, Any]) -> None:
    assert has_preference(pod(spec))


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {**dict.fromkeys(["affinity", "topologySpreadConstraints", "tolerations", "volumes"]), "resourceClaims": []},
        {"nodeSelector": {"zone": "a"}, "affinity": {"nodeAffinity": {REQUIRED: {}, PREFERRED: []}}},
        {"affinity": {"podAffinity": {REQUIRED: [{}]}, "podAntiAffinity": {REQUIRED: [{}], PREFERRED: None}}},
        {"topologySpreadConstraints": [FILTERED]},
        # each pod has such tolerations by an admission plugin, and the volume of its account's token
        {"tolerations": [{"effect": "NoExecute", "operator": "Exists"}, {"effect": "NoSchedule"}, {}]},
        {"volumes": [{"name": "kube-api-access", "projected": {"sources": []}}, {"name": "b", "configMap": {}}]},
    ],
    ids=lambda spec: "+".join(spec) or "nothing",
)
def test_what_only_a_filter_reads_is_no_preference(spec: dict[str, Any]) -> None:
    assert not has_preference(pod(spec))

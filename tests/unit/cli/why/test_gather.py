"""What is read for an answer: each kind from its place, once, and only what the answer needs."""

from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any, Final

from kubectl_nodedevice.api import as_it_is
from kubectl_nodedevice.why import gather
from kubectl_nodedevice.why.facts import Unread
from nodedevice_kube.api_errors import Forbidden, NotFound

from tests.unit.cli.why.clusters import GPU, NOW

_CORE, _DRA = "/api/v1", "/apis/resource.k8s.io/v1"
_OURS: Final = "/apis/nodedevice.io/v1alpha1"
_APPS, _BATCH, _KUEUE = "/apis/apps/v1", "/apis/batch/v1", "/apis/kueue.x-k8s.io/v1beta1"
# that nothing is known of the release
_RELEASE: Final = (
    ("clusterrolebindings", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/nodedevice-agent"),
    (
        "daemonsets",
        f"{_APPS}/daemonsets",
        "labelSelector app.kubernetes.io/name=nodedevice,app.kubernetes.io/component=agent",
    ),
)
_LEASES: Final = "/apis/coordination.k8s.io/v1/namespaces/nodedevice-agents/leases"


class Api:
    """objects: by path, a list or one; what is not there is none. forbidden: ends of paths. asked: what, path, fields.

    shown: each progress, and "" where it has ended.
    """

    server_time = NOW

    def __init__(self, objects: Mapping[str, Any], *forbidden: str) -> None:
        self._objects, self._forbidden = objects, forbidden
        self.asked: list[tuple[str, ...]] = []
        self.shown: list[str] = []

    def get(self, what: str, path: str) -> Any:
        self.asked.append((what, path))
        if path.endswith(self._forbidden or ("//",)):
            raise Forbidden("GET", path, "no")
        if path not in self._objects:
            raise NotFound("GET", path, "none")
        return self._objects[path]

    def objects(
        self, what: str, path: str, query: Mapping[str, str] | None = None, make: Any = as_it_is
    ) -> Iterator[Any]:
        self.asked.append((what, path, *(f"{key} {value}" for key, value in (query or {}).items())))
        if path.endswith(self._forbidden or ("//",)):
            raise Forbidden("GET", path, "no")
        if path.startswith("/apis/kueue") and path not in self._objects:
            # a version, or a group, that is not served
            raise NotFound("GET", path, "none")
        yield from map(make, self._objects.get(path, ()))

    @property
    def session(self) -> Any:
        screen = SimpleNamespace(progress=self.shown.append, end_progress=lambda: self.shown.append(""))
        return SimpleNamespace(api=self, screen=screen)


def _named(name: str, **more: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "team"}, **more}


_FIELDS: Final[dict[str, Any]] = {"f:status": {"f:allocatable": {f"f:{GPU}": {}, "f:cpu": {}}}}
_NODE: Final = {"metadata": {"name": "node-a", "managedFields": [{"manager": "alice", "fieldsV1": _FIELDS}]}}
_CONTAINERS: Final = [{"name": "main", "resources": {"requests": {GPU: "1"}}}]


def _pod(**spec: Any) -> dict[str, Any]:
    status = {"extendedResourceClaimStatus": {"resourceClaimName": "made"}}
    return {
        "metadata": {"name": "p", "namespace": "team", "uid": "u"},
        "spec": {"containers": _CONTAINERS, **spec},
        "status": status,
    }


def test_of_a_pod_without_a_node() -> None:
    claims = [{"name": "c", "resourceClaimName": "x"}]
    api = Api(
        {
            f"{_CORE}/namespaces/team/pods/p": _pod(resourceClaims=claims),
            f"{_CORE}/nodes": [_NODE],
            f"{_OURS}/nodedevices": [_named("nd", spec={"nodeName": "node-a", "resourceName": GPU})],
            f"{_OURS}/namespaces/team/poddevices/p": _named("p"),
            _LEASES: [_named("node-a")],
            f"{_DRA}/deviceclasses": [_named("class")],
            f"{_DRA}/resourceslices": [_named("s", spec={"driver": "d"})],
            f"{_DRA}/resourceclaims": [_named("x")],
            f"{_DRA}/namespaces/team/resourceclaimtemplates": [_named("t")],
            f"{_CORE}/namespaces/team/events": [_named("b", eventTime="2"), _named("a", eventTime="1")],
        }
    )
    found = gather.of_pod(api.session, "team", "p")
    assert (found.now, found.namespace, found.name, found.extended_claim) == (NOW, "team", "p", "made")
    assert found.pod is not None
    assert found.pod_device is not None
    assert found.pod_device.meta.name == "p"
    assert [each.meta.name for each in found.nodes] == [each.meta.name for each in found.leases] == ["node-a"]
    assert [each.meta.name for each in found.node_devices] == ["nd"]
    assert ([each.name for each in found.classes], [each.driver for each in found.slices]) == (["class"], ["d"])
    assert ([each.meta.name for each in found.claims], found.templates) == (["x"], frozenset({"t"}))
    assert [each.at for each in found.events] == ["1", "2"]
    assert found.nodes[0].writers == {GPU: "alice"}
    assert (found.unread, found.family, found.pods, found.is_absent) == ((), (), (), False)
    assert api.asked == [
        ("pods p", f"{_CORE}/namespaces/team/pods/p"),
        ("nodes", f"{_CORE}/nodes"),
        ("poddevices p", f"{_OURS}/namespaces/team/poddevices/p"),
        ("nodedevices", f"{_OURS}/nodedevices", f"fieldSelector spec.resourceName={GPU}"),
        *_RELEASE,
        ("leases", _LEASES),
        ("deviceclasses", f"{_DRA}/deviceclasses"),
        ("resourceslices", f"{_DRA}/resourceslices"),
        ("resourceclaims", f"{_DRA}/resourceclaims"),
        ("resourceclaimtemplates", f"{_DRA}/namespaces/team/resourceclaimtemplates"),
        ("events", f"{_CORE}/namespaces/team/events", "fieldSelector involvedObject.uid=u"),
        ("namespaces team", f"{_CORE}/namespaces/team"),
    ]
    # each kind while it is read, and at last nothing
    kinds = "leases", "deviceclasses", "resourceslices", "resourceclaims", "resourceclaimtemplates", "events"
    read = [f"reading {each}" for each in kinds]
    assert api.shown == ["reading nodes", "reading nodedevices: 0", "", *read, ""]


def test_of_a_pod_on_a_node_that_asks_for_nothing() -> None:
    api = Api(
        {f"{_CORE}/namespaces/team/pods/p": _pod(nodeName="node-a", containers=[]), f"{_CORE}/nodes/node-a": _NODE}
    )
    found = gather.of_pod(api.session, "team", "p")
    assert [each.meta.name for each in found.nodes] == ["node-a"]
    assert api.asked[1:] == [
        ("nodes node-a", f"{_CORE}/nodes/node-a"),
        ("poddevices p", f"{_OURS}/namespaces/team/poddevices/p"),
        ("nodedevices", f"{_OURS}/nodedevices", "fieldSelector spec.nodeName=node-a"),
        *_RELEASE,
        ("leases", _LEASES),
        ("events", f"{_CORE}/namespaces/team/events", "fieldSelector involvedObject.uid=u"),
        ("namespaces team", f"{_CORE}/namespaces/team"),
    ]


def test_claims_of_all_namespaces_are_those_of_the_pods_own() -> None:
    api = Api({f"{_CORE}/namespaces/team/pods/p": _pod(containers=[], resourceClaims=[{"name": "c"}])})
    assert gather.of_pod(api.session, "team", "p").claims == ()
    assert [path for what, path, *_ in api.asked if what == "resourceclaims"] == [f"{_DRA}/resourceclaims"]


def test_what_may_not_be_read_is_noted_with_its_role() -> None:
    kinds = "nodes", "nodedevices", "poddevices/p", "leases", "deviceclasses", "resourceslices", "resourceclaims"
    api = Api({f"{_CORE}/namespaces/team/pods/p": _pod()}, *kinds, "events", "namespaces/team")
    found = gather.of_pod(api.session, "team", "p")
    fleet = ("nodes", "nodedevices.nodedevice.io", "leases.coordination.k8s.io")
    dra = ("deviceclasses.resource.k8s.io", "resourceslices.resource.k8s.io")
    why = "you may not read them"
    assert sorted(found.unread, key=lambda each: each.kind) == sorted(
        [
            *(Unread(each, why, "nodedevice-fleet-view") for each in (*fleet, *dra)),
            Unread("poddevices.nodedevice.io", why, "nodedevice-view"),
            *(Unread(each, why, "view") for each in ("resourceclaims.resource.k8s.io", "resourceclaims", "events")),
            Unread("namespaces", why, "view"),
        ],
        key=lambda each: each.kind,
    )
    assert ("resourceclaims", f"{_DRA}/namespaces/team/resourceclaims") in api.asked


def _controller(name: str, *owners: str, spec: Mapping[str, Any] | None = None) -> dict[str, Any]:
    references = [
        {"kind": kind, "name": owner, "controller": True} for kind, owner in (each.split("/") for each in owners)
    ]
    meta = {"name": name, "namespace": "team", "uid": f"uid-{name}", "ownerReferences": references}
    return {"metadata": meta, "spec": spec or {}}


_TEMPLATE: Final = {"template": {"spec": {"containers": _CONTAINERS}}}
_IN_TEAM: Final = f"{_CORE}/namespaces/team"


def _event(kind: str, name: str, at: str = "1", reason: str = "FailedCreate") -> dict[str, Any]:
    return _named("e", involvedObject={"kind": kind, "name": name}, reason=reason, message="no", eventTime=at)


def _of_apps(plural: str, *found: Any) -> dict[str, Any]:
    return {f"{_APPS}/namespaces/team/{plural}": found}


def test_of_a_pod_that_does_not_exist() -> None:
    own = {"ownerReferences": [{"kind": "ReplicaSet", "name": "web-7d9c5f", "controller": True}]}
    api = Api(
        {
            **_of_apps(
                "deployments",
                _controller("web", spec={"replicas": 2, **_TEMPLATE}),
                _controller("web-frontend", spec=_TEMPLATE),
            ),
            **_of_apps("replicasets", _controller("web-7d9c5f", "Deployment/web", spec=_TEMPLATE)),
            f"{_IN_TEAM}/events": [_event("Pod", "web"), _event("ReplicaSet", "web-7d9c5f")],
            f"{_IN_TEAM}/pods": [_named("q"), {"metadata": {"name": "web-7d9c5f-x", "namespace": "team", **own}}],
        }
    )
    found = gather.of_pod(api.session, "team", "web")
    assert [each.key for each in found.family] == ["Deployment/web", "ReplicaSet/web-7d9c5f"]
    assert ([each.meta.name for each in found.pods], found.pod_names) == (["web-7d9c5f-x"], ("q", "web-7d9c5f-x"))
    # of each selector the same two, which this server does not compare
    assert {each.about_kind for each in found.events} == {"ReplicaSet"}
    assert found.pod is not None
    assert (found.is_absent, found.pod.meta.name, len(found.pod.containers)) == (True, "web", 1)
    events = f"{_IN_TEAM}/events"
    assert api.asked[:12] == [
        ("pods web", f"{_IN_TEAM}/pods/web"),
        ("pods", f"{_IN_TEAM}/pods"),
        ("events", events, "fieldSelector reason=FailedCreate"),
        ("events", events, "fieldSelector reason=SuccessfulCreate"),
        ("deployments", f"{_APPS}/namespaces/team/deployments"),
        ("statefulsets", f"{_APPS}/namespaces/team/statefulsets"),
        ("daemonsets", f"{_APPS}/namespaces/team/daemonsets"),
        ("cronjobs", f"{_BATCH}/namespaces/team/cronjobs"),
        ("jobs", f"{_BATCH}/namespaces/team/jobs"),
        ("replicasets", f"{_APPS}/namespaces/team/replicasets"),
        ("replicationcontrollers", f"{_IN_TEAM}/replicationcontrollers"),
        ("nodes", f"{_CORE}/nodes"),
    ]


def test_of_a_pod_whose_controllers_only_events_name() -> None:
    for forbidden in (("replicasets",), ()):
        kind = "ReplicaSet" if forbidden else "Rollout"
        api = Api({f"{_IN_TEAM}/events": [_event(kind, "web")]}, *forbidden)
        found = gather.of_pod(api.session, "team", "web")
        assert ([each.key for each in found.family], found.pod) == ([f"{kind}/web"], None)
    # of one that could be read, and is not there, an Event is left over
    assert gather.of_pod(Api({f"{_IN_TEAM}/events": [_event("ReplicaSet", "web")]}).session, "team", "web").family == ()


def test_of_a_suspended_job_and_its_queue() -> None:
    workload = {"metadata": {"name": "job-train", "ownerReferences": [{"uid": "uid-train"}]}}
    jobs = {f"{_BATCH}/namespaces/team/jobs": [_controller("train", spec={"suspend": True, **_TEMPLATE})]}
    found = gather.of_pod(Api(jobs | {f"{_KUEUE}/namespaces/team/workloads": [workload]}).session, "team", "train")
    assert (found.has_queue, found.workload and found.workload.meta.name) == (True, "job-train")
    found = gather.of_pod(Api(jobs, "workloads").session, "team", "train")
    assert (found.has_queue, found.workload, found.has_read("workloads.kueue.x-k8s.io")) == (True, None, False)


def _owned(name: str, owner: str, **spec: Any) -> dict[str, Any]:
    kind, _, owner_name = owner.partition("/")
    made = _pod(**spec)
    made["metadata"] |= {"name": name, "uid": f"uid-{name}"}
    made["metadata"]["ownerReferences"] = [{"kind": kind, "name": owner_name, "controller": True}]
    return made


def test_of_a_pod_that_waits_for_its_predecessor() -> None:
    sets = [_controller(name, "Deployment/web") for name in ("web-1", "web-2")]
    labels = {"selector": {"matchLabels": {"app": "web"}}}
    old, new = _owned("old", "ReplicaSet/web-1", nodeName="node-a"), _owned("p", "ReplicaSet/web-2")
    api = Api(
        {
            f"{_IN_TEAM}/pods/p": new,
            f"{_IN_TEAM}/pods": [old, new],
            f"{_APPS}/namespaces/team/replicasets/web-2": sets[1],
            f"{_APPS}/namespaces/team/deployments/web": _controller("web", spec=labels),
            **_of_apps("replicasets", *sets),
        }
    )
    found = gather.of_pod(api.session, "team", "p")
    assert found.predecessors == {"team/old"}
    assert found.rollout is not None
    assert found.rollout.key == "Deployment/web"
    assert ("pods", f"{_IN_TEAM}/pods", "labelSelector app=web") in api.asked


def test_of_a_pod_that_a_queue_gates() -> None:
    gates = [{"name": "kueue.x-k8s.io/admission"}]
    workload = {"metadata": {"name": "pod-p", "ownerReferences": [{"uid": "uid-p"}]}}
    pod = _owned("p", "Job/train", schedulingGates=gates)
    found = gather.of_pod(
        Api({f"{_IN_TEAM}/pods/p": pod, f"{_KUEUE}/namespaces/team/workloads": [workload]}).session, "team", "p"
    )
    assert (found.has_queue, found.workload and found.workload.meta.name) == (True, "pod-p")
    # where there is no queue, its gate is one as any other
    assert not gather.of_pod(Api({f"{_IN_TEAM}/pods/p": pod}).session, "team", "p").has_queue


def test_of_a_namespace_that_is_being_deleted() -> None:
    conditions = [
        {"type": "A", "status": "True", "message": "pods has 1 finalizer"},
        {"type": "B", "status": "False", "message": "x"},
    ]
    ending = {"metadata": {"name": "team", "deletionTimestamp": "t"}, "status": {"conditions": conditions}}
    found = gather.of_pod(Api({f"{_IN_TEAM}/pods/p": _pod(), _IN_TEAM: ending}).session, "team", "p")
    assert (found.namespace_deleted, found.namespace_words) == ("t", "pods has 1 finalizer")


def test_the_leases_are_where_the_release_has_them() -> None:
    binding = {
        "metadata": {"annotations": {"nodedevice.io/leases-namespace": "gpu-agents"}},
        "subjects": [{"name": "nodedevice-agent", "namespace": "gpus"}],
    }
    api = Api({f"{_CORE}/nodes/node-a": _NODE, _RELEASE[0][1]: binding})
    found = gather.of_node(api.session, "node-a")
    assert (found.release.namespace, found.release.leases) == ("gpus", "gpu-agents")
    assert api.asked[-1] == ("leases node-a", "/apis/coordination.k8s.io/v1/namespaces/gpu-agents/leases/node-a")


def test_of_a_node() -> None:
    api = Api({f"{_CORE}/nodes/node-a": _NODE, f"{_LEASES}/node-a": _named("node-a")})
    found = gather.of_node(api.session, "node-a")
    assert found.name == "node-a"
    assert [each.meta.name for each in found.nodes] == [each.meta.name for each in found.leases] == ["node-a"]
    assert found.nodes[0].writers == {GPU: "alice"}
    assert api.asked == [
        ("nodes node-a", f"{_CORE}/nodes/node-a"),
        ("nodedevices", f"{_OURS}/nodedevices", "fieldSelector spec.nodeName=node-a"),
        *_RELEASE,
        ("leases node-a", f"{_LEASES}/node-a"),
    ]
    assert gather.of_node(Api({}).session, "x").leases == ()

"""What is read for an answer: each kind from its place, once, and only what the answer needs."""

from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any, Final

from kubectl_nodedevice.errors import Forbidden, NotFound
from kubectl_nodedevice.why import gather
from kubectl_nodedevice.why.facts import Facts, Unread

from tests.unit.cli.why.clusters import GPU, NOW

_CORE, _DRA = "/api/v1", "/apis/resource.k8s.io/v1"
_OURS: Final = "/apis/nodedevice.io/v1alpha1"
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
            raise Forbidden("no")
        if path not in self._objects:
            raise NotFound("none")
        return self._objects[path]

    def objects(self, what: str, path: str, query: Mapping[str, str] | None = None) -> Iterator[Any]:
        self.asked.append((what, path, *(f"{key} {value}" for key, value in (query or {}).items())))
        if path.endswith(self._forbidden or ("//",)):
            raise Forbidden("no")
        yield from self._objects.get(path, ())

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
    assert found.capacity_owners == {("node-a", GPU): "alice"}
    assert (found.unread, found.refused, found.pods) == ((), None, ())
    assert api.asked == [
        ("pods p", f"{_CORE}/namespaces/team/pods/p"),
        ("nodes", f"{_CORE}/nodes"),
        ("poddevices p", f"{_OURS}/namespaces/team/poddevices/p"),
        ("nodedevices", f"{_OURS}/nodedevices", f"fieldSelector spec.resourceName={GPU}"),
        ("leases", _LEASES),
        ("deviceclasses", f"{_DRA}/deviceclasses"),
        ("resourceslices", f"{_DRA}/resourceslices"),
        ("resourceclaims", f"{_DRA}/resourceclaims"),
        ("resourceclaimtemplates", f"{_DRA}/namespaces/team/resourceclaimtemplates"),
        ("events", f"{_CORE}/namespaces/team/events", "fieldSelector involvedObject.uid=u"),
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
        ("leases", _LEASES),
        ("events", f"{_CORE}/namespaces/team/events", "fieldSelector involvedObject.uid=u"),
    ]


def test_claims_of_all_namespaces_are_those_of_the_pods_own() -> None:
    api = Api({f"{_CORE}/namespaces/team/pods/p": _pod(containers=[], resourceClaims=[{"name": "c"}])})
    assert gather.of_pod(api.session, "team", "p").claims == ()
    assert [path for what, path, *_ in api.asked if what == "resourceclaims"] == [f"{_DRA}/resourceclaims"]


def test_what_may_not_be_read_is_noted_with_its_role() -> None:
    kinds = "nodes", "nodedevices", "poddevices/p", "leases", "deviceclasses", "resourceslices", "resourceclaims"
    api = Api({f"{_CORE}/namespaces/team/pods/p": _pod()}, *kinds, "events")
    found = gather.of_pod(api.session, "team", "p")
    fleet = ("nodes", "nodedevices.nodedevice.io", "leases.coordination.k8s.io")
    dra = ("deviceclasses.resource.k8s.io", "resourceslices.resource.k8s.io")
    why = "you may not read them"
    assert sorted(found.unread, key=lambda each: each.kind) == sorted(
        [
            *(Unread(each, why, "nodedevice-fleet-view") for each in (*fleet, *dra)),
            Unread("poddevices.nodedevice.io", why, "nodedevice-view"),
            *(Unread(each, why, "view") for each in ("resourceclaims.resource.k8s.io", "resourceclaims", "events")),
        ],
        key=lambda each: each.kind,
    )
    assert ("resourceclaims", f"{_DRA}/namespaces/team/resourceclaims") in api.asked


def _absent(kind: str, **objects: Any) -> tuple[Facts, Api]:
    about = {"kind": kind, "name": "web"}
    event = _named("e", involvedObject=about, reason="FailedCreate", message="no")
    api = Api({f"{_CORE}/namespaces/team/events": [event], f"{_CORE}/namespaces/team/pods": [_named("q")], **objects})
    return gather.of_pod(api.session, "team", "web-1"), api


def test_of_a_pod_that_is_refused() -> None:
    template = {"template": {"spec": {"containers": _CONTAINERS}}}
    places = {"ReplicaSet": "/apis/apps/v1", "Job": "/apis/batch/v1", "ReplicationController": _CORE}
    for kind, group in places.items():
        path = f"{group}/namespaces/team/{kind.lower()}s/web"
        found, api = _absent(kind, **{path: _named("web", spec=template)})
        assert (f"{kind.lower()}s web", path) in api.asked
        assert (found.namespace, found.name, found.events, found.pod_device) == ("team", "web-1", (), None)
        assert found.pod is not None
        assert (found.pod.meta.name, found.pod.meta.namespace, len(found.pod.containers)) == ("web-1", "team", 1)
        assert found.refused is not None
        # nothing of the pod itself, which does not exist
        assert [each[0] for each in api.asked] == [
            "pods web-1",
            "events",
            f"{kind.lower()}s web",
            "nodes",
            "nodedevices",
            "nodedevices",
            "leases",
            "deviceclasses",
            "resourceslices",
            "resourceclaims",
        ]
    for kind in ("ReplicaSet", "Odd"):
        found, api = _absent(kind)
        assert (found.pod, found.namespace, found.name) == (None, "team", "web-1")
        assert found.refused is not None
    assert ("events", f"{_CORE}/namespaces/team/events", "fieldSelector reason=FailedCreate") in api.asked


def test_of_a_pod_that_is_none() -> None:
    found, api = _absent("Pod")
    assert (found.refused, found.namespace, found.name) == (None, "team", "web-1")
    assert [each.meta.name for each in found.pods] == ["q"]
    assert api.asked[-1] == ("pods", f"{_CORE}/namespaces/team/pods")


def test_of_a_node() -> None:
    api = Api({f"{_CORE}/nodes/node-a": _NODE, f"{_LEASES}/node-a": _named("node-a")})
    found = gather.of_node(api.session, "node-a")
    assert found.name == "node-a"
    assert [each.meta.name for each in found.nodes] == [each.meta.name for each in found.leases] == ["node-a"]
    assert found.capacity_owners == {("node-a", GPU): "alice"}
    assert api.asked == [
        ("nodes node-a", f"{_CORE}/nodes/node-a"),
        ("nodedevices", f"{_OURS}/nodedevices", "fieldSelector spec.nodeName=node-a"),
        ("leases node-a", f"{_LEASES}/node-a"),
    ]
    assert gather.of_node(Api({}).session, "x").leases == ()

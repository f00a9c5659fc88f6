"""What the first screen is made of: what is read for it, which objects whole, and the lines of resources."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, Final

import pytest
from kubectl_nodedevice.api import Rows, as_it_is
from kubectl_nodedevice.reading import Reader
from kubectl_nodedevice.survey import ResourceLine, Survey, survey
from nodedevice_kube.api_errors import Forbidden, NotFound

from tests.unit.cli.objects import GPU, pod

_OURS: Final = "/apis/nodedevice.io/v1alpha1"
_LEASE: Final = "/apis/coordination.k8s.io/v1/namespaces/nodedevice-system/leases/nodedevice-operator"


class Api:
    """found: by path, what a list has. gone: names of objects that are missing. forbidden: paths. asked: each path."""

    server_time = datetime(2026, 11, 28, 12, tzinfo=UTC)

    def __init__(self, found: Mapping[str, Sequence[Any]], gone: Sequence[str] = (), forbidden: str = "") -> None:
        self._found, self._gone, self._forbidden = found, gone, forbidden.split()
        self.asked: list[str] = []
        self.shown: list[str] = []

    def get(self, _: str, path: str) -> Any:
        self._ask(path)
        name = path.rpartition("/")[2]
        if name in self._gone or path == _LEASE:
            raise NotFound("GET", path, "none")
        return {"metadata": {"name": name}}

    def objects(self, _: str, path: str, query: Any = None, make: Any = as_it_is) -> Iterator[Any]:
        self._ask(path)
        yield from map(make, self._found.get(path, ()))

    def rows(self, what: str, path: str) -> Iterator[Any]:
        return self.objects(what, path)

    def _ask(self, path: str) -> None:
        self.asked.append(path)
        if path in self._forbidden:
            raise Forbidden("GET", path, "no")

    @property
    def reader(self) -> Reader:
        screen: Any = SimpleNamespace(progress=self.shown.append, end_progress=lambda: self.shown.append(""))
        api: Any = self
        return Reader(api, screen)

    @property
    def read_whole(self) -> list[str]:
        """Names of NodeDevices, in the order in which they were read."""
        return [path.rpartition("/")[2] for path in self.asked if path.startswith(f"{_OURS}/nodedevices/")]


def row(name: str, resource: str = GPU, served_by: str = "nodedevice", **cells: Any) -> Rows:
    """Of 2 healthy, free devices, unless the cells say otherwise."""
    usual = {"name": name, "node": f"node-of-{name}", "resource": resource, "total": 2, "healthy": 2, "allocated": 0}
    usual |= {"available": 2, "cordoned": 0, "ready": "True", "reason": "", "agent": "True", "waiting": 0}
    found = {**usual, "served-by": served_by, **cells}
    return Rows({column: at for at, column in enumerate(found)}, list(found.values()))


def of(*rows: Rows, gone: Sequence[str] = (), forbidden: str = "", **more: Sequence[Any]) -> tuple[Survey, Api]:
    """more: pods and configs."""
    lists = {"/api/v1/pods": more.get("pods", ()), f"{_OURS}/nodedeviceconfigs": more.get("configs", ())}
    api = Api({f"{_OURS}/nodedevices": rows, **lists}, gone, forbidden)
    return survey(api.reader, "team"), api


# -- what is read -------------------------------------------------------------------------------------------------------------


def unready(reason: str, numbers: range, **cells: Any) -> list[Rows]:
    return [row(f"{reason}-{number}", ready="False", reason=reason, **cells) for number in numbers]


def names(reason: str, number: int) -> list[str]:
    return [f"{reason}-{each}" for each in range(number)]


def test_of_one_reason_no_more_are_read_than_there_is_time_for() -> None:
    assert of(*unready("a", range(61)))[1].read_whole == names("a", 60)


def test_each_reason_has_its_share_of_what_is_read() -> None:
    found = [*unready("a", range(40)), *unready("b", range(2)), *unready("c", range(20))]
    assert of(*found)[1].read_whole == [*names("a", 20), *names("b", 2), *names("c", 20)]
    # of many reasons three each, as far as that goes
    many = [each for number in range(25) for each in unready(f"r{number}", range(4))]
    assert of(*many)[1].read_whole == [name for number in range(20) for name in names(f"r{number}", 3)]


@pytest.mark.parametrize("other", [{"resource": "example.com/nic"}, {"waiting": 2}])
def test_what_is_of_another_resource_or_waits_has_a_share_of_its_own(other: dict[str, Any]) -> None:
    found = [*unready("a", range(40)), *unready("a", range(40, 50), **other)]
    assert of(*found)[1].read_whole == [*names("a", 30), *(f"a-{number}" for number in range(40, 50))]


def test_however_many_pods_wait_it_is_one_reason() -> None:
    found = [row(f"w-{number}", waiting=1 + number % 9) for number in range(61)]
    assert of(*found)[1].read_whole == names("w", 60)


@pytest.mark.parametrize("how", [{"gone": ["a-0"]}, {"forbidden": f"{_OURS}/nodedevices/a-0"}])
def test_one_that_cannot_be_read_keeps_nobody_from_the_others(how: dict[str, Any]) -> None:
    found, api = of(*unready("a", range(3)), **how)
    assert api.read_whole == names("a", 3)
    [need] = found.needs
    assert "3 nodes" in need.text


def test_what_is_read_for_the_first_screen() -> None:
    found, api = of(row("well"), *unready("a", range(1)))
    assert api.asked == [
        f"{_OURS}/nodedevices",
        f"{_OURS}/nodedevices/a-0",
        "/api/v1/pods",
        "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/nodedevice-agent",
        "/apis/apps/v1/daemonsets",
        _LEASE,
        f"{_OURS}/nodedeviceconfigs",
    ]
    # each reading has ended before the next one is shown
    one_by_one = ["reading nodedevices that need you: 0 of 1", ""]
    assert api.shown == ["reading nodedevices: 0", "", *one_by_one, "", ""]
    assert found.own is None


# -- for who may not read all of it -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("forbidden", "unseen"),
    [
        ("/api/v1/pods", ["pods of other namespaces"]),
        ("/api/v1/pods /api/v1/namespaces/team/pods", ["pods of other namespaces", "pods of team"]),
        (_LEASE, ["the operator's Lease"]),
        (f"{_OURS}/nodedeviceconfigs", ["nodedeviceconfigs"]),
        (f"{_OURS}/nodedevices", ["nodedevices"]),
        (
            f"{_OURS}/nodedevices {_OURS}/namespaces/team/poddevices /api/v1/namespaces/team/pods",
            ["nodedevices", "poddevices", "pods"],
        ),
    ],
)
def test_what_may_not_be_read_is_named(forbidden: str, unseen: list[str]) -> None:
    reader = (api := Api({}, forbidden=forbidden)).reader
    survey(reader, "team")
    assert [each.what for each in reader.unseen] == unseen
    assert set(forbidden.split()) <= set(api.asked)


def test_without_a_namespace_there_are_no_pods_of_ones_own() -> None:
    reader = (api := Api({}, forbidden="/api/v1/pods")).reader
    survey(reader, "")
    assert [each for each in api.asked if each.endswith("/pods")] == ["/api/v1/pods"]


def test_whoever_may_not_see_nodedevices_is_shown_the_pods_of_their_namespace() -> None:
    own = {"metadata": {"name": "try", "namespace": "team"}}
    waiting = pod("late", node="", phase="Pending")
    lists = {f"{_OURS}/namespaces/team/poddevices": [own], "/api/v1/namespaces/team/pods": [waiting]}
    api = Api(lists, forbidden=f"{_OURS}/nodedevices")
    found = survey(api.reader, "team")
    assert api.asked == [f"{_OURS}/nodedevices", *lists]
    assert found.own is not None
    assert [each.meta.name for each in found.own] == ["try"]
    assert (found.lines, [each.about["pod"] for each in found.needs]) == ([], ["default/late"])
    # where these may not be seen either, there are none
    assert survey(Api({}, forbidden=f"{_OURS}/nodedevices {_OURS}/namespaces/team/poddevices").reader, "team").own == []


@pytest.mark.parametrize(
    ("cells", "words"),
    [
        ({"refused": 1, "result": "node-a refuses it"}, "node-a refuses it"),
        ({"refused": 1, "result": None}, "1 node refuses it"),
        ({"conflict": "True"}, "another one has a resource of it"),
    ],
)
def test_a_configuration_that_needs_somebody(cells: dict[str, Any], words: str) -> None:
    found = {"name": "c", "refused": 0, "conflict": None, **cells}
    config = Rows({column: at for at, column in enumerate(found)}, list(found.values()))
    [need] = of(configs=[config])[0].needs
    assert need.text == f"NodeDeviceConfig c: {words}"


# -- lines of resources -------------------------------------------------------------------------------------------------------


def test_a_line_is_the_sum_of_its_nodes() -> None:
    rows = [
        row("a", total=5, healthy=4, allocated=2, available=1, cordoned=1, waiting=2),
        row("b", total=3, healthy=1, allocated=1, available=2, cordoned=2, waiting=1),
    ]
    nodes = {"node-of-a", "node-of-b"}
    expected = ResourceLine(GPU, "nodedevice", nodes, devices=8, free=3, held=3, broken=3, cordoned=3, waiting=3)
    assert of(*rows)[0].lines == [expected]
    # pods that have no node yet wait, too
    pods = [*(pod(name, node="", phase="Pending") for name in ("late", "later")), pod("bound", phase="Pending")]
    other = pod("other", node="", phase="Pending", resource="example.com/nic")
    [line] = of(*rows, pods=[*pods, other])[0].lines
    assert line.waiting == 5


def test_lines_are_by_resource_and_by_who_gives_it_out() -> None:
    rows = [
        row("a", "z.com/x"),
        row("b", "a.com/x"),
        row("c", "d.com/pool-1", "dra"),
        row("d", "a.com/x", "kubelet"),
        row("e", "d.com/pool-2", "dra"),
    ]
    assert [(each.resource, each.served_by, sorted(each.nodes)) for each in of(*rows)[0].lines] == [
        ("a.com/x", "kubelet", ["node-of-d"]),
        ("a.com/x", "nodedevice", ["node-of-b"]),
        # a driver's pools are one line
        ("d.com", "dra", ["node-of-c", "node-of-e"]),
        ("z.com/x", "nodedevice", ["node-of-a"]),
    ]


@pytest.mark.parametrize(
    ("served_by", "shown"),
    [("nodedevice", "nodedevice"), ("kubelet", "kubelet"), ("dra", "DRA"), ("others", "others"), ("", "nobody yet")],
)
def test_who_gives_it_out(served_by: str, shown: str) -> None:
    assert ResourceLine("x", served_by).given_out_by == shown

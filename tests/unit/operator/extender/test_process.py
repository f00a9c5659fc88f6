"""How the extender is put together: each part is there, is the same for all who share it, and has its settings."""

import asyncio
import inspect
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from nodedevice_common.http_server import Protection
from nodedevice_common.tasks import problems
from nodedevice_operator.errors import OperatorSettingsError
from nodedevice_operator.extender import settings
from nodedevice_operator.extender.activity import Activity
from nodedevice_operator.extender.binder import Binder
from nodedevice_operator.extender.fleet import Fleet
from nodedevice_operator.extender.lease_follower import LeaseFollower
from nodedevice_operator.extender.metrics import ExtenderMetrics
from nodedevice_operator.extender.pods_api import PodsApi
from nodedevice_operator.extender.process import Extender
from nodedevice_operator.extender.stores import KINDS, FleetStores
from nodedevice_operator.extender.verbs import Verbs
from nodedevice_operator.informers.staleness import Watchdog
from nodedevice_operator.kube.client import Client
from nodedevice_operator.kube.health import ApiHealth, Health
from nodedevice_operator.kube.lists import Cluster
from nodedevice_operator.kube.write_fence import WriteFence
from nodedevice_operator.leases.elector import LEASE_REQUESTS, Election, LeaderLeases

from tests.fakes.parts import misfits, one_of, parts_of
from tests.unit.operator.kube.api_server import kubeconfig

FOLLOWED = {"follow_lease": "kube-system/kube-scheduler"}
ALONE = {"leader_elect": False}


@contextmanager
def made(folder: Path, **given: Any) -> Iterator[Extender]:
    """An extender that has not begun to work, with these settings."""
    file = kubeconfig(folder, "http://127.0.0.1:1")
    extender = Extender(settings.load(None, {"kubeconfig": file, "http_address": "127.0.0.1:0", **given}))
    yield extender
    for work in extender._work.values():
        work.close()


@pytest.mark.parametrize("given", [{}, FOLLOWED, ALONE], ids=["election", "followed", "alone"])
async def test_each_part_begins_as_it_is_declared(given: dict[str, Any], tmp_path: Path) -> None:
    with made(tmp_path, **given) as extender:
        assert misfits(extender) == []
        for kind in (
            Fleet,
            FleetStores,
            Binder,
            PodsApi,
            Activity,
            Cluster,
            WriteFence,
            ExtenderMetrics,
            ApiHealth,
            Verbs,
        ):
            one_of(extender, kind)


@pytest.mark.parametrize(
    ("given", "more"),
    [({}, {"election"}), (FOLLOWED, {"election", "followed-lease"}), (ALONE, set())],
    ids=["election", "followed", "alone"],
)
async def test_each_task_has_its_own_name(given: dict[str, Any], more: set[str], tmp_path: Path) -> None:
    with made(tmp_path, **given) as extender:
        watches = {f"watch-{kind.name}" for kind in KINDS}
        assert extender._work.keys() == {"beat", "port", "binds", "activity", "watchdog", *watches, *more}
        for name, work in extender._work.items():
            assert inspect.getcoroutinelocals(work)["task"] == name


async def test_settings_reach_those_who_work_by_them(tmp_path: Path) -> None:
    given = {"leader_lease_seconds": 40, "watchdog_seconds": 7.0, "policy": "spread", "address": "127.0.0.1:1234"}
    with made(tmp_path, **given) as extender:
        # a bind has the last quarter of the Lease to arrive
        assert one_of(extender, PodsApi)._query == {"timeout": "10s"}
        assert one_of(extender, Election).timing.lease_seconds == 40
        assert one_of(extender, Watchdog).interval_seconds == 7.0
        assert one_of(extender, Watchdog).kinds == KINDS
        assert one_of(extender, Verbs)._policy == "spread"
        assert extender._server._address == ("127.0.0.1", 1234)
        assert extender._api_health.role == "nodedevice-extender"


@pytest.mark.parametrize(
    ("given", "expected"),
    [({}, "there"), ({"namespace": "ours"}, "ours")],
    ids=["of the kubeconfig", "of the settings"],
)
async def test_its_lease(given: dict[str, Any], expected: str, tmp_path: Path) -> None:
    with made(tmp_path, **given) as extender:
        leases = one_of(extender, LeaderLeases)
        assert (leases._namespace, leases._name) == (expected, "nodedevice-extender")
        assert one_of(extender, Election).is_candidate


async def test_the_lease_that_it_follows_is_read_quickly(tmp_path: Path) -> None:
    with made(tmp_path, **FOLLOWED, leader_lease_seconds=40) as extender:
        followed = one_of(extender, LeaseFollower)._leases
        assert (followed._namespace, followed._name) == ("kube-system", "kube-scheduler")
        assert followed._client._transport._seconds == 20
        assert not one_of(extender, Election).is_candidate


async def test_each_client_has_its_own_connections_and_writes_behind_one_fence(tmp_path: Path) -> None:
    with made(tmp_path, **FOLLOWED) as extender:
        extender._protection()
        clients = [part for part in parts_of(extender) if isinstance(part, Client)]
        assert {id(client) for client in clients} == {id(client) for client in extender._clients}
        # of the election, which decides on the fence, of the followed Lease, and of reviews
        assert [client._fence for client in extender._clients] == [extender._fence, None, None, None]
        assert [client._places._value for client in extender._clients[1:]] == [LEASE_REQUESTS, 1, 2]


async def test_without_an_election_it_is_active(tmp_path: Path) -> None:
    with made(tmp_path, **ALONE) as extender:
        assert extender._fence.is_open
        assert extender._election is None
        # it reads what is bound before it answers
        assert one_of(extender, Activity)._begins.is_set()


@pytest.mark.parametrize(
    ("given", "is_waiting"), [({}, True), (FOLLOWED, False)], ids=["by a Service", "beside its scheduler"]
)
async def test_where_a_service_chooses_only_the_active_one_is_ready(
    given: dict[str, Any], is_waiting: bool, tmp_path: Path
) -> None:
    with made(tmp_path, **given) as extender:
        kinds = extender._stores.waits_for()
        assert kinds
        assert extender._waits_for() == kinds
        extender._stores.waits_for = tuple  # type: ignore[method-assign]
        assert extender._waits_for() == ((extender._activity.problem(),) if is_waiting else ())


async def test_metrics_show_whether_it_is_active_and_what_it_knows(tmp_path: Path) -> None:
    with made(tmp_path) as extender:
        value = extender._metrics.registry.get_sample_value
        assert [value("nodedevice_extender_objects", {"kind": kind.name}) for kind in KINDS] == [0, 0]
        assert value("nodedevice_extender_active") == 0
        extender._activity.problem = lambda: ""  # type: ignore[method-assign]
        assert value("nodedevice_extender_active") == 1


async def test_certificates_that_cannot_be_read_name_the_setting(tmp_path: Path) -> None:
    chain = str(tmp_path / "none")
    with (
        made(tmp_path, metrics_tls_certificate=chain, metrics_tls_key=chain) as extender,
        pytest.raises(OperatorSettingsError, match=r"metricsAuthentication"),
    ):
        extender._protection()


async def test_it_serves_as_the_settings_say_and_its_end_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    served: list[tuple[Any, ...]] = []
    closed: list[Client] = []
    protection = Protection()
    close = Client.close

    async def closing(self: Client) -> None:
        closed.append(self)
        await close(self)

    with made(tmp_path, **ALONE, address="127.0.0.1:0") as extender:

        def serve(_: Health, *given: Any) -> tuple[str, int]:
            served.append(given)
            extender._stop.set()
            context = {"message": "Exception in callback watch()", "exception": OSError("Too many open files")}
            asyncio.get_running_loop().call_exception_handler(context)
            return "127.0.0.1", 1

        monkeypatch.setattr(Health, "serve", serve)
        monkeypatch.setattr(extender, "_protection", lambda: protection)
        monkeypatch.setattr(Client, "close", closing)
        await extender.run()
    assert served == [(("127.0.0.1", 0), extender._metrics.registry, protection)]
    assert closed == extender._clients
    listening = extender._server._socket
    assert listening is not None
    assert listening.fileno() == -1, "closed"
    assert problems() == ("callback watch fails and is tried again: Too many open files",)


async def test_what_cannot_be_served_ends_it_before_anything_works(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with made(tmp_path, **ALONE, address=address) as extender:
            with pytest.raises(OperatorSettingsError, match=address):
                await extender.run()
            states = {inspect.getcoroutinestate(work) for work in extender._work.values()}
            assert states == {inspect.CORO_CLOSED}

"""An extender with its settings: what reaches its parts, what its metrics show, and what ends it."""

import inspect
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from nodedevice_operator.errors import OperatorSettingsError
from nodedevice_operator.extender import settings
from nodedevice_operator.extender.pods_api import PodsApi
from nodedevice_operator.extender.process import Extender
from nodedevice_operator.extender.stores import KINDS
from nodedevice_operator.extender.verbs import Verbs
from nodedevice_operator.informers.staleness import Watchdog
from nodedevice_operator.leases.elector import Election

from tests.fakes.parts import one_of
from tests.unit.operator.kube.api_server import kubeconfig

ALONE = {"leader_elect": False}


@contextmanager
def made(folder: Path, **given: Any) -> Iterator[Extender]:
    """An extender that has not begun to work, with these settings."""
    file = kubeconfig(folder, "http://127.0.0.1:1")
    extender = Extender(settings.load(None, {"kubeconfig": file, "http_address": "127.0.0.1:0", **given}))
    yield extender
    for work in extender._work.values():
        work.close()


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


async def test_what_cannot_be_served_ends_it_before_anything_works(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with made(tmp_path, **ALONE, address=address) as extender:
            with pytest.raises(OperatorSettingsError, match=address):
                await extender.run()
            states = {inspect.getcoroutinestate(work) for work in extender._work.values()}
            assert states == {inspect.CORO_CLOSED}

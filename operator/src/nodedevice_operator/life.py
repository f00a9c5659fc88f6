"""What operator and extender share: their clients, write fence, election, probes and metrics, and how a process ends."""

import asyncio
import logging
import signal
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import Any, Final

from nodedevice_api import names
from nodedevice_common.http_server import Protection, protection
from nodedevice_common.tasks import ended, log_failed_callbacks
from nodedevice_common.tasks import vital as run_vital

from nodedevice_operator.errors import OperatorError, OperatorSettingsError, TaskEnded
from nodedevice_operator.kube import credentials
from nodedevice_operator.kube.client import Client
from nodedevice_operator.kube.health import ApiHealth, Health
from nodedevice_operator.kube.reviews import Reviews
from nodedevice_operator.kube.write_fence import WriteFence
from nodedevice_operator.leases.elector import LEASE_REQUESTS, Election, LeaderLeases, identity
from nodedevice_operator.leases.leader_election import Timing
from nodedevice_operator.observability.metrics import ProgramMetrics
from nodedevice_operator.settings import ProgramSettings

log = logging.getLogger(__name__)

# Runs a task that the process cannot do without; all others run under `retried`.
vital = partial(run_vital, known=OperatorError, ends=TaskEnded)

_BEAT_SECONDS: Final = 1.0
# Longer than nearly every write or bind takes; the next leader need not wait for longer ones.
_SETTLE_SECONDS: Final = 0.3


class Process:
    """chain: files of certificate and key for the address of probes and metrics. role: of the chart."""

    _election: Election | None = None

    def __init__(
        self,
        settings: ProgramSettings,
        chain: tuple[str, str],
        metrics: ProgramMetrics,
        waits_for: Callable[[], tuple[str, ...]],
        role: str,
    ) -> None:
        """Raises CredentialsError without credentials."""
        self._settings, self._chain, self._metrics = settings, chain, metrics
        self._login = credentials.load(settings.kubeconfig)
        self._api_health = ApiHealth(self._login.server, role=role)
        self._health = Health(self._api_health, waits_for)
        self._fence = WriteFence()
        self._clients: list[Client] = []
        self._client = self._connect(fence=self._fence)
        self._stop = asyncio.Event()

    async def run(self) -> None:
        """Works until SIGTERM or SIGINT. Raises OperatorSettingsError, StaleWatch, and TaskEnded for what can only be a bug."""
        log_failed_callbacks()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self._stop.set)
        try:
            await self._start()
            await self._run(self._tasks())
        finally:
            await self._close()
        log.info("stopped")

    async def _start(self) -> None:
        host, port = self._health.serve(self._settings.http_endpoint, self._metrics.registry, self._protection())
        log.info("serving", extra={"address": f"{host}:{port}", "server": self._api_health.server})

    def _tasks(self) -> dict[str, Coroutine[Any, Any, None]]:
        """The tasks by name; the end of any one ends the process."""
        raise NotImplementedError

    def _connect(self, **options: Any) -> Client:
        client = Client(self._login, self._api_health, self._metrics.writes, **options)
        self._clients.append(client)
        return client

    def _candidacy(
        self, lease: str, timing: Timing, on_lead: Callable[[bool, float], None], *, is_candidate: bool = True
    ) -> Election | None:
        """The election by that Lease, with connections of its own: other requests must not delay it. None if it is off."""
        if not self._settings.leader_elect:
            self._fence.open_for_good()
            return None
        namespace = self._settings.namespace or self._login.settings.namespace or names.SYSTEM_NAMESPACE
        leases = LeaderLeases(self._connect(concurrent=LEASE_REQUESTS), namespace, lease, self._settings.instance)
        return Election(leases, self._fence, timing, identity(), on_lead, is_candidate=is_candidate)

    def _protection(self) -> Protection:
        reviews = Reviews(self._connect(concurrent=2))
        try:
            return protection(self._settings.metrics_authentication, *self._chain, reviews.create)
        except ValueError as exc:
            raise OperatorSettingsError("metricsAuthentication", str(exc)) from exc

    async def _run(self, work: Mapping[str, Coroutine[Any, Any, None]]) -> None:
        """Runs the tasks until a signal or the end of one; then releases the lead, and cancels them."""
        tasks = [asyncio.create_task(coroutine, name=name) for name, coroutine in work.items()]
        for task in tasks:
            task.add_done_callback(lambda _: self._stop.set())
        done: list[asyncio.Task[None]] = []
        try:
            await self._stop.wait()
            done = [task for task in tasks if task.done()]
        finally:
            await self._release()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        for task in done:
            task.result()
            raise TaskEnded(ended(task.get_name(), "it returned"))

    async def _release(self) -> None:
        if self._election is not None:
            await self._election.end(self._settle)

    async def _settle(self) -> bool:
        return await self._client.settle(_SETTLE_SECONDS)

    async def _close(self) -> None:
        for client in self._clients:
            await client.close()

    async def _beat(self) -> None:
        while True:
            self._health.heartbeat.beat()
            await asyncio.sleep(_BEAT_SECONDS)

"""kopf, as a watch of Nodes and nothing else: its events go into the cache as slim records, and dirty nodes are touched.

The kinds that are many have a watch of our own, in record_watch. Only on.event handlers, which write nothing: no finalizers,
annotations, indices, timers or daemons. kopf logs in with a session of ours, so that tokens are fresh, and so that we see each
list and watch it makes.
"""

import asyncio
import logging
from typing import Any, Final

import aiohttp
import kopf
import msgspec

from nodedevice_operator.errors import CredentialsError, Forbidden, Unauthorized, Unavailable, Unreachable
from nodedevice_operator.informers.intake import Intake
from nodedevice_operator.informers.kopf_settings import tuned
from nodedevice_operator.informers.pauses import Pauses
from nodedevice_operator.informers.relist import NODES, Sync
from nodedevice_operator.kube.credentials import Credentials
from nodedevice_operator.kube.decode import tell_not_understood
from nodedevice_operator.kube.health import ApiHealth
from nodedevice_operator.objects.meta import PartialObject
from nodedevice_operator.objects.node import Node
from nodedevice_operator.objects.shared import from_event

log = logging.getLogger(__name__)

# A list by kopf costs both sides more than one of ours: that after the first failure comes a little later.
_FIRST_PAUSE_SECONDS: Final = 0.25

# Our name among kopf's peers, of which there are none. Unnamed it would ask who its user is, and an image's number has no name.
_PEER: Final[Any] = "nodedevice-operator"


class Watch:
    """What kopf tells us, and when it began to."""

    def __init__(
        self,
        sync: Sync,
        intake: Intake,
        credentials: Credentials,
        health: ApiHealth,
    ) -> None:
        self._sync = sync
        self._intake = intake
        self._credentials = credentials
        self._health = health
        self._listed: set[str] = set()
        # a watch was opened, and has brought nothing yet
        self._is_in_vain = False
        # that watches fail, since one brought something
        self._is_told = False
        self._pauses = Pauses(_FIRST_PAUSE_SECONDS)

    async def work(self) -> None:
        """Watch until SIGTERM or SIGINT, which kopf takes for itself; whatever else ends it begins anew, and the cache stays."""
        while True:
            try:
                await self._run()
            except Exception as exc:
                # what goes on for long is told once: it would be a line a second
                level = logging.DEBUG if self._is_told else logging.WARNING
                self._is_told = True
                seconds = self._pauses.next_seconds()
                fields = {"problem": f"{type(exc).__name__}: {exc}", "seconds": round(seconds, 3)}
                log.log(level, "watch failed and begins anew", extra=fields)
                await asyncio.sleep(seconds)
            else:
                return

    async def _run(self) -> None:
        self._listed.clear()
        self._is_in_vain = False
        # no stop_flag: kopf would leave the task that waits for it, and then wait 5 s for that task
        await kopf.operator(
            registry=self._registry(), settings=tuned(), identity=_PEER, clusterwide=True, standalone=True
        )

    def _registry(self) -> kopf.OperatorRegistry:
        registry = kopf.OperatorRegistry()
        kopf.on.login(registry=registry)(self._login)
        kopf.on.event("", "v1", NODES, registry=registry)(self._on_node)
        return registry

    async def _login(self, **_: Any) -> kopf.AiohttpSession:
        connector = aiohttp.TCPConnector(limit=0, ssl=self._credentials.ssl_context())
        session = aiohttp.ClientSession(connector=connector, middlewares=(self._observe,))
        return kopf.AiohttpSession(server=self._credentials.server, aiohttp_session=session)

    async def _observe(
        self, request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
    ) -> aiohttp.ClientResponse:
        """Every request of kopf passes here: it gets a fresh token, and its outcome is noted."""
        kind = request.url.path.rpartition("/")[2]
        is_watch = "watch" in request.url.query
        verb = "watch" if is_watch else "list"
        if self._is_in_vain:
            # kopf itself lists anew after a 410, and watches anew after an end, with hardly a pause
            self._is_in_vain = False
            await self._pauses.pause()
        try:
            authorization = self._credentials.authorization()
            if authorization:
                request.headers["Authorization"] = authorization
            response = await handler(request)
        except CredentialsError as exc:
            self._health.failed(Unreachable(verb, kind, str(exc)))
            raise aiohttp.ClientConnectionError(str(exc)) from exc
        except (aiohttp.ClientConnectionError, TimeoutError) as exc:
            self._health.failed(Unreachable(verb, kind, str(exc) or type(exc).__name__))
            raise
        self._note(verb, kind, response.status)
        return response

    def _note(self, verb: str, kind: str, status: int) -> None:
        if status in (401, 403):
            refusal = Unauthorized if status == 401 else Forbidden
            self._health.failed(refusal(verb, kind, f"HTTP {status}", status))
        elif status == 429 or status >= 500:
            self._health.failed(Unavailable(verb, kind, f"HTTP {status}", status))
        elif status == 200:
            self._health.succeeded(verb, kind)
            self._is_in_vain = is_watch = verb == "watch"
            if kind == NODES and not is_watch:
                self._listed.add(kind)
            elif kind in self._listed:
                # a watch goes on from where it was cut off, and needs no list; only one that follows a list does
                self._listed.discard(kind)
                self._sync.begun(kind)

    async def _on_node(self, event: kopf.RawEvent, **_: Any) -> None:
        body = event["object"]
        if event["type"] is not None:
            # kopf gives the objects of a list no type: this came by the watch
            self._is_in_vain = self._is_told = False
            self._pauses.over()
        try:
            if event["type"] == "DELETED":
                metadata = from_event(body, PartialObject).metadata
                self._intake.end_of_node(metadata.name, metadata.uid)
            else:
                self._intake.node(from_event(body, Node))
        except msgspec.ValidationError as exc:
            self._tell(body.get("metadata"), exc)

    def _tell(self, metadata: Any, problem: msgspec.ValidationError) -> None:
        name = metadata.get("name") if isinstance(metadata, dict) else None
        if isinstance(name, str):
            self._intake.odd_node(name, problem)
        else:
            tell_not_understood("Node", name, problem)

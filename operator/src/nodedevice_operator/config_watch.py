"""kopf's part: it watches the NodeDeviceConfigs and tells the controller which ones there are, while the API server has the kind.

Where it has not (an upgrade that has not brought it yet), or lets us not read it, that is said once and asked again, and everything
else of the operator goes on. So it does where kopf gives up: it ends with HTTP 410 to a watch, an error within one, or a line that
is no JSON.
"""

import asyncio
import logging
import random
import signal
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn

import kopf
from nodedevice_api import names

from nodedevice_operator.configs.controller import ConfigController, ConfigsApi
from nodedevice_operator.errors import ApiError, Forbidden, NotFound, Unauthorized
from nodedevice_operator.kopf_storage import InMemoryDiffs, InMemoryProgress

log = logging.getLogger(__name__)

# a watch over which nothing comes is opened again, as load balancers forget connections
_WATCH_SECONDS: Final = 300
_AGAIN_SECONDS: Final = 5.0
_RELIST_SECONDS: Final = 1.5
# how long a watch goes well until the same failure is worth a line again
_LONG_SECONDS: Final = 60.0
_END_SECONDS: Final = 0.2
# Our name among kopf's peers, of which there are none. Unnamed it would ask for its user's name, and an image's number has none.
_PEER: Final[Any] = "nodedevice-operator"
_MISSING: Final = frozenset({403, 404})
_REMEDY: Final = {
    NotFound: "the kind NodeDeviceConfig is not there: install the CRDs of this release (helm upgrade, or as an administrator "
    "nodedevice-operator crds apply)",
    Forbidden: "NodeDeviceConfigs may not be read: install the roles of this release",
}


@dataclass(eq=False)
class ConfigWatch:
    """work() until cancelled.

    log_in: connections of ours for kopf. keep_signals: called when kopf has taken the process's signals, which are not its own.
    """

    api: ConfigsApi
    controller: ConfigController
    log_in: Callable[[], kopf.AiohttpSession]
    keep_signals: Callable[[], None]
    signals: Collection[signal.Signals]
    _diffs: InMemoryDiffs = field(default_factory=InMemoryDiffs, init=False)
    _problem: str = field(default="", init=False)
    _failure: str = field(default="", init=False)

    async def work(self) -> NoReturn:
        while True:
            if await self._is_there():
                began = time.monotonic()
                failure = await self._watch()
                if time.monotonic() - began > _LONG_SECONDS:
                    self._failure = ""
                # what went with its kind, or meanwhile, is gone; the rest is listed again
                self.controller.all_gone()
                if failure is not None:
                    self._report(failure)
                    await asyncio.sleep(_RELIST_SECONDS)
                    continue
            await asyncio.sleep(_AGAIN_SECONDS)

    async def _is_there(self) -> bool:
        problem = ""
        try:
            await self.api.probe()
        except Unauthorized:
            # which all requests have in common, and ApiHealth logs
            return False
        except (NotFound, Forbidden) as error:
            problem = _REMEDY[NotFound if isinstance(error, NotFound) else Forbidden]
            if problem != self._problem:
                log.warning("configurations of nodes have no status", extra={"error": problem})
        except ApiError:
            # kopf itself waits for an API server that is away
            problem = self._problem
        if self._problem and not problem:
            log.info("configurations of nodes can be read")
        self._problem = problem
        return not problem

    def _report(self, failure: BaseException) -> None:
        text = " ".join(f"{type(failure).__name__}: {failure}".split())
        if text != self._failure:
            self._failure = text
            log.warning(
                "watch of configurations failed; relisting", extra={"error": text, "retry_in_seconds": _RELIST_SECONDS}
            )

    async def _watch(self) -> BaseException | None:
        """As long as there is the kind, and kopf goes on: what ended it, if not that the kind went."""
        stop = asyncio.Event()
        # kopf takes them for itself while it starts; one that comes before they are ours again waits, and no thread takes it
        signal.pthread_sigmask(signal.SIG_BLOCK, self.signals)
        task = asyncio.create_task(self._run_kopf(stop), name="kopf")
        try:
            await asyncio.wait([task])
        finally:
            self.keep_signals()
            if not task.done():
                stop.set()
                # kopf would wait for seconds for requests with which it is not done
                await asyncio.wait([task], timeout=_END_SECONDS)
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        failure = None if task.cancelled() else task.exception()
        return None if getattr(failure, "status", None) in _MISSING else failure

    async def _run_kopf(self, stop: asyncio.Event) -> None:
        """As kopf.operator, which in the end would wait for, and then cancel, every task of this process that is newer than it."""
        tasks = await kopf.spawn_tasks(
            registry=self._registry(),
            settings=kopf_settings(self._diffs),
            identity=_PEER,
            clusterwide=True,
            standalone=True,
            stop_flag=stop,
        )
        await kopf.run_tasks(tasks, ignored=_Everything())

    def _registry(self) -> kopf.OperatorRegistry:
        registry = kopf.OperatorRegistry()
        # neither is tried a second time
        kopf.on.startup(registry=registry, errors=kopf.ErrorsMode.PERMANENT)(self._started)
        kopf.on.login(registry=registry, errors=kopf.ErrorsMode.PERMANENT)(self._log_in)
        configs = (names.GROUP, names.VERSION, names.NODE_DEVICE_CONFIGS)
        for on in (kopf.on.create, kopf.on.update, kopf.on.resume):
            on(*configs, registry=registry, id="config")(self._seen)
        # not on.delete: without a finalizer, which would hold objects up when no operator runs, kopf calls it for none that is gone
        kopf.on.event(*configs, registry=registry, id="config-gone")(self._event)
        return registry

    async def _started(self, **_: Any) -> None:
        # kopf takes the signals when it has created its tasks, and this is one of them
        asyncio.get_running_loop().call_soon(self.keep_signals)

    async def _log_in(self, **_: Any) -> kopf.AiohttpSession:
        return self.log_in()

    async def _seen(self, body: kopf.Body, **_: Any) -> None:
        self.controller.seen(body)

    async def _event(self, event: kopf.RawEvent, body: kopf.Body, **_: Any) -> None:
        if event["type"] == "DELETED":
            self.controller.gone(str(body.metadata.name))
            self._diffs.forget(str(body.metadata.uid))


class _Everything(frozenset[Any]):
    """Of tasks: what kopf's own have started ends with them, and all others are ours."""

    def __contains__(self, task: object) -> bool:
        return True


class _Backoffs:
    """Seconds between kopf's attempts while the API server is unreachable: without end."""

    def __iter__(self) -> Iterator[float]:
        yield 0.2
        while True:
            yield random.uniform(0.7, 1.0)


def kopf_settings(diffs: InMemoryDiffs | None = None) -> kopf.OperatorSettings:
    """Settings of kopf that writes nothing. diffs: of the objects that it watches, if it does."""
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    settings.networking.error_backoffs = _Backoffs()
    # it asks once which kinds there are; watching for new ones would need rights that nothing else does
    settings.scanning.disabled = True
    settings.peering.standalone = True
    # what it remembers of objects stays in this process: nothing is written into them, by no replica
    settings.persistence.diffbase_storage = diffs or InMemoryDiffs()
    settings.persistence.progress_storage = InMemoryProgress()
    settings.watching.server_timeout = _WATCH_SECONDS
    settings.watching.client_timeout = _WATCH_SECONDS + 30
    return settings

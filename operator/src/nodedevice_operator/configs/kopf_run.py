"""Runs kopf, one at a time, and starts it again when it ends. Waits while the CRD is missing or may not be read.

kopf has a thread and an event loop of its own, as its documentation (Embedding) asks. In the main thread it would take the signals
of the process, and it cancels at its end all tasks of its loop. Nothing else of the operator depends on it.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, NoReturn

import kopf
from nodedevice_common import threads
from nodedevice_kube.api_errors import ApiError, Forbidden, NotFound, Unauthorized

from nodedevice_operator.configs import kopf_limits
from nodedevice_operator.configs.controller import ConfigController, ConfigsApi
from nodedevice_operator.configs.handlers import HANDLERS, Memo
from nodedevice_operator.kube.credentials import Credentials
from nodedevice_operator.kube.health import ApiHealth
from nodedevice_operator.kube.write_fence import WriteFence

log = logging.getLogger(__name__)

_AGAIN_SECONDS: Final = 5.0
_RELIST_SECONDS: Final = 1.5
# How long kopf runs well until the same failure is logged again.
_LONG_SECONDS: Final = 60.0
_END_SECONDS: Final = 1.0
# The identity for kopf's peering, which is off. kopf's default is the user name, which the user of an image lacks.
_PEER: Final[Any] = "nodedevice-operator"
_MISSING: Final = frozenset({403, 404})
_REMEDY: Final = {
    NotFound: "CRD NodeDeviceConfig is not installed. Run: helm upgrade, or as an administrator nodedevice-operator crds apply",
    Forbidden: "the roles of this release are missing. Run: helm upgrade",
}


@dataclass(eq=False)
class KopfRun:
    api: ConfigsApi
    controller: ConfigController
    login: Credentials
    health: ApiHealth
    fence: WriteFence
    again_seconds: float = _AGAIN_SECONDS
    relist_seconds: float = _RELIST_SECONDS
    _diffs: kopf_limits.InMemoryDiffs = field(default_factory=kopf_limits.InMemoryDiffs, init=False)
    _problem: str = field(default="", init=False)
    _failure: str = field(default="", init=False)
    # how to end kopf, by its thread; and whether it is to end, which the thread may see only when it begins
    _cancel: Callable[[], object] | None = field(default=None, init=False)
    _is_ending: bool = field(default=False, init=False)

    async def work(self) -> NoReturn:
        while True:
            if await self._can_be_read():
                began = time.monotonic()
                failure = await self._run()
                if time.monotonic() - began > _LONG_SECONDS:
                    self._failure = ""
                # objects that still exist are listed again
                self.controller.all_gone()
                if failure is not None and getattr(failure, "status", None) not in _MISSING:
                    self._report(failure)
                    await asyncio.sleep(self.relist_seconds)
                    continue
            await asyncio.sleep(self.again_seconds)

    async def _can_be_read(self) -> bool:
        problem = ""
        try:
            await self.api.probe()
        except Unauthorized:
            # ApiHealth logs it once for all requests
            return False
        except (NotFound, Forbidden) as error:
            problem = _REMEDY[NotFound if isinstance(error, NotFound) else Forbidden]
            if problem != self._problem:
                log.warning("NodeDeviceConfigs cannot be read; retrying", extra={"error": problem})
        except ApiError:
            # kopf itself waits for an API server that is unreachable
            problem = self._problem
        if self._problem and not problem:
            log.info("NodeDeviceConfigs can be read")
        self._problem = problem
        return not problem

    def _report(self, failure: BaseException) -> None:
        text = " ".join(f"{type(failure).__name__}: {failure}".split())
        if text != self._failure:
            self._failure = text
            log.warning(
                "watch of NodeDeviceConfigs failed; relisting",
                extra={"error": text, "retry_in_seconds": self.relist_seconds},
            )

    async def _run(self) -> BaseException | None:
        """Run kopf until it ends; returns its failure. Raises OSError if no thread can be started."""
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[BaseException | None] = loop.create_future()

        def run() -> None:
            failure: BaseException | None = None
            try:
                asyncio.run(self._operator(loop.call_soon_threadsafe))
            except BaseException as error:
                failure = error
            # the process may have ended before
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(ended.set_result, failure)

        self._is_ending = False
        threads.start(run, "kopf")
        try:
            await asyncio.wait([ended])
        finally:
            self._is_ending = True
            # its loop is closed when it has ended by itself
            with contextlib.suppress(RuntimeError):
                if self._cancel is not None:
                    self._cancel()
            await asyncio.wait([ended], timeout=_END_SECONDS)
        return ended.result()

    async def _operator(self, call: Callable[..., object]) -> None:
        own, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None
        # not by a stop flag: kopf would wait for 5 s for its own task that waits for the flag
        self._cancel = partial(own.call_soon_threadsafe, task.cancel)
        if self._is_ending:
            return
        # kopf leaves failures of its tasks to the event loop, besides the one that it ends with
        own.set_exception_handler(
            lambda _, context: log.debug(
                "task of kopf failed", extra={"error": context["message"], "exception": repr(context.get("exception"))}
            )
        )
        async with kopf_limits.open_session(self.login, self.health, self.fence) as session:
            await kopf.operator(
                registry=HANDLERS,
                memo=Memo(self.controller, call, self.login, session, self.fence, self._diffs),
                settings=kopf_limits.settings(self._diffs),
                # one by one, the second handler would wait for the next change of the object
                lifecycle=kopf.lifecycles.all_at_once,
                identity=_PEER,
                clusterwide=True,
                standalone=True,
            )

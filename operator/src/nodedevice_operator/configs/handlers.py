"""Handlers that kopf runs: changes go to the controller, which writes the status; a result is posted as an Event."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import aiohttp
import kopf
from nodedevice_api import names

from nodedevice_operator.configs.controller import ConfigController
from nodedevice_operator.configs.kopf_limits import InMemoryDiffs
from nodedevice_operator.configs.status import results
from nodedevice_operator.errors import CredentialsError
from nodedevice_operator.kube.credentials import Credentials
from nodedevice_operator.kube.write_fence import WriteFence

HANDLERS: Final = kopf.OperatorRegistry()

_CONFIGS: Final = (names.GROUP, names.VERSION, names.NODE_DEVICE_CONFIGS)
_LOGIN_RETRY_SECONDS: Final = 5.0


@dataclass(frozen=True)
class Memo:
    """What kopf passes to each handler as `memo`. call: runs a function in the event loop of the controller."""

    controller: ConfigController
    call: Callable[..., object]
    login: Credentials
    session: aiohttp.ClientSession
    fence: WriteFence
    diffs: InMemoryDiffs


@kopf.on.login(registry=HANDLERS)
async def log_in(memo: Memo, **_: Any) -> kopf.AiohttpSession:
    try:
        await memo.login.access()
    except CredentialsError as error:
        raise kopf.TemporaryError(str(error), delay=_LOGIN_RETRY_SECONDS) from error
    return kopf.AiohttpSession(server=memo.login.server, aiohttp_session=memo.session, default_namespace="default")


@kopf.on.create(*_CONFIGS, registry=HANDLERS)
@kopf.on.update(*_CONFIGS, registry=HANDLERS)
@kopf.on.resume(*_CONFIGS, registry=HANDLERS)
async def changed(name: str, uid: str, meta: kopf.Meta, status: kopf.Status, memo: Memo, **_: Any) -> None:
    generation = meta.get("generation")
    if not (name and uid and isinstance(generation, int)):
        raise kopf.PermanentError("the object has no name, UID or generation, which every API server gives it")
    memo.call(memo.controller.seen, name, uid, generation, dict(status))


@kopf.on.update(*_CONFIGS, field="status.conditions", registry=HANDLERS)
async def result_changed(body: kopf.Body, old: Any, new: Any, memo: Memo, **_: Any) -> None:
    """Post an Event for each condition with another reason. A standby posts none: the leader posts the same."""
    if memo.fence.is_open:
        for event_type, reason, message in results(old or (), new or ()):
            kopf.event(body, type=event_type, reason=reason, message=message)


@kopf.on.event(*_CONFIGS, registry=HANDLERS)
async def deleted(type: str | None, name: str, uid: str, memo: Memo, **_: Any) -> None:
    """Instead of kopf.on.delete, which needs a finalizer: objects could not be deleted while no operator runs."""
    if type == "DELETED":
        memo.call(memo.controller.gone, name, uid)
        memo.diffs.forget(uid)

"""kopf's settings for a watch that writes nothing and keeps nothing."""

import random
from collections.abc import Iterable, Iterator
from typing import Any, Final

import kopf

# Workers hold their place until they idled so long: places per idle time is how many objects a second get through.
_WORKERS: Final = 200
_IDLE_SECONDS: Final = 0.01
# kopf holds a page as Python objects, some 24 kB a Node
_PAGE: Final = 100


class _Backoffs:
    """Seconds between tries of a list or watch while the API server is away: without end, and never long.

    kopf's own grow to 21 seconds, for which a Node that is zeroed after an outage would stay so.
    """

    def __iter__(self) -> Iterator[float]:
        yield 0.2
        while True:
            yield random.uniform(0.7, 1.0)


class _NoDiffBase(kopf.DiffBaseStorage):
    """Remembers no last state: on.event handlers ask for none, and building it copies every object of every event."""

    def build(self, *, body: kopf.Body, extra_fields: Iterable[Any] | None = None) -> kopf.BodyEssence:
        return kopf.BodyEssence()

    def fetch(self, *, body: kopf.Body) -> kopf.BodyEssence | None:
        return None

    def store(self, *, body: kopf.Body, patch: kopf.Patch, essence: kopf.BodyEssence) -> None:
        pass


class _NoProgress(kopf.ProgressStorage):
    """Remembers no progress: on.event handlers make none."""

    def fetch(self, *, key: Any, body: kopf.Body) -> None:
        return None

    def store(self, *, key: Any, record: Any, body: kopf.Body, patch: kopf.Patch) -> None:
        pass

    def purge(self, *, key: Any, body: kopf.Body, patch: kopf.Patch) -> None:
        pass

    def touch(self, *, body: kopf.Body, patch: kopf.Patch, value: str | None) -> None:
        pass

    def clear(self, *, essence: kopf.BodyEssence) -> kopf.BodyEssence:
        return essence


def tuned() -> kopf.OperatorSettings:
    """Settings of kopf that suit thousands of Nodes in little memory."""
    settings = kopf.OperatorSettings()
    settings.persistence.diffbase_storage = _NoDiffBase()
    settings.persistence.progress_storage = _NoProgress()
    settings.posting.enabled = False
    settings.queueing.worker_limit = _WORKERS
    settings.queueing.idle_timeout = _IDLE_SECONDS
    settings.queueing.exit_timeout = 0.5
    settings.networking.error_backoffs = _Backoffs()
    settings.watching.chunk_size = _PAGE
    # our own start waits until the kinds are served; watching for new ones would need rights that nothing else does
    settings.scanning.disabled = True
    settings.peering.standalone = True
    return settings

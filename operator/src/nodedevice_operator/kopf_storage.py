"""What kopf remembers of objects between two events, in memory: nothing of it is written into them, by no replica.

After a start each object is new to kopf, and its handlers are called: they take that for what it is, an object that is there.
"""

import copy
from typing import Any

import kopf


class InMemoryDiffs(kopf.DiffBaseStorage):
    """By UID: the object as its handlers saw it last."""

    def __init__(self) -> None:
        super().__init__()
        self._seen: dict[str, kopf.BodyEssence] = {}

    def fetch(self, *, body: kopf.Body) -> kopf.BodyEssence | None:
        return self._seen.get(_uid(body))

    def store(self, *, body: kopf.Body, patch: kopf.Patch, essence: kopf.BodyEssence) -> None:
        self._seen[_uid(body)] = copy.deepcopy(essence)

    def forget(self, uid: str) -> None:
        """The object is gone."""
        self._seen.pop(uid, None)


class InMemoryProgress(kopf.ProgressStorage):
    """By UID and handler: how far it is. Handlers here end at once, so this holds nothing for longer than a call."""

    def __init__(self) -> None:
        super().__init__()
        self._records: dict[tuple[str, str], Any] = {}

    def fetch(self, *, key: Any, body: kopf.Body) -> Any:
        return self._records.get((_uid(body), str(key)))

    def store(self, *, key: Any, record: Any, body: kopf.Body, patch: kopf.Patch) -> None:
        self._records[_uid(body), str(key)] = record

    def purge(self, *, key: Any, body: kopf.Body, patch: kopf.Patch) -> None:
        self._records.pop((_uid(body), str(key)), None)

    def touch(self, *, body: kopf.Body, patch: kopf.Patch, value: str | None) -> None:
        """Nothing to touch: no handler asks to be called again."""

    def clear(self, *, essence: kopf.BodyEssence) -> kopf.BodyEssence:
        return copy.deepcopy(essence)


def _uid(body: kopf.Body) -> str:
    return str(body.metadata.get("uid", ""))

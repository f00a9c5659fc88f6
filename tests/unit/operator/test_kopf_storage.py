"""What kopf remembers stays in this process: no patch of an object comes of it."""

from typing import Any, cast

import kopf
import pytest
from nodedevice_operator.kopf_storage import InMemoryDiffs, InMemoryProgress


def body(uid: str = "1") -> kopf.Body:
    return kopf.Body({"metadata": {"name": "a", "uid": uid}, "spec": {"priority": 1}})


def essence(priority: int) -> kopf.BodyEssence:
    return cast("kopf.BodyEssence", {"spec": {"priority": priority}})


@pytest.fixture
def patch() -> kopf.Patch:
    return kopf.Patch()


def test_an_object_is_remembered_until_it_is_gone(patch: kopf.Patch) -> None:
    diffs = InMemoryDiffs()
    assert diffs.fetch(body=body()) is None
    diffs.store(body=body(), patch=patch, essence=essence(1))
    assert diffs.fetch(body=body()) == essence(1)
    assert diffs.fetch(body=body("of its name, made again")) is None
    diffs.forget("1")
    diffs.forget("1")
    assert diffs.fetch(body=body()) is None
    assert not patch


def test_what_is_remembered_is_not_what_others_go_on_with(patch: kopf.Patch) -> None:
    diffs, theirs = InMemoryDiffs(), cast("dict[str, Any]", essence(1))
    diffs.store(body=body(), patch=patch, essence=cast("kopf.BodyEssence", theirs))
    theirs["spec"]["priority"] = 2
    assert diffs.fetch(body=body()) == essence(1)


def test_progress_is_of_one_object_and_handler_and_is_purged(patch: kopf.Patch) -> None:
    progress, record = InMemoryProgress(), {"retries": 1}
    progress.store(key="config", record=record, body=body(), patch=patch)
    assert progress.fetch(key="config", body=body()) == record
    assert progress.fetch(key="config", body=body("2")) is None
    assert progress.fetch(key="other", body=body()) is None
    progress.touch(body=body(), patch=patch, value="now")
    for _ in range(2):
        progress.purge(key="config", body=body(), patch=patch)
    assert progress.fetch(key="config", body=body()) is None
    assert not patch

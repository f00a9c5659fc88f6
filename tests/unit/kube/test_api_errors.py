"""What the API server answers instead of an object: which error each answer becomes, and what is known from it."""

import json
from typing import Any

import pytest
from nodedevice_kube.api_errors import (
    LONGEST_RETRY_AFTER_SECONDS,
    ApiError,
    Conflict,
    Denied,
    FieldConflict,
    Forbidden,
    Gone,
    Invalid,
    NotFound,
    NotLeading,
    OverBudget,
    Unauthorized,
    Unavailable,
    Unreachable,
    WatchInterrupted,
    refusal,
)

UNUSABLE = [b"", b"<html>", b'{"message":"\xff"}', b"[]", b'{"message":7,"details":[1]}', b'{"details":{"causes":[1]}}']


def status(message: str = "so it is", **details: Any) -> bytes:
    return json.dumps({"kind": "Status", "message": message, "details": details or None}).encode()


def causes(*reasons: str) -> bytes:
    return status(causes=[{"reason": reason} for reason in reasons])


@pytest.mark.parametrize(
    ("code", "kind", "concerns_all", "is_temporary"),
    [
        (400, Invalid, False, False),
        (401, Unauthorized, True, False),
        (403, Forbidden, False, False),
        (404, NotFound, False, False),
        (409, Conflict, False, False),
        (410, Gone, False, False),
        (413, Invalid, False, False),
        (422, Invalid, False, False),
        (429, Unavailable, True, True),
        (500, Unavailable, False, True),
        (503, Unavailable, True, True),
    ],
)
def test_each_status_has_its_error(code: int, kind: type[ApiError], concerns_all: bool, is_temporary: bool) -> None:
    for body in [status(), *UNUSABLE]:
        error = refusal("GET", "nodes", code, body)
        assert (type(error), error.status, error.verb, error.what) == (kind, code, "GET", "nodes")
        assert (error.concerns_all_requests, error.is_temporary) == (concerns_all, is_temporary)
    assert str(refusal("GET", "nodes", code, status())) == "GET nodes: so it is"
    assert str(refusal("GET", "nodes", code, b"")) == f"GET nodes: HTTP {code}"


@pytest.mark.parametrize(
    ("verb", "code", "body", "kind"),
    [
        pytest.param("POST", 429, causes("DisruptionBudget"), OverBudget, id="a disruption budget"),
        pytest.param("POST", 403, causes("NamespaceTerminating"), NotFound, id="a namespace that is going away"),
        pytest.param("PATCH", 403, causes("ValidatingAdmissionPolicy"), Denied, id="an admission policy"),
        pytest.param("PATCH", 403, status("no"), Denied, id="a webhook"),
        pytest.param("PATCH", 403, status("no", kind="nodes"), Forbidden, id="a missing role"),
        pytest.param("GET", 403, status("no"), Forbidden, id="no webhook sees a read"),
        pytest.param("PATCH", 500, status("failed to create typed patch object: x"), Invalid, id="an unknown field"),
        pytest.param("PATCH", 500, status("etcdserver: request is too large"), Invalid, id="too big an object"),
    ],
)
def test_what_the_status_alone_does_not_say(verb: str, code: int, body: bytes, kind: type[ApiError]) -> None:
    assert type(refusal(verb, "x", code, body)) is kind


def test_the_owners_of_fields() -> None:
    found = [
        {"reason": "FieldManagerConflict", "message": 'conflict with "kubelet" using v1', "field": ".status.x"},
        {"reason": "FieldManagerConflict", "message": "conflict with another", "field": ".status.y"},
        {"reason": "Other", "message": 'conflict with "kubelet" using v1', "field": ".status.z"},
    ]
    error = refusal("PATCH", "nodes/status", 409, status(causes=found))
    assert error.causes == (FieldConflict("kubelet", ".status.x"), FieldConflict("", ".status.y"))


@pytest.mark.parametrize(
    ("header", "stated", "seconds"),
    [
        (None, None, 0),
        ("1", None, 1),
        ("1", 3, 3),
        ("Sat, 21 Nov 2026 12:00:00 GMT", None, 0),
        ("-1", None, 0),
        ("9" * 400, None, LONGEST_RETRY_AFTER_SECONDS),
        (None, 86400, LONGEST_RETRY_AFTER_SECONDS),
        (None, "soon", 0),
        (None, -5, 0),
    ],
)
def test_when_to_come_back(header: str | None, stated: Any, seconds: float) -> None:
    error = refusal("GET", "nodes", 429, status(retryAfterSeconds=stated), header)
    assert error.retry_after_seconds == seconds


def test_no_secret_is_in_an_error() -> None:
    error = refusal("GET", "nodes", 401, status("Authorization: Bearer abcdefghijklmnop is rejected"))
    assert "abcdefghijklmnop" not in f"{error} {error.problem}"


def test_without_a_response() -> None:
    away, cut, standby = (kind("GET", "nodes", "x") for kind in (Unreachable, WatchInterrupted, NotLeading))
    assert [error.concerns_all_requests for error in (away, cut, standby)] == [True, False, True]
    assert [error.is_temporary for error in (away, cut, standby)] == [True, True, False]
    assert away.status == 0

"""What becomes of each answer of an API server, and of none: without a connection."""

import json
import socket
import ssl
import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from http.client import BadStatusLine
from typing import Any, Final

import pytest
from kubectl_nodedevice.api import Api, as_it_is
from kubectl_nodedevice.errors import LoginProblem
from kubectl_nodedevice.output import Failure
from kubectl_nodedevice.pages import LARGE_BYTES, MOST_LARGE_BYTES, MOST_OBJECT_BYTES, Bounds, Page
from kubectl_nodedevice.transport import TooLong
from nodedevice_kube.api_errors import (
    ApiError,
    Conflict,
    Forbidden,
    Gone,
    Invalid,
    InvalidResponse,
    NoAnswer,
    NotFound,
    TooBig,
    Unavailable,
    Unreachable,
)
from nodedevice_kube.credentials import Credentials
from nodedevice_kube.settings import Settings

Sent = tuple[str, str, dict[str, str], Any]
_SERVER: Final = Credentials(Settings("https://api", "kubeconfig"), environment={})
_OK: Final[tuple[int, Mapping[str, str], bytes]] = (200, {}, b"{}")


class Connection:
    """answers: one for each request; the last one for all others, too. logins: how often one can log in again."""

    def __init__(self, *answers: tuple[int, Mapping[str, str], bytes] | Exception, logins: int = 0) -> None:
        self.answers = [*answers]
        self.logins = logins
        self.sent: list[Sent] = []
        self.proxy: Any = None

    def request(
        self,
        method: str,
        target: str,
        headers: list[tuple[str, str]],
        data: bytes | None,
        most_bytes: int,
        take: Callable[[bytes], object] | None,
    ) -> Any:
        self.sent.append((method, target, dict(headers), None if data is None else json.loads(data)))
        found = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(found, Endless):
            assert take is not None
            take(found.text)
            raise TooLong("an answer of more than 8 MiB")
        if isinstance(found, Exception):
            raise found
        if take and found[0] == 200:
            take(found[2])
        return found

    def log_in_again(self) -> bool:
        self.logins -= 1
        return self.logins >= 0

    def close(self) -> None:
        """Nothing is open."""


Asked = Callable[..., tuple[Api, Connection]]


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    found: list[float] = []
    monkeypatch.setattr("kubectl_nodedevice.api.time.sleep", found.append)
    return found


@pytest.fixture
def asked() -> Asked:
    def made(*answers: Any, logins: int = 0, **more: Any) -> tuple[Api, Connection]:
        api, connection = Api(_SERVER, **more), Connection(*answers, logins=logins)
        api._connection = connection  # type: ignore[assignment]
        return api, connection

    return made


def status(code: int, **fields: Any) -> tuple[int, Mapping[str, str], bytes]:
    return code, {}, json.dumps({"kind": "Status", **fields}).encode()


def refused(api: Api, what: str = "pods") -> Any:
    with pytest.raises((ApiError, LoginProblem)) as found:
        api.get(what, "/api/v1/pods")
    return found.value


# -- what is sent -----------------------------------------------------------------------------------------------------


MIB: Final = 1 << 20


def listed(*objects: Any, token: str = "") -> tuple[int, Mapping[str, str], bytes]:
    return status(200, metadata={"continue": token}, items=objects)


def test_the_next_page_has_as_many_objects_as_fit_it(asked: Asked) -> None:
    large = listed({"a": "x" * MIB}, {"a": "x" * MIB}, token="t")
    small = listed({"a": "x" * 10_000}, {"a": "x" * 10_000}, token="u")
    api, connection = asked(large, small, listed({}, token="v"), listed())
    assert len(list(api.objects("pods", "/p"))) == 5
    limits = [each[1].removeprefix("/p?limit=") for each in connection.sent]
    # there may be more large ones: no page has more than twice as many as the one before
    assert limits == ["500", "3&continue=t", "6&continue=u", "12&continue=v"]


class Endless:
    """A body of that much text after which the transport gives up."""

    def __init__(self, *objects: Any) -> None:
        self.text = json.dumps({"items": objects}).encode()[:-1]


def test_a_page_that_is_too_long_is_asked_for_again_with_fewer_objects(asked: Asked) -> None:
    """As many as were small enough before it was; of a page of one object there are no fewer."""
    halves = Endless(*({"a": "x" * (MIB // 2)} for _ in range(16)))
    api, connection = asked(halves, Endless(), listed({}, token="t"), listed({}))
    assert len(list(api.objects("pods", "/p"))) == 2
    limits = [each[1].removeprefix("/p?limit=") for each in connection.sent]
    assert limits[:3] == ["500", "7", "1"]


def named(name: str, text: str = "") -> str:
    metadata = f'"metadata":{{"name":"{name}","namespace":"ns","uid":"u","annotations":{{"a":"{text}"}}}}'
    return f'{{{metadata},"spec":{{}}}}'


@pytest.mark.parametrize(
    ("text", "number", "why"),
    [
        ("\\x", 1, "it is not JSON: Invalid \\escape in line 1"),
        ("x" * MOST_OBJECT_BYTES, 12, "it is longer than 16 MiB"),
    ],
)
def test_one_that_cannot_be_read_is_named_and_left_out(text: str, number: int, why: str, asked: Asked) -> None:
    """Ten are named, and the others are counted."""
    warned: list[str] = []
    bad = [named(f"bad-{at}", text) for at in range(number)]
    body = f'{{"items":[{",".join([named("a"), *bad, named("b")])}]}}'
    api, _ = asked((200, {}, body.encode()), warn=warned.append)
    found: list[Any] = list(api.objects("pods", "/p"))
    assert [each["metadata"]["name"] for each in found] == ["a", "b"]
    assert warned[0] == f"pods: not read: ns/bad-0: {why}"
    assert warned[10:] == (["pods: not read: 2 more"] if number > 10 else [])


def test_of_many_large_objects_only_the_first_are_whole(asked: Asked) -> None:
    """The others keep what is short: their names, and numbers."""
    warned: list[str] = []
    text = "x" * LARGE_BYTES
    devices = [{"id": text}]
    large = [
        {"metadata": {"name": f"n{at}", "annotations": {"a": text}}, "status": {"total": 3, "devices": devices}}
        for at in range(100)
    ]
    api, _ = asked(listed(*large, {"metadata": {"name": "small"}}), warn=warned.append)
    found: list[Any] = list(api.objects("pods", "/p"))
    whole = [each for each in found[:-1] if "annotations" in each["metadata"]]
    assert len(whole) == MOST_LARGE_BYTES // len(json.dumps(large[0]))
    assert found[-2] == {"metadata": {"name": "n99"}, "status": {"total": 3, "devicesOmitted": 3}}
    assert warned == [
        f"pods: {100 - len(whole)} large ones are shown without their lists; name one node, or one namespace, to see them whole"
    ]


def test_of_a_large_object_that_is_nearly_too_deep_what_is_short_is_kept() -> None:
    """It can just be decoded, at whatever depth of the stack."""
    for depth in range(sys.getrecursionlimit() - 200, sys.getrecursionlimit()):
        page = Page(as_it_is, Bounds(large_bytes=MOST_LARGE_BYTES))
        fields = b'"long":"%b","deep":%b%b' % (b"x" * LARGE_BYTES, b"[" * depth, b"]" * depth)
        page.take(b'{"items":[{"metadata":{"name":"a"},"spec":{%b}}]}' % fields)
        assert page.found[0]["metadata"] == {"name": "a"}


def test_one_object_that_is_too_long_is_a_sentence(asked: Asked) -> None:
    found = refused(asked(TooLong("an answer of more than 256 MiB"))[0])
    assert isinstance(found, TooBig)
    assert found.problem == "the API server https://api (kubeconfig) sent a response of more than 256 MiB"


# -- what is answered -------------------------------------------------------------------------------------------------

_AGAIN: Final = "correct what it names, or try again"


@pytest.mark.parametrize(
    ("answer", "kind", "problem", "remedy"),
    [
        (
            status(401),
            LoginProblem,
            "the API server https://api does not accept the login of kubeconfig",
            "log in again: the token or certificate is invalid, or has expired",
        ),
        (status(403, message="no"), Forbidden, "pods was refused: no", "an administrator can allow it"),
        (status(403), Forbidden, "pods was refused: Forbidden", "an administrator can allow it"),
        (status(404), NotFound, "pods does not exist", "correct the name, or the namespace"),
        (status(409, message="m"), Conflict, "pods was changed meanwhile: m", "try again"),
        (
            status(429),
            Unavailable,
            "the API server https://api has no room for pods: too many requests",
            "try again in a minute",
        ),
        (
            status(500, message="m"),
            Unavailable,
            "the API server https://api failed at pods with 500: m",
            "try again; its log has why",
        ),
        (
            (599, {}, b"<html>"),
            Unavailable,
            "the API server https://api failed at pods with 599: no reason",
            "try again; its log has why",
        ),
        (status(410, message="gone"), Gone, "the API server https://api refused pods with 410: gone", _AGAIN),
        (status(422), Invalid, "the API server https://api refused pods with 422: no reason", _AGAIN),
        (status(400, message="x" * 3000), Invalid, f"the API server https://api refused pods with 400: {'x' * 2000}", _AGAIN),
        *(
            (
                (code, {}, b""),
                Invalid,
                f"the API server https://api sends one elsewhere for pods ({code})",
                "a log-in page, or a proxy, may be in its place: correct server in the kubeconfig",
            )
            for code in (300, 399)
        ),
        ((199, {}, b""), Invalid, "the API server https://api refused pods with 199: no reason", _AGAIN),
        *(
            (
                (200, {}, content),
                InvalidResponse,
                f"the response of the API server https://api (kubeconfig) to pods does not come from an API server: {why}",
                "correct server in the kubeconfig; a proxy or a log-in page may respond in its place",
            )
            for content, why in ((b"[]", "it is not an object"), (b"null", "it is not an object"))
        ),
    ],
)  # fmt: skip
def test_each_refusal_is_a_sentence_with_its_remedy(
    answer: tuple[int, Mapping[str, str], bytes],
    kind: type[Failure],
    problem: str,
    remedy: str,
    asked: Asked,
    pauses: list[float],
) -> None:
    api, _ = asked(answer)
    found = refused(api)
    assert (type(found), found.problem, found.remedy) == (kind, problem, remedy)
    assert getattr(found, "status", 401) == (answer[0] if answer[0] != 200 else 0)


@pytest.mark.parametrize(
    ("what", "details", "problem"),
    [
        ("nodedevices", {}, "this cluster (kubeconfig) has no NodeDevices: their CRD is not installed"),
        ("poddevices of ns", {}, "this cluster (kubeconfig) has no PodDevices: their CRD is not installed"),
        ("nodedevices a", {"name": "a"}, "nodedevices a does not exist"),
        ("pods nodedevices", {}, "pods nodedevices does not exist"),
    ],
)
def test_a_kind_of_ours_that_is_missing(what: str, details: dict[str, str], problem: str, asked: Asked) -> None:
    api, _ = asked(status(404, details=details))
    found = refused(api, what)
    assert (type(found), found.problem, found.status) == (NotFound, problem, 404)
    is_missing = "CRD" in problem
    assert (
        found.remedy == "install nodedevice here, or name the cluster that has it by --context (docs/install.md)"
    ) is is_missing


@pytest.mark.parametrize(
    ("verb", "kind", "namespace", "problem", "remedy"),
    [
        ("list", "nodedevices", "", "you may not list nodedevices", "bind the ClusterRole nodedevice-fleet-view to you"),
        ("get", "poddevices", "ns", "you may not get poddevices of namespace ns", "bind the ClusterRole nodedevice-view to you"),
        ("patch", "nodedevices", "", "you may not patch nodedevices", "bind the ClusterRole nodedevice-cordon to you"),
        ("get", "nodedeviceconfigs", "", "you may not get nodedeviceconfigs", "bind the ClusterRole nodedevice-fleet-view to you"),
        ("list", "pods", "", "you may not list pods", "allow it"),
    ],
)  # fmt: skip
def test_a_right_that_is_missing(verb: str, kind: str, namespace: str, problem: str, remedy: str, asked: Asked) -> None:
    where = f' in the namespace "{namespace}"' if namespace else " at the cluster scope"
    message = f'x is forbidden: User "u" cannot {verb} resource "{kind}" in API group "g"{where}'
    found = refused(asked(status(403, message=message))[0])
    assert (type(found), found.problem, found.remedy) == (Forbidden, problem, f"an administrator can {remedy}")


# -- again ------------------------------------------------------------------------------------------------------------


def test_a_login_that_is_refused_is_renewed_once(asked: Asked) -> None:
    api, connection = asked(status(401), _OK, logins=9)
    assert api.get("pods", "/p") == {}
    connection.answers = [status(401)]
    assert isinstance(refused(api), LoginProblem)
    assert len(connection.sent) == 4


@pytest.mark.parametrize(
    ("given", "timeout", "pause"),
    [
        *(("3", 30.0, 3.0), ("", 30.0, 1.0), ("x", 30.0, 1.0), ("99999", 25.0, 25.0)),
        *(("60", None, 30.0), ("60", 90.0, 30.0)),
    ],
)  # fmt: skip
@pytest.mark.parametrize("code", [429, 503])
def test_a_server_without_room_is_asked_a_few_times(
    code: int, given: str, timeout: float | None, pause: float, asked: Asked, pauses: list[float]
) -> None:
    """A 503 only where it says when to come back."""
    api, connection = asked((code, {"retry-after": given}, b"{}"), timeout_seconds=timeout)
    assert refused(api).status == code
    tries = 1 if code == 503 and not given.isdecimal() else 6
    assert pauses == [pause] * (tries - 1)
    assert len(connection.sent) == api.requests == tries


@pytest.mark.parametrize(("code", "tries"), [(429, 6), (503, 1)])
def test_a_write_is_sent_again_only_where_nothing_was_done(
    code: int, tries: int, asked: Asked, pauses: list[float]
) -> None:
    api, connection = asked((code, {"retry-after": "1"}, b"{}"))
    with pytest.raises(Unavailable):
        api.patch("pods", "/p", [])
    assert (len(connection.sent), len(pauses)) == (tries, tries - 1)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Sat, 28 Nov 2026 10:00:00 GMT", datetime(2026, 11, 28, 10, tzinfo=UTC)),
        ("", None),
        ("yesterday", None),
        ("Sat, 99 Nov 2026 10:00:00 GMT", None),
    ],
)
def test_the_clock_of_the_server(text: str, expected: datetime | None, asked: Asked) -> None:
    api, _ = asked((200, {"date": text}, b"{}"), _OK)
    api.get("pods", "/p")
    assert api.server_time == expected
    # an answer without one
    api.get("pods", "/p")
    assert api.server_time == expected


_WHERE: Final = "the API server https://api (kubeconfig)"
_START: Final = "start the cluster, or name another one by --context"


def tls(**fields: str) -> ssl.SSLError:
    """As OpenSSL's errors are."""
    found = ssl.SSLError(1, "words of OpenSSL")
    for name, value in {"reason": "", **fields}.items():
        setattr(found, name, value)
    return found


@pytest.mark.parametrize(
    ("error", "problem", "remedy"),
    [
        (
            TimeoutError(),
            f"{_WHERE} did not respond within 90.5 s",
            "try again, or with a longer --request-timeout, such as 2m",
        ),
        *(
            (error, f"no TLS with {_WHERE}: {why}", "correct certificate-authority in the kubeconfig, or its server")
            for error, why in (
                (tls(verify_message="self-signed", reason="VERIFY_FAILED"), "self-signed"),
                (tls(reason="WRONG_VERSION_NUMBER"), "WRONG_VERSION_NUMBER"),
                (tls(), str(tls())),
            )
        ),
        (ConnectionRefusedError(111, "Connection refused"), f"{_WHERE} cannot be reached: Connection refused", _START),
        (socket.gaierror(-2, "Name not known"), f"{_WHERE} cannot be reached: Name not known", _START),
        (OSError("odd"), f"{_WHERE} cannot be reached: odd", _START),
        (OSError(), f"{_WHERE} cannot be reached: OSError", _START),
        (BadStatusLine("HI"), f"{_WHERE} cannot be reached: HI", _START),
        (ValueError("bad"), "https://api takes no such request: bad", "correct the kubeconfig"),
    ],
)
def test_without_an_answer(error: Exception, problem: str, remedy: str, asked: Asked) -> None:
    found = refused(asked(error, timeout_seconds=90.5)[0])
    kind = NoAnswer if isinstance(error, TimeoutError) else Unreachable
    assert (type(found), found.problem, found.remedy, found.status) == (kind, problem, remedy, 0)

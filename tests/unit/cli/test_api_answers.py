"""What becomes of each answer of an API server, and of none: without a connection."""

import json
import ssl
from collections.abc import Callable, Mapping
from typing import Any, Final

import pytest
from kubectl_nodedevice.api import Api
from kubectl_nodedevice.errors import LoginProblem
from kubectl_nodedevice.output import Failure
from kubectl_nodedevice.pages import LARGE_BYTES, MOST_LARGE_BYTES, MOST_OBJECT_BYTES
from kubectl_nodedevice.transport import TooLong
from nodedevice_kube.api_errors import (
    ApiError,
    Conflict,
    Forbidden,
    Invalid,
    InvalidResponse,
    NoAnswer,
    Unavailable,
    Unreachable,
)
from nodedevice_kube.credentials import Credentials
from nodedevice_kube.settings import Settings

Plain = tuple[int, Mapping[str, str], bytes]
_SERVER: Final = Credentials(Settings("https://api", "kubeconfig"), environment={})


class Connection:
    """answers: one for each request; the last one also for all later requests."""

    def __init__(self, *answers: "Plain | Exception | Endless") -> None:
        self.answers = [*answers]
        self.targets: list[str] = []
        self.proxy: Any = None

    def request(
        self, method: str, target: str, headers: Any, data: Any, most_bytes: int, take: Callable[[bytes], object] | None
    ) -> Any:
        self.targets.append(target)
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
        return False

    def close(self) -> None:
        """Nothing is open."""


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    found: list[float] = []
    monkeypatch.setattr("kubectl_nodedevice.api.time.sleep", found.append)
    return found


def asked(*answers: Any, **more: Any) -> tuple[Api, Connection]:
    api, connection = Api(_SERVER, **more), Connection(*answers)
    api._connection = connection  # type: ignore[assignment]
    return api, connection


def status(code: int, **fields: Any) -> Plain:
    return code, {}, json.dumps({"kind": "Status", **fields}).encode()


def refused(api: Api) -> Any:
    with pytest.raises((ApiError, LoginProblem)) as found:
        api.get("pods", "/api/v1/pods")
    return found.value


MIB: Final = 1 << 20


def listed(*objects: Any, token: str = "") -> Plain:
    return status(200, metadata={"continue": token}, items=objects)


def test_the_next_page_has_as_many_objects_as_fit_it() -> None:
    large = listed({"a": "x" * MIB}, {"a": "x" * MIB}, token="t")
    small = listed({"a": "x" * 10_000}, {"a": "x" * 10_000}, token="u")
    api, connection = asked(large, small, listed({}, token="v"), listed())
    assert len(list(api.objects("pods", "/p"))) == 5
    # there may be more large ones: no page has more than twice as many as the one before
    limits = ["500", "3&continue=t", "6&continue=u", "12&continue=v"]
    assert connection.targets == [f"/p?limit={each}" for each in limits]


class Endless:
    """A body of that much text after which the transport gives up."""

    def __init__(self, *objects: Any) -> None:
        self.text = json.dumps({"items": objects}).encode()[:-1]


def test_a_page_that_is_too_long_is_asked_for_again_with_fewer_objects() -> None:
    """As many as were small enough before it was; of a page of one object there are no fewer."""
    halves = Endless(*({"a": "x" * (MIB // 2)} for _ in range(16)))
    api, connection = asked(halves, Endless(), listed({}, token="t"), listed({}))
    assert len(list(api.objects("pods", "/p"))) == 2
    assert connection.targets[:3] == [f"/p?limit={limit}" for limit in (500, 7, 1)]


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
def test_one_that_cannot_be_read_is_named_and_left_out(text: str, number: int, why: str) -> None:
    """Ten are named, and the others are counted."""
    warned: list[str] = []
    bad = [named(f"bad-{at}", text) for at in range(number)]
    body = f'{{"items":[{",".join([named("a"), *bad, named("b")])}]}}'
    api, _ = asked((200, {}, body.encode()), warn=warned.append)
    found: list[Any] = list(api.objects("pods", "/p"))
    assert [each["metadata"]["name"] for each in found] == ["a", "b"]
    assert warned[0] == f"pods: not read: ns/bad-0: {why}"
    assert warned[10:] == (["pods: not read: 2 more"] if number > 10 else [])


def test_of_many_large_objects_only_the_first_are_whole() -> None:
    """The others keep what is short: their names, and numbers."""
    warned: list[str] = []
    text = "x" * LARGE_BYTES
    status = {"total": 3, "devices": [{"id": text}]}
    large = [{"metadata": {"name": f"n{at}", "annotations": {"a": text}}, "status": status} for at in range(100)]
    api, _ = asked(listed(*large, {"metadata": {"name": "small"}}), warn=warned.append)
    found: list[Any] = list(api.objects("pods", "/p"))
    whole = [each for each in found[:-1] if "annotations" in each["metadata"]]
    assert len(whole) == MOST_LARGE_BYTES // len(json.dumps(large[0]))
    assert found[-2] == {"metadata": {"name": "n99"}, "status": {"total": 3, "devicesOmitted": 3}}
    remedy = "name one node, or one namespace, to see them whole"
    assert warned == [f"pods: {100 - len(whole)} large ones are shown without their lists; {remedy}"]


_API: Final = "the API server https://api"
_AGAIN: Final = "correct what it names, or try again"
_LOGIN: Final = "log in again: the token or certificate is invalid, or has expired"
_PAGE: Final = "a log-in page, or a proxy, may be in its place: correct server in the kubeconfig"
_OTHER: Final = "correct server in the kubeconfig; a proxy or a log-in page may respond in its place"
_NO_OBJECT: Final = f"the response of {_API} (kubeconfig) to pods does not come from an API server: it is not an object"


@pytest.mark.parametrize(
    ("answer", "kind", "problem", "remedy"),
    [
        (status(401), LoginProblem, f"{_API} does not accept the login of kubeconfig", _LOGIN),
        (status(403, message="no"), Forbidden, "pods was refused: no", "an administrator can allow it"),
        (status(409, message="m"), Conflict, "pods was changed meanwhile: m", "try again"),
        (status(429), Unavailable, f"{_API} has no room for pods: too many requests", "try again in a minute"),
        (status(500, message="m"), Unavailable, f"{_API} failed at pods with 500: m", "try again; its log has why"),
        (status(400, message="x" * 3000), Invalid, f"{_API} refused pods with 400: {'x' * 2000}", _AGAIN),
        *(((code, {}, b""), Invalid, f"{_API} sends one elsewhere for pods ({code})", _PAGE) for code in (300, 399)),
        *(((200, {}, content), InvalidResponse, _NO_OBJECT, _OTHER) for content in (b"[]", b"null")),
    ],
)
def test_each_refusal_is_a_sentence_with_its_remedy(
    answer: Plain, kind: type[Failure], problem: str, remedy: str, pauses: list[float]
) -> None:
    found = refused(asked(answer)[0])
    assert (type(found), found.problem, found.remedy) == (kind, problem, remedy)
    assert getattr(found, "status", 401) == (answer[0] if answer[0] != 200 else 0)


@pytest.mark.parametrize(
    ("given", "timeout", "pause"),
    [
        *(("3", 30.0, 3.0), ("", 30.0, 1.0), ("x", 30.0, 1.0)),
        *(("99999", 25.0, 25.0), ("60", None, 30.0), ("60", 90.0, 30.0)),
    ],
)
@pytest.mark.parametrize("code", [429, 503])
def test_a_server_without_room_is_asked_a_few_times(
    code: int, given: str, timeout: float | None, pause: float, pauses: list[float]
) -> None:
    """A 503 only where it says when to come back."""
    api, connection = asked((code, {"retry-after": given}, b"{}"), timeout_seconds=timeout)
    assert refused(api).status == code
    tries = 1 if code == 503 and not given.isdecimal() else 6
    assert pauses == [pause] * (tries - 1)
    assert len(connection.targets) == api.requests == tries


@pytest.mark.parametrize(("code", "tries"), [(429, 6), (503, 1)])
def test_a_write_is_sent_again_only_where_nothing_was_done(code: int, tries: int, pauses: list[float]) -> None:
    api, connection = asked((code, {"retry-after": "1"}, b"{}"))
    with pytest.raises(Unavailable):
        api.patch("pods", "/p", [])
    assert (len(connection.targets), len(pauses)) == (tries, tries - 1)


_WHERE: Final = f"{_API} (kubeconfig)"
_START: Final = "start the cluster, or name another one by --context"


def tls(**fields: str) -> ssl.SSLError:
    """As OpenSSL's errors are."""
    found = ssl.SSLError(1, "words of OpenSSL")
    for name, value in {"reason": "", **fields}.items():
        setattr(found, name, value)
    return found


_LONGER: Final = "try again, or with a longer --request-timeout, such as 2m"
_AUTHORITY: Final = "correct certificate-authority in the kubeconfig, or its server"


@pytest.mark.parametrize(
    ("error", "problem", "remedy"),
    [
        (TimeoutError(), f"{_WHERE} did not respond within 90.5 s", _LONGER),
        (tls(verify_message="self-signed", reason="FAILED"), f"no TLS with {_WHERE}: self-signed", _AUTHORITY),
        (tls(reason="WRONG_VERSION_NUMBER"), f"no TLS with {_WHERE}: WRONG_VERSION_NUMBER", _AUTHORITY),
        (tls(), f"no TLS with {_WHERE}: {tls()}", _AUTHORITY),
        (ConnectionRefusedError(111, "Connection refused"), f"{_WHERE} cannot be reached: Connection refused", _START),
        (ValueError("bad"), "https://api takes no such request: bad", "correct the kubeconfig"),
    ],
)
def test_without_an_answer(error: Exception, problem: str, remedy: str) -> None:
    found = refused(asked(error, timeout_seconds=90.5)[0])
    kind = NoAnswer if isinstance(error, TimeoutError) else Unreachable
    assert (type(found), found.problem, found.remedy, found.status) == (kind, problem, remedy, 0)

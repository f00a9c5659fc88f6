"""Requests with credentials: what each response becomes, and what a 401 leads to."""

import asyncio
import itertools
from pathlib import Path
from typing import Any

import pytest
from nodedevice_common.api_exchange import Broken, Late, Request
from nodedevice_common.api_transport import Transport
from nodedevice_kube.api_errors import (
    ApiError,
    Denied,
    Forbidden,
    Invalid,
    NoAnswer,
    NotFound,
    Silent,
    TooBig,
    Unauthorized,
    Unavailable,
    Unreachable,
    WatchInterrupted,
)
from nodedevice_kube.credentials import Credentials
from nodedevice_kube.errors import CredentialProblem
from nodedevice_kube.settings import Settings

from tests.fakes.api_answers import Answer, Answers, json_answer
from tests.fakes.virtual_time import virtual_time

GET = Request("GET", "/api/v1/nodes/n")
PUT = Request("PUT", "/api/v1/nodes/n", body=b"{}")
NO_TOKEN = json_answer({"kind": "Status", "code": 401, "message": "no"}, 401)


def credentials(*tokens: str, **more: Any) -> Credentials:
    """tokens: the one of the start, and those that are found when it is read again; none left is a problem."""

    def settings(token: str) -> Settings:
        return Settings(server="http://api.example", origin="a test", token=token, **more)

    left = list(tokens[1:])

    def load() -> Settings:
        if not left:
            raise CredentialProblem("the token file cannot be read", "correct it")
        return settings(left.pop(0))

    made = Credentials(settings(tokens[0]), load=load, environment={})
    made.refresh()
    return made


def transport(*answers: Answer | Broken, login: Credentials | None = None) -> tuple[Transport, Answers]:
    sender = Answers(*answers)
    return Transport(login or credentials("t"), sender, seconds=10), sender


def tokens(sender: Answers) -> list[str]:
    return [dict(access.headers)["Authorization"].removeprefix("Bearer ") for _, access in sender.asked]


async def body(made: Transport) -> bytes:
    return await made.call("reading", "node n", GET)


async def test_a_body_comes_whole_or_in_pieces_and_its_connection_is_free_again() -> None:
    for is_whole in (True, False):
        answer = Answer(b"a", b"bc")
        made, _ = transport(answer)
        if is_whole:
            assert await body(made) == b"abc"
        else:
            async with await made.open("reading", "node n", GET) as stream:
                assert [octets async for octets in stream.chunks()] == [b"a", b"bc"]
        assert not answer.is_open


@pytest.mark.parametrize("length", [2, 3])
async def test_a_body_is_read_up_to_its_bound(length: int) -> None:
    answer = Answer(b"a", b"b", b"c"[: length - 2], b"d"[: length - 2])
    made, _ = transport(answer)
    reading = made.call("reading", "node n", GET, most_bytes=2)
    if length == 2:
        assert await reading == b"ab"
    else:
        with pytest.raises(TooBig, match=r"^reading node n: the response has more than 2 bytes$"):
            await reading
        assert list(answer.chunks) == [b"d"]
    assert not answer.is_open


@pytest.mark.parametrize(
    ("answer", "kind", "problem"),
    [
        pytest.param(json_answer({"message": "none"}, 404), NotFound, "none", id="a Status"),
        pytest.param(Answer(b"<html>", status=502), Unavailable, "HTTP 502", id="a proxy's page"),
        pytest.param(Answer(b"<", Broken("cut"), status=503), Unavailable, "HTTP 503", id="cut"),
        pytest.param(Answer(status=302, headers={"location": "/x"}), Invalid, "HTTP 302", id="a redirect"),
        pytest.param(Answer(b"a", Broken("cut")), Unreachable, "cut", id="cut in the middle"),
        pytest.param(Broken("Connection refused"), Unreachable, "Connection refused", id="no connection"),
        pytest.param(Late(10), NoAnswer, "no response within 10 s", id="no response in time"),
    ],
)
async def test_each_failure_names_its_request(answer: Answer | Broken, kind: type[ApiError], problem: str) -> None:
    made, _ = transport(answer)
    with pytest.raises(ApiError) as failed:
        await body(made)
    assert (type(failed.value), str(failed.value)) == (kind, f"reading node n: {problem}")
    assert isinstance(answer, Broken) or not answer.is_open


async def test_an_api_server_asks_to_wait_and_a_webhook_denies_a_write() -> None:
    made, _ = transport(Answer(status=429, headers={"retry-after": "7"}), json_answer({"message": "no gpus"}, 403))
    with pytest.raises(Unavailable) as busy:
        await body(made)
    assert busy.value.retry_after_seconds == 7
    with pytest.raises(Denied, match="no gpus"):
        await made.call("writing", "node n", PUT)


async def test_a_failure_on_the_way_names_the_proxy() -> None:
    login = credentials("t", proxy_url="http://me:secret-word@proxy.example:3128")
    made, _ = transport(Broken("cut"), login=login)
    with pytest.raises(Unreachable, match=r"^reading node n: cut, by the proxy http://proxy.example:3128$"):
        await body(made)


@virtual_time
@pytest.mark.parametrize("seconds", [None, 3])
async def test_silence_in_a_response(seconds: float | None) -> None:
    answer = Answer(b"a", None)
    made, _ = transport(answer)
    began = asyncio.get_running_loop().time()
    with pytest.raises(NoAnswer, match="no response within"):
        await made.call("reading", "node n", GET, seconds=seconds)
    assert asyncio.get_running_loop().time() - began == pytest.approx(seconds or 10)
    assert not answer.is_open


class Drops(Answer):
    """A byte each second, without end."""

    async def read(self, seconds: float | None) -> bytes:
        await asyncio.sleep(1)
        return b" "


@virtual_time
@pytest.mark.parametrize(
    ("status", "kind", "seconds"), [(200, NoAnswer, 100), (403, Forbidden, 10)], ids=["response", "refusal"]
)
async def test_a_response_that_comes_in_drops(status: int, kind: type[ApiError], seconds: float) -> None:
    """Such as that of a proxy under attack: a place in the queue of requests is not held for good."""
    answer = Drops(status=status)
    made, _ = transport(answer)
    began = asyncio.get_running_loop().time()
    with pytest.raises(kind):
        async with asyncio.timeout(1000):
            await body(made)
    assert asyncio.get_running_loop().time() - began == pytest.approx(seconds)
    assert not answer.is_open


@virtual_time
@pytest.mark.parametrize(
    ("chunks", "kind"),
    [([b"a", Broken("cut")], WatchInterrupted), ([b"a", None], Silent)],
    ids=["cut", "silent"],
)
async def test_a_watch_that_breaks(chunks: list[bytes | Exception | None], kind: type[ApiError]) -> None:
    made, _ = transport(Answer(*chunks))
    began = asyncio.get_running_loop().time()
    async with await made.open("watching", "nodes", GET, is_watch=True, seconds=90) as stream:
        with pytest.raises(kind):
            [octets async for octets in stream.chunks()]
    assert asyncio.get_running_loop().time() - began in (0, pytest.approx(90))


async def test_refused_credentials_are_read_again_and_the_request_is_sent_once_more() -> None:
    made, sender = transport(NO_TOKEN, Answer(b"ok"), login=credentials("old", "new"))
    assert await body(made) == b"ok"
    assert tokens(sender) == ["old", "new"]


@pytest.mark.parametrize(("found", "sent"), [("old", ["old"]), ("other", ["old", "other"])], ids=["the same", "others"])
async def test_credentials_that_are_refused_again_are_an_error(found: str, sent: list[str]) -> None:
    made, sender = transport(NO_TOKEN, login=credentials("old", found, found))
    with pytest.raises(Unauthorized):
        await body(made)
    assert tokens(sender) == sent


async def test_without_usable_credentials_there_is_no_request() -> None:
    made, sender = transport(NO_TOKEN, login=credentials("old"))
    for _ in range(2):
        with pytest.raises(Unreachable, match="the token file cannot be read; correct it"):
            await body(made)
    assert tokens(sender) == ["old"]


async def test_a_token_that_cannot_be_read_again_is_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file, hours = tmp_path / "token", itertools.count(0, 3600)
    file.write_text("one")
    settings = Settings(server="http://api.example", origin="a test", token_file=str(file))
    login = Credentials(settings, environment={}, monotonic=hours.__next__)
    login.refresh()
    made, sender = transport(Answer(b"ok"), login=login)
    file.unlink()
    for _ in range(2):
        await body(made)
    [logged] = caplog.records
    assert str(file) in vars(logged)["error"]
    file.write_text("two")
    await body(made)
    file.unlink()
    await body(made)
    assert (tokens(sender), len(caplog.records)) == (["one", "one", "two", "two"], 2)

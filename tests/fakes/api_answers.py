"""Responses of an API server that a test plays, in place of connections."""

import asyncio
import json
from collections import deque
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from nodedevice_common.api_exchange import Broken, Late, Request
from nodedevice_kube.credentials import Access


class Answer:
    """A response with these chunks: bytes, an error, or None for silence. is_open: until it is closed."""

    def __init__(
        self, *chunks: bytes | Exception | None, status: int = 200, headers: Mapping[str, str] | None = None
    ) -> None:
        self.status = status
        self.chunks = deque(chunks)
        self.is_open = True
        self._headers = headers or {}

    def header(self, name: str) -> str | None:
        return self._headers.get(name)

    async def read(self, seconds: float | None) -> bytes:
        chunk = self.chunks.popleft() if self.chunks else b""
        if isinstance(chunk, Exception):
            raise chunk
        if chunk is None:
            try:
                async with asyncio.timeout(seconds):
                    await asyncio.Event().wait()
            except TimeoutError as exc:
                assert seconds is not None
                raise Late(seconds) from exc
        return chunk or b""

    def close(self) -> None:
        self.is_open = False


def json_answer(body: Any, status: int = 200) -> Answer:
    return Answer(json.dumps(body).encode(), status=status)


def path_of(request: Request) -> str:
    return urlsplit(request.target).path


def query_of(request: Request) -> dict[str, str]:
    return dict(parse_qsl(urlsplit(request.target).query, keep_blank_values=True))


class Server:
    """Answers each request with what `answer` makes."""

    async def send(self, request: Request, access: Access, seconds: float) -> Answer:
        return self.answer(request)

    def answer(self, request: Request) -> Answer:
        """May raise Broken."""
        raise NotImplementedError

    async def close(self) -> None: ...


class Answers:
    """Answers requests one after the other with what `answers` has, the last one for good; an error is raised. asked: what came."""

    def __init__(self, *answers: Answer | Broken) -> None:
        self.answers = deque(answers)
        self.asked: list[tuple[Request, Access]] = []

    async def send(self, request: Request, access: Access, seconds: float) -> Answer:
        self.asked.append((request, access))
        answer = self.answers.popleft() if len(self.answers) > 1 else self.answers[0]
        if request.before_write is not None:
            request.before_write()
        if isinstance(answer, Broken):
            raise answer
        return answer

    async def close(self) -> None: ...

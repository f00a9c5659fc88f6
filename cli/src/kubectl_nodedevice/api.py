"""Sends requests to the Kubernetes API one after the other. Each failure is a sentence with its remedy (`api_error_messages`)."""

import contextlib
import http.client
import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any, Final, TypeVar

from nodedevice_kube.api_errors import ApiError, Forbidden, Gone, NotFound
from nodedevice_kube.credentials import Credentials
from nodedevice_kube.decoding import Undecodable, decode_json
from nodedevice_kube.fields import Json, list_of, map_of, text_of
from nodedevice_kube.paths import JSON, JSON_PATCH, Resource, base, target
from nodedevice_kube.retries import Retries

from kubectl_nodedevice import api_error_messages
from kubectl_nodedevice.errors import CliError
from kubectl_nodedevice.pages import MOST_OBJECT_BYTES, Bounds, Page, TablePage
from kubectl_nodedevice.records import record_of
from kubectl_nodedevice.summaries import Rows as Rows
from kubectl_nodedevice.transport import MOST_BYTES, USER_AGENT, Connection, Response, TooLong

T = TypeVar("T")
GROUP: Final = "nodedevice.io/v1alpha1"
CORE: Final = "v1"
APPS: Final = "apps/v1"
DRA: Final = "resource.k8s.io/v1"
NODE_DEVICES: Final = "nodedevices"
POD_DEVICES: Final = "poddevices"
CONFIGS: Final = "nodedeviceconfigs"
# For Kubernetes 1.10 and newer; an older API server returns objects without rows.
_TABLE: Final = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
PAGE: Final = 500
# Rows are short, so that most clusters need one page. The API server has the first one in memory. It reads and decodes the others
# from etcd if it has no snapshot of that version: 20 times the CPU, measured with 10,000 NodeDevices on 1.37.
_ROWS_PAGE: Final = 20_000
# The wanted size of a page with several objects. A page of more than twice this size is requested again with fewer objects.
_PAGE_BYTES: Final = 4 << 20
# The server says how long to wait; requests are retried no more often than this.
_MOST_RETRIES: Final = 5
_SHORTEST_PAUSE: Final = 1.0
_LONGEST_PAUSE: Final = 30.0
# unreadable objects of one list
_MOST_NAMED: Final = 10


def as_it_is(obj: Any) -> Any:
    return obj


@dataclass
class Api:
    """Sends requests, and retries them if the server has no room.

    requests: how many were sent. timeout_seconds: of one request; None for no limit. warn: takes a sentence about unread objects.
    server_time: the API server's clock at its last response.
    """

    credentials: Credentials
    timeout_seconds: float | None = 30.0
    warn: Callable[[str], object] = lambda _: None
    requests: int = 0
    server_time: datetime | None = None
    _connection: Connection = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._connection = Connection(self.credentials, self.timeout_seconds)

    def close(self) -> None:
        self._connection.close()

    def get(self, what: str, path: str, accept: str = JSON) -> Any:
        """Return one object. what: names the request for people, such as `nodes a`. Raises ApiError, LoginProblem."""
        return self._decoded("GET", what, self._request("GET", what, path, accept=accept))

    def post(self, what: str, path: str, body: Any) -> Any:
        """Raises ApiError, LoginProblem."""
        return self._decoded("POST", what, self._request("POST", what, path, body, JSON))

    def patch(self, what: str, path: str, body: Any, content_type: str = JSON_PATCH) -> Any:
        """Return the changed object. Raises ApiError, LoginProblem."""
        changed = target(path, {"fieldManager": "kubectl-nodedevice"})
        return self._decoded("PATCH", what, self._request("PATCH", what, changed, body, content_type))

    def objects(
        self, what: str, path: str, query: Mapping[str, str] | None = None, make: Callable[[Json], T] = as_it_is
    ) -> Iterator[T]:
        """Build a value from each object of a list, page by page. Raises ApiError, LoginProblem.

        An older CRD of ours cannot select by a field and returns all objects, so callers compare.
        """
        query = query or {}
        try:
            for page, _ in self._pages(what, path, query, JSON, partial(Page, make)):
                yield from page
        except ApiError as exc:
            if exc.status != 400 or "fieldSelector" not in query or not path.startswith(base(GROUP)):
                raise
            rest = {name: value for name, value in query.items() if name != "fieldSelector"}
            yield from self.objects(what, path, rest, make)

    def record(self, form: type[T], what: str, path: str) -> T:
        """Return one object as a record. Raises ApiError, LoginProblem."""
        return record_of(form, self.get(what, path))

    def records(self, form: type[T], what: str, path: str, query: Mapping[str, str] | None = None) -> Iterator[T]:
        """Yield a record of each object of a list. Raises as `objects`."""
        return self.objects(what, path, query, partial(record_of, form))

    def listed(self, what: str, path: str, query: Mapping[str, str], take: Callable[[Json], object]) -> str:
        """Give each object of a list to `take`. Return the resource version to watch from. Raises ApiError, LoginProblem."""
        version = ""
        for _, page in self._pages(what, path, query, JSON, partial(Page, take)):
            version = version or text_of(page, "metadata", "resourceVersion")
        return version

    def version(self, what: str, path: str, query: Mapping[str, str]) -> str:
        """Return the version of the API server's store, by a list of one object. Raises ApiError, LoginProblem."""
        return text_of(self.get(what, target(path, {**query, "limit": 1})), "metadata", "resourceVersion")

    def watch(self, what: str, path: str, query: Mapping[str, str], take: Callable[[Json], object]) -> None:
        """Give each event of a watch to `take`, until the server ends it. query: with the version and timeoutSeconds.

        The timeout of this Api is that of the whole watch. Raises ApiError, LoginProblem; what `take` raises.
        """
        asked = target(path, {**query, "watch": "true", "allowWatchBookmarks": "true"})
        lines = _Lines(take)
        self._request("GET", what, asked, take=lines.feed, is_watch=True)

    def rows(self, what: str, path: str) -> Iterator[Rows]:
        """Yield each row of a list, without the objects. Raises ApiError, LoginProblem."""
        columns: Mapping[str, int] = {}
        query = {"includeObject": "None"}
        for page, table in self._pages(what, path, query, _TABLE, TablePage, _ROWS_PAGE):
            found = list_of(table, "columnDefinitions")
            columns = {text_of(each, "name").lower(): at for at, each in enumerate(found)} if found else columns
            yield from (Rows(columns, list_of(row, "cells")) for row in page)

    def _pages(
        self,
        what: str,
        path: str,
        query: Mapping[str, str],
        accept: str,
        page_of: Callable[[Bounds], Page[T] | TablePage],
        most: int = PAGE,
    ) -> Iterator[tuple[list[Any], Any]]:
        """Yield the values built from each page, and the page without its objects. most: objects of one page."""
        bounds, token, limit = Bounds(), "", most
        while True:
            page = page_of(bounds)
            asked = target(path, {**query, "limit": limit, **({"continue": token} if token else {})})
            try:
                most_bytes = 2 * _PAGE_BYTES if limit > 1 else MOST_BYTES
                self._request("GET", what, asked, accept=accept, most_bytes=most_bytes, take=page.take)
                rest = page.envelope()
            except TooLong:
                # as the objects so far are so large
                limit = min(page.limit(_PAGE_BYTES), limit // 2)
                continue
            except Undecodable as exc:
                raise api_error_messages.undecodable("GET", what, str(exc), self.credentials) from exc
            except _Expired as exc:
                # The server has lost the state of the first page, and gives a token for the rest as of now.
                token = exc.token
                continue
            yield page.found, rest
            bounds = page.bounds
            limit = min(page.limit(_PAGE_BYTES), 2 * limit, most)
            token = text_of(rest, "metadata", "continue")
            if not token:
                break
        self._warn(what, bounds)

    def _warn(self, what: str, bounds: Bounds) -> None:
        for each in bounds.unread[:_MOST_NAMED]:
            self.warn(f"{what}: not read: {each}")
        if len(bounds.unread) > _MOST_NAMED:
            self.warn(f"{what}: not read: {len(bounds.unread) - _MOST_NAMED:,} more")
        if bounds.cut:
            large = f"{bounds.cut:,} large ones are shown without their lists"
            self.warn(f"{what}: {large}; name one node, or one namespace, to see them whole")

    def _request(
        self,
        method: str,
        what: str,
        asked: str,
        body: Any = None,
        content_type: str = "",
        *,
        accept: str = JSON,
        most_bytes: int = MOST_BYTES,
        take: Callable[[bytes], object] | None = None,
        is_watch: bool = False,
    ) -> bytes:
        """Return the body of a response, unless `take` takes it.

        Raises ApiError, LoginProblem, and TooLong if `most_bytes` is lower than MOST_BYTES.
        """
        headers = [("Accept", accept), ("User-Agent", USER_AGENT)]
        if content_type:
            headers.append(("Content-Type", content_type))
        data = None if body is None else json.dumps(body).encode()
        send = partial(self._connection.request, method, asked, headers, data, most_bytes, take)
        if is_watch:
            send = partial(send, is_watch=True)
        retries, has_logged_in_again = Retries(_SHORTEST_PAUSE, _SHORTEST_PAUSE), False
        while True:
            status, answered, content = self._answer(method, what, send, most_bytes)
            self.server_time = _http_date(answered.get("date")) or self.server_time
            if status == 401 and not has_logged_in_again and self._connection.log_in_again():
                has_logged_in_again = True
                continue
            if 200 <= status < 300:
                return content
            error = self._refusal(method, what, status, content, answered.get("retry-after"))
            if isinstance(error, CliError) or not _is_retried(error, method) or retries.failures == _MOST_RETRIES:
                raise error
            pause = retries.failed(error, 1.0)
            time.sleep(min(pause, self.timeout_seconds or _LONGEST_PAUSE, _LONGEST_PAUSE))

    def _refusal(
        self, method: str, what: str, status: int, content: bytes, retry_after: str | None
    ) -> ApiError | CliError:
        try:
            body = decode_json(content)
        except Undecodable:
            body = {}
        token = text_of(body, "metadata", "continue")
        if status == 410 and token:
            return _Expired(method, what, token)
        return api_error_messages.of_response(method, what, status, map_of(body), retry_after, self.credentials)

    def _answer(self, method: str, what: str, send: Callable[[], Response], most_bytes: int) -> Response:
        self.requests += 1
        try:
            return send()
        except TooLong as exc:
            if most_bytes < MOST_BYTES:
                raise
            raise api_error_messages.too_big(method, what, most_bytes, self.credentials) from exc
        except (OSError, http.client.HTTPException, ValueError) as exc:
            raise api_error_messages.of_failure(method, what, exc, self.timeout_seconds, self.credentials) from exc

    def _decoded(self, method: str, what: str, content: bytes) -> Any:
        try:
            found = decode_json(content)
        except Undecodable as exc:
            raise api_error_messages.undecodable(method, what, str(exc), self.credentials) from exc
        if not isinstance(found, dict):
            raise api_error_messages.undecodable(method, what, "it is not an object", self.credentials)
        return found


class _Lines:
    """Cuts a watch into events. An event that cannot be decoded is skipped: a later list has its object."""

    def __init__(self, take: Callable[[Json], object]) -> None:
        self._take = take
        self._rest = bytearray()

    def feed(self, piece: bytes) -> None:
        """Raises TooLong for an event that is longer than any object."""
        self._rest += piece
        *lines, rest = self._rest.split(b"\n") if b"\n" in piece else [self._rest]
        self._rest = rest
        if len(rest) > MOST_OBJECT_BYTES:
            raise TooLong(f"an event of more than {MOST_OBJECT_BYTES >> 20} MiB")
        for line in lines:
            with contextlib.suppress(Undecodable):
                self._take(map_of(decode_json(bytes(line))))


class _Expired(Gone):
    """The server cannot continue a list from its state. token: continues it from the current one."""

    def __init__(self, method: str, what: str, token: str) -> None:
        problem = "the list has changed too much while it was read"
        super().__init__(method, what, problem, 410, remedy="try again")
        self.token = token


def if_readable(read: Callable[[], T]) -> T | None:
    """Return the result of `read`; None if the object or its kind is missing or forbidden. Raises other ApiErrors."""
    try:
        return read()
    except (Forbidden, NotFound):
        return None


def path_of(group: str, plural: str, name: str = "", namespace: str = "") -> str:
    """Return the path of a kind, or of one of its objects. group: with its version, such as apps/v1."""
    return Resource(group, plural, is_namespaced=True).path(name, namespace)


def _is_retried(error: ApiError, method: str) -> bool:
    """A server without room has done nothing. Any other that says when to retry may have, so only reads are sent again."""
    return error.status == 429 or (error.status == 503 and method == "GET" and error.retry_after_seconds > 0)


def _http_date(text: str | None) -> datetime | None:
    """Parse a header such as `Sat, 28 Nov 2026 10:00:00 GMT`, which has English words in any locale."""
    if not text:
        return None
    from email.utils import parsedate_to_datetime

    try:
        return parsedate_to_datetime(text)
    except (ValueError, TypeError):
        return None

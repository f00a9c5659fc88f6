"""Requests to the Kubernetes API, one after the other. Every failure is a sentence with its remedy (`errors`)."""

import http.client
import json
import re
import ssl
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final
from urllib.parse import quote, urlencode

from nodedevice_kube.credentials import Credentials
from nodedevice_kube.decoding import Undecodable, decode_json
from nodedevice_kube.settings import Settings

from kubectl_nodedevice.errors import ApiError, Conflict, Forbidden, NotFound, Unauthorized, Unexpected, Unreachable
from kubectl_nodedevice.fields import list_of, text_of
from kubectl_nodedevice.transport import MOST_BYTES, Connection, Headers, TooBig

GROUP: Final = "/apis/nodedevice.io/v1alpha1"
APPS: Final = "/apis/apps/v1"
DRA: Final = "/apis/resource.k8s.io/v1"
NODE_DEVICES: Final = "nodedevices"
POD_DEVICES: Final = "poddevices"
CONFIGS: Final = "nodedeviceconfigs"
JSON: Final = "application/json"
# Kubernetes 1.10 and newer; an older one answers with the objects, which have no rows
_TABLE: Final = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
JSON_PATCH: Final = "application/json-patch+json"
PAGE: Final = 500
# of a page with several objects: one that has more is asked for again with fewer of them
_PAGE_BYTES: Final = 8 << 20
_FEWER: Final = 8
# the server says how long to wait; it is asked no more often than this
_MOST_RETRIES: Final = 5
_LONGEST_PAUSE: Final = 30.0
_STATUSES: Final[Mapping[int, type[ApiError]]] = {401: Unauthorized, 403: Forbidden, 404: NotFound, 409: Conflict}
_INSTALL: Final = "install nodedevice here, or name the cluster that has it by --context (docs/install.md)"
# what each of them is called to people; a kind of ours that is missing has a remedy of its own
_KINDS: Final = {NODE_DEVICES: "NodeDevices", POD_DEVICES: "PodDevices", CONFIGS: "NodeDeviceConfigs"}
# as the authorizers of Kubernetes write it
_CANNOT: Final = re.compile(
    r'cannot (?P<verb>\w+) resource "(?P<kind>[^"]+)"(?: in API group "[^"]*")?(?: in the namespace "(?P<namespace>[^"]+)")?'
)
_CORDON_ROLE: Final = "nodedevice-cordon"
_ROLES: Final = {
    NODE_DEVICES: "nodedevice-fleet-view",
    CONFIGS: "nodedevice-fleet-view",
    POD_DEVICES: "nodedevice-view",
}


@dataclass(frozen=True, slots=True)
class Rows:
    """A list as the API server prints it. columns: names in lower case, by which a row's cells are found."""

    columns: Mapping[str, int]
    cells: Sequence[Any]

    def cell(self, column: str) -> Any:
        """None where the server has no such column, as with older CRDs."""
        at = self.columns.get(column)
        return None if at is None or at >= len(self.cells) else self.cells[at]

    def text(self, column: str) -> str:
        found = self.cell(column)
        return found if isinstance(found, str) else "" if found is None else str(found)

    def number(self, column: str) -> int:
        found = self.cell(column)
        return found if isinstance(found, int) else 0


@dataclass
class Api:
    """requests: how many there were, for those who count. timeout_seconds: for one request; None for no limit.

    server_time: the clock of the API server at its last answer; None where it has not given it.
    """

    credentials: Credentials
    timeout_seconds: float | None = 30.0
    requests: int = 0
    server_time: datetime | None = None
    _connection: Connection = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._connection = Connection(self.credentials, self.timeout_seconds)

    @property
    def login(self) -> Settings:
        return self.credentials.settings

    @property
    def _server(self) -> str:
        """The API server for messages, and the way to it."""
        proxy = self.credentials.proxy
        by_proxy = f", by the proxy {proxy.url}" if proxy else ""
        return f"{self.login.server} ({self.login.name}{by_proxy})"

    def close(self) -> None:
        self._connection.close()

    def get(
        self,
        what: str,
        path: str,
        query: Mapping[str, str] | None = None,
        accept: str = JSON,
        most_bytes: int = MOST_BYTES,
    ) -> Any:
        """One object, or one page. what: as people name the request, such as `nodedevices`. Raises ApiError, LoginProblem.

        TooBig is raised for more than a lower `most_bytes`.
        """
        return self._request("GET", what, path, query, accept=accept, most_bytes=most_bytes)

    def post(self, what: str, path: str, body: Any) -> Any:
        """Raises ApiError, LoginProblem."""
        return self._request("POST", what, path, body=body, content_type=JSON)

    def patch(self, what: str, path: str, body: Any, content_type: str = JSON_PATCH) -> Any:
        """The changed object. Raises ApiError, LoginProblem."""
        query = {"fieldManager": "kubectl-nodedevice"}
        return self._request("PATCH", what, path, query, body=body, content_type=content_type)

    def objects(self, what: str, path: str, query: Mapping[str, str] | None = None) -> Iterator[Any]:
        """Each object of a list, page by page. Raises ApiError, LoginProblem.

        Of a kind of ours all of them, where its CRD is of an older release that has no such fields to select by: callers compare.
        """
        query = query or {}
        try:
            for page in self._pages(what, path, query, JSON):
                yield from list_of(page, "items")
        except ApiError as exc:
            if exc.status != 400 or "fieldSelector" not in query or not path.startswith(GROUP):
                raise
            rest = {name: value for name, value in query.items() if name != "fieldSelector"}
            yield from self.objects(what, path, rest)

    def rows(self, what: str, path: str, query: Mapping[str, str] | None = None) -> Iterator[Rows]:
        """Each row of a list, as the server prints it, without the objects. Raises ApiError, LoginProblem."""
        columns: Mapping[str, int] = {}
        for page in self._pages(what, path, {"includeObject": "None", **(query or {})}, _TABLE):
            found = list_of(page, "columnDefinitions")
            columns = {text_of(each, "name").lower(): at for at, each in enumerate(found)} if found else columns
            for row in list_of(page, "rows"):
                yield Rows(columns, list_of(row, "cells"))

    def _pages(self, what: str, path: str, query: Mapping[str, str], accept: str) -> Iterator[Any]:
        token, limit = "", PAGE
        while True:
            asked = {**query, "limit": str(limit), **({"continue": token} if token else {})}
            try:
                page = self.get(what, path, asked, accept, _PAGE_BYTES if limit > 1 else MOST_BYTES)
            except TooBig:
                # whoever may write big objects must not fill the memory
                limit = max(limit // _FEWER, 1)
                continue
            except _Expired as exc:
                # the server no longer has the state of the first page; it gives a token for the rest as it is now
                token = exc.token
                continue
            yield page
            limit = min(limit * 2, PAGE)
            token = text_of(page, "metadata", "continue")
            if not token:
                return

    def _request(
        self,
        method: str,
        what: str,
        path: str,
        query: Mapping[str, str] | None = None,
        *,
        body: Any = None,
        accept: str = JSON,
        content_type: str = "",
        most_bytes: int = MOST_BYTES,
    ) -> Any:
        target = f"{path}?{urlencode(query)}" if query else path
        headers = [("Accept", accept), ("User-Agent", "kubectl-nodedevice")]
        if content_type:
            headers.append(("Content-Type", content_type))
        data = None if body is None else json.dumps(body).encode()
        has_logged_in_again = False
        for attempt in range(_MOST_RETRIES + 1):
            status, answered, content = self._answer(method, target, headers, data, most_bytes)
            self.server_time = _http_date(answered.get("date")) or self.server_time
            if status == 401 and not has_logged_in_again and self._connection.log_in_again():
                has_logged_in_again = True
                continue
            if status == 429 and attempt < _MOST_RETRIES:
                time.sleep(_pause(answered.get("retry-after"), self.timeout_seconds))
                continue
            break
        if 200 <= status < 300:
            return self._decoded(content, what)
        raise _problem(status, content, what, self.login)

    def _answer(
        self, method: str, target: str, headers: Headers, data: bytes | None, most_bytes: int
    ) -> tuple[int, Mapping[str, str], bytes]:
        self.requests += 1
        try:
            return self._connection.request(method, target, headers, data, most_bytes)
        except TooBig as exc:
            if most_bytes < MOST_BYTES:
                raise
            problem = f"the API server {self._server} gives {exc}"
            raise Unreachable(problem, "name fewer, such as one node or one namespace") from exc
        except TimeoutError as exc:
            seconds = self.timeout_seconds or 0
            problem = f"the API server {self._server} did not answer within {seconds:g} s"
            raise Unreachable(problem, "try again, or with a longer --request-timeout, such as 2m") from exc
        except ssl.SSLError as exc:
            reason = getattr(exc, "verify_message", "") or exc.reason or str(exc)
            problem = f"no TLS with the API server {self._server}: {reason}"
            raise Unreachable(problem, "correct certificate-authority in the kubeconfig, or its server") from exc
        except (OSError, http.client.HTTPException) as exc:
            reason = getattr(exc, "strerror", None) or str(exc) or type(exc).__name__
            problem = f"the API server {self._server} cannot be reached: {reason}"
            remedy = "start the cluster, or name another one by --context"
            if self.credentials.proxy:
                remedy = f"start the proxy, correct proxy-url or HTTPS_PROXY; or {remedy}"
            raise Unreachable(problem, remedy) from exc
        except ValueError as exc:
            raise Unreachable(f"{self.login.server} takes no such request: {exc}", "correct the kubeconfig") from exc

    def _decoded(self, content: bytes, what: str) -> Any:
        try:
            found = decode_json(content)
        except Undecodable as exc:
            found, reason = None, str(exc)
        else:
            reason = "it is no object"
        if isinstance(found, dict):
            return found
        problem = f"what {self._server} answers to {what} is none of the API's: {reason}"
        raise Unexpected(problem, "is it an API server? A proxy or a log-in page may answer in its place")


class _Expired(ApiError):
    """410: a list cannot be continued as it was. token: how it goes on."""

    def __init__(self, token: str) -> None:
        super().__init__("the list has changed too much while it was read", "try again")
        self.token = token


def path_of(kind: str, name: str = "", namespace: str = "") -> str:
    """Of a kind of ours."""
    return group_path(GROUP, kind, name, namespace)


def core_path(kind: str, name: str = "", namespace: str = "") -> str:
    """Of pods, nodes and the like."""
    return group_path("/api/v1", kind, name, namespace)


def lease_path(namespace: str, name: str = "") -> str:
    return group_path("/apis/coordination.k8s.io/v1", "leases", name, namespace)


def group_path(group: str, kind: str, name: str = "", namespace: str = "") -> str:
    """Of a kind, or of one of its objects. group: such as /apis/apps/v1. Everything that others have named is quoted."""
    where = f"/namespaces/{quote(namespace, safe='')}" if namespace else ""
    return f"{group}{where}/{kind}" + (f"/{quote(name, safe='')}" if name else "")


def _problem(status: int, content: bytes, what: str, login: Settings) -> ApiError:
    try:
        answer = decode_json(content)
    except Undecodable:
        answer = {}
    message = text_of(answer, "message")[:2000]
    if status == 410:
        token = text_of(answer, "metadata", "continue")
        if token:
            return _Expired(token)
    kind = what.partition(" ")[0]
    if status == 404 and kind in _KINDS and not text_of(answer, "details", "name"):
        # the kind itself: of an object that is missing the answer has the name
        problem = f"this cluster ({login.name}) has no {_KINDS[kind]}: their CRD is not installed"
        return NotFound(problem, _INSTALL, status)
    problem, remedy = _sentence(status, message, what, login)
    return _STATUSES.get(status, Unexpected)(problem, remedy, status)


def _sentence(status: int, message: str, what: str, login: Settings) -> tuple[str, str]:
    if status == 401:
        problem = f"the API server {login.server} does not accept the login of {login.name}"
        return problem, "log in again: the token or certificate is invalid, or has expired"
    if status == 403:
        return _forbidden(message, what)
    if status == 404:
        return f"{what} does not exist", "correct the name, or the namespace"
    if status == 409:
        return f"{what} was changed meanwhile: {message}", "try again"
    if status == 429:
        return f"the API server {login.server} has no room for {what}: too many requests", "try again in a minute"
    if status >= 500:
        return (
            f"the API server {login.server} failed at {what} with {status}: {message or 'no reason'}",
            "try again; its log has why",
        )
    if 300 <= status < 400:
        problem = f"the API server {login.server} sends one elsewhere for {what} ({status})"
        return problem, "a log-in page, or a proxy, may be in its place: correct server in the kubeconfig"
    problem = f"the API server {login.server} refused {what} with {status}: {message or 'no reason'}"
    return problem, "correct what it names, or try again"


def _http_date(text: str | None) -> datetime | None:
    """Of a header such as `Sat, 28 Nov 2026 10:00:00 GMT`, whose words are of no locale."""
    if not text:
        return None
    from email.utils import parsedate_to_datetime

    try:
        return parsedate_to_datetime(text)
    except (ValueError, TypeError):
        return None


def _forbidden(message: str, what: str) -> tuple[str, str]:
    """Of the authorizer its verb and kind, of whoever else refuses the words: an admission policy, or a quota."""
    found = _CANNOT.search(message)
    if not found:
        return f"{what} was refused: {message or 'Forbidden'}", "an administrator can allow it"
    verb, kind, namespace = found["verb"], found["kind"], found["namespace"]
    where = f" of namespace {namespace}" if namespace else ""
    role = _CORDON_ROLE if (verb, kind) == ("patch", NODE_DEVICES) else _ROLES.get(kind)
    remedy = f"an administrator can bind the ClusterRole {role} to you" if role else "an administrator can allow it"
    return f"you may not {verb} {kind}{where}", remedy


def _pause(given: str | None, timeout_seconds: float | None) -> float:
    """Seconds, at most as long as one request may take."""
    seconds = float(given) if given and given.isdecimal() and len(given) < 6 else 1.0
    return min(seconds, timeout_seconds or _LONGEST_PAUSE, _LONGEST_PAUSE)

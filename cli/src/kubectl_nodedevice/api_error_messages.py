"""Explains a failed request in a sentence with its remedy. Pure."""

import http.client
import re
import ssl
from collections.abc import Mapping
from typing import Any, Final

from nodedevice_kube.api_errors import (
    ApiError,
    Conflict,
    Forbidden,
    InvalidResponse,
    NoAnswer,
    NotFound,
    TooBig,
    Unavailable,
    Unreachable,
    refusal_of,
)
from nodedevice_kube.credentials import Credentials
from nodedevice_kube.fields import text_of

from kubectl_nodedevice.errors import CliError, LoginProblem

_INSTALL: Final = "install nodedevice here, or name the cluster that has it by --context (docs/install.md)"
# Names for people. A kind of ours that is missing has a remedy of its own.
_KINDS: Final = {"nodedevices": "NodeDevices", "poddevices": "PodDevices", "nodedeviceconfigs": "NodeDeviceConfigs"}
# the words of Kubernetes' authorizers; compiled at its rare use
_CANNOT: Final = (
    r'cannot (?P<verb>\w+) resource "(?P<kind>[^"]+)"(?: in API group "[^"]*")?'
    r'(?: in the namespace "(?P<namespace>[^"]+)")?'
)
_CORDON_ROLE: Final = "nodedevice-cordon"
_FLEET_VIEW: Final = "nodedevice-fleet-view"
_ROLES: Final = {"nodedevices": _FLEET_VIEW, "nodedeviceconfigs": _FLEET_VIEW, "poddevices": "nodedevice-view"}


def of_response(
    method: str, what: str, code: int, body: Mapping[str, Any], retry_after: str | None, credentials: Credentials
) -> ApiError | CliError:
    """Return the error of a response other than 2xx. what: names the request, such as `nodedevices`. body: a Status, or {}."""
    found = refusal_of(method, what, code, body, retry_after)
    problem, remedy = _words(found, body, credentials)
    if code == 401:
        return LoginProblem(problem, remedy, "Unauthorized")
    later, causes = found.retry_after_seconds, found.causes
    return type(found)(method, what, problem, code, retry_after_seconds=later, causes=causes, remedy=remedy)


def _words(found: ApiError, body: Mapping[str, Any], credentials: Credentials) -> tuple[str, str]:
    what, login, status = found.what, credentials.settings, found.status
    message = text_of(body, "message")[:2000]
    if status == 401:
        problem = f"the API server {login.server} does not accept the login of {login.name}"
        return problem, "log in again: the token or certificate is invalid, or has expired"
    if isinstance(found, Forbidden):
        return _forbidden(message, what)
    if isinstance(found, NotFound):
        kind = _KINDS.get(what.partition(" ")[0])
        # The kind itself is missing: the response about a missing object has its name.
        if kind and not text_of(body, "details", "name"):
            return f"this cluster ({login.name}) has no {kind}: their CRD is not installed", _INSTALL
        return f"{what} does not exist", "correct the name, or the namespace"
    if isinstance(found, Conflict):
        return f"{what} was changed meanwhile: {message}", "try again"
    if status == 429:
        return f"the API server {login.server} has no room for {what}: too many requests", "try again in a minute"
    reason = message or "no reason"
    if isinstance(found, Unavailable):
        return f"the API server {login.server} failed at {what} with {status}: {reason}", "try again; its log has why"
    if 300 <= status < 400:
        problem = f"the API server {login.server} sends one elsewhere for {what} ({status})"
        return problem, "a log-in page, or a proxy, may be in its place: correct server in the kubeconfig"
    problem = f"the API server {login.server} refused {what} with {status}: {reason}"
    return problem, "correct what it names, or try again"


def _forbidden(message: str, what: str) -> tuple[str, str]:
    """Name the verb and kind that the authorizer refuses. Any other refusal, as by a policy or a quota, keeps its own words."""
    found = re.search(_CANNOT, message)
    if not found:
        return f"{what} was refused: {message or 'Forbidden'}", "an administrator can allow it"
    verb, kind, namespace = found["verb"], found["kind"], found["namespace"]
    where = f" of namespace {namespace}" if namespace else ""
    role = _CORDON_ROLE if (verb, kind) == ("patch", "nodedevices") else _ROLES.get(kind)
    remedy = f"an administrator can bind the ClusterRole {role} to you" if role else "an administrator can allow it"
    return f"you may not {verb} {kind}{where}", remedy


def of_failure(method: str, what: str, exc: Exception, seconds: float | None, credentials: Credentials) -> ApiError:
    """Return the error of a request without a response. seconds: the limit of the request."""
    server = _server(credentials)
    if isinstance(exc, TimeoutError):
        problem = f"{server} did not respond within {seconds or 0:g} s"
        found: ApiError = NoAnswer(method, what, problem, seconds or 0)
        found.remedy = "try again, or with a longer --request-timeout, such as 2m"
        return found
    if isinstance(exc, ssl.SSLError):
        reason = getattr(exc, "verify_message", "") or exc.reason or str(exc)
        remedy = "correct certificate-authority in the kubeconfig, or its server"
        return Unreachable(method, what, f"no TLS with {server}: {reason}", remedy=remedy)
    if isinstance(exc, OSError | http.client.HTTPException):
        reason = getattr(exc, "strerror", None) or str(exc) or type(exc).__name__
        remedy = "start the cluster, or name another one by --context"
        if credentials.proxy:
            remedy = f"start the proxy, correct proxy-url or HTTPS_PROXY; or {remedy}"
        return Unreachable(method, what, f"{server} cannot be reached: {reason}", remedy=remedy)
    problem = f"{credentials.settings.server} takes no such request: {exc}"
    return Unreachable(method, what, problem, remedy="correct the kubeconfig")


def too_big(method: str, what: str, most_bytes: int, credentials: Credentials) -> ApiError:
    problem = f"{_server(credentials)} sent a response of more than {most_bytes >> 20} MiB"
    return TooBig(method, what, problem, remedy="name fewer, such as one node or one namespace")


def undecodable(method: str, what: str, reason: str, credentials: Credentials) -> ApiError:
    problem = f"the response of {_server(credentials)} to {what} does not come from an API server: {reason}"
    remedy = "correct server in the kubeconfig; a proxy or a log-in page may respond in its place"
    return InvalidResponse(method, what, problem, remedy=remedy)


def _server(credentials: Credentials) -> str:
    proxy, login = credentials.proxy, credentials.settings
    return f"the API server {login.server} ({login.name}{f', by the proxy {proxy.url}' if proxy else ''})"

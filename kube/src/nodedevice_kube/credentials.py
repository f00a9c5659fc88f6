"""Keeps the credentials of one API server up to date: tokens, certificates, log-in programs.

`refresh` blocks, as it reads files and may run a program. Files are read again when they change, at most once a minute, and after
the API server refused the credentials (401).
"""

import base64
import os
import re
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from nodedevice_kube import kubeconfig, proxies, tls
from nodedevice_kube.decoding import Undecodable, read_text
from nodedevice_kube.errors import ConnectionProblem, CredentialProblem
from nodedevice_kube.masking import remember
from nodedevice_kube.proxies import Proxy
from nodedevice_kube.settings import Impersonation, Settings

if TYPE_CHECKING:
    from nodedevice_kube.exec_plugin import Credential

Headers = tuple[tuple[str, str], ...]
# As often as client-go reads a token file again.
_CHECK_SECONDS: Final = 60.0
# Anything else would break the header.
_TOKEN: Final = re.compile(r"[!-~]+")
_LEGAL_KEY: Final = re.compile(r"[^!#$&'*+.^_`|~0-9a-zA-Z-]")


class Access:
    """What a request needs. headers: authorization and impersonation, which are secret. tls: None for http://.

    A change makes another object, with the same `tls` unless a certificate, a key or the authority changed. It has no repr, so
    that no log shows a secret.
    """

    __slots__ = ("headers", "tls")

    def __init__(self, headers: Headers, tls: ssl.SSLContext | None) -> None:
        self.headers: Final = headers
        self.tls: Final = tls


class Credentials:
    """One API server and one identity, for all clients of the process. Thread-safe.

    load: reads the settings again after a 401. exec_seconds: the limit of a log-in program; None at a terminal, where a person
    types.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        load: Callable[[], Settings] | None = None,
        environment: Mapping[str, str] = os.environ,
        exec_seconds: float | None = None,
        monotonic: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.settings = settings
        if settings.proxy_url:
            self.proxy: Proxy | None = proxies.proxy_of(settings.proxy_url, f"proxy-url of {settings.origin}")
        else:
            self.proxy = proxies.of_environment(settings.scheme, settings.host, settings.port, environment)
        self._load, self._exec_seconds = load, exec_seconds
        self._monotonic, self._now = monotonic, now
        self._lock = threading.Lock()
        self._checked_at = float("-inf")
        self._was_refused = False
        # the number of finished attempts, and the failure of the last one
        self._attempts = 0
        self._failure: CredentialProblem | None = None
        self._credential: Credential | None = None
        # the sources of the TLS context of `_current`
        self._tls_sources: object = None
        self._current: Access | None = None

    @property
    def is_due(self) -> bool:
        """Whether `refresh` must be called before the next request."""
        return self._monotonic() - self._checked_at >= _CHECK_SECONDS or self._is_expired(self._credential)

    def refresh(self) -> "Access":
        """Read changed files, and run the log-in program if its credential expired or was refused.

        Blocks. Raises CredentialProblem without usable credentials: earlier ones stay valid until the API server refuses them. All
        waiting threads share one attempt.
        """
        attempts = self._attempts
        with self._lock:
            if self._current is not None and not self.is_due:
                return self._current
            try:
                if self._failure is not None and attempts != self._attempts:
                    raise CredentialProblem(self._failure.problem, self._failure.remedy, self._failure.code)
                self._attempt()
            except CredentialProblem:
                if self._current is None or self._was_refused:
                    raise
            self._checked_at = self._monotonic()
            assert self._current is not None
            return self._current

    def _attempt(self) -> None:
        try:
            if self._was_refused:
                self._reload()
            self._current = self._read()
            self._was_refused, self._failure = False, None
        except CredentialProblem as exc:
            self._failure = exc
            raise
        finally:
            self._attempts += 1

    def refused(self, access: "Access") -> None:
        """Note that the API server refused these (401), so that the next `refresh` reads them again."""
        if access is self._current:
            self._was_refused = True
            self._checked_at = float("-inf")

    @property
    def problem(self) -> str:
        """Why the last attempt failed, while earlier ones are used; empty if it succeeded."""
        return "" if self._failure is None else str(self._failure)

    @property
    def current(self) -> "Access":
        assert self._current is not None
        return self._current

    def _reload(self) -> None:
        """A kubeconfig may have a new token or certificate; its server stays."""
        if self._load is None:
            return
        try:
            loaded = self._load()
        except ConnectionProblem as exc:
            raise CredentialProblem(exc.problem, exc.remedy, exc.code) from exc
        is_same_server = (loaded.server, loaded.proxy_url) == (self.settings.server, self.settings.proxy_url)
        if is_same_server and loaded != self.settings:
            self.settings = loaded

    def _read(self) -> "Access":
        settings, credential, current = self.settings, self._credential, self._current
        if settings.has_exec_plugin and (self._was_refused or credential is None or self._is_expired(credential)):
            # imported late: a kubectl plugin starts in a tenth of a second
            from nodedevice_kube import exec_plugin

            credential = exec_plugin.run(settings, self._exec_seconds)
        headers = (*_authorization(settings, self._token(credential)), *_impersonation(settings.impersonation))
        certificate, key = (credential.certificate, credential.key) if credential else ("", "")
        sources = (*_tls_sources(settings), certificate, key)
        is_same = sources == self._tls_sources
        context = current.tls if current is not None and is_same else None
        if settings.scheme == "https" and context is None:
            context = tls.new_context(settings, certificate, key)
        self._credential, self._tls_sources = credential, sources
        if current is not None and is_same and headers == current.headers:
            return current
        return Access(headers, context)

    def _is_expired(self, credential: "Credential | None") -> bool:
        return credential is not None and credential.expires_at is not None and self._now() >= credential.expires_at

    def _token(self, credential: "Credential | None") -> str:
        """Return the token of the file, else the inline one, as kubectl does. Raises CredentialProblem."""
        settings = self.settings
        token, where = (credential.token, "the log-in program") if credential else (settings.token, settings.origin)
        if settings.token_file:
            where = f"the token file {settings.token_file}"
            try:
                token = read_text(Path(settings.token_file)).strip() or token
            except Undecodable as exc:
                if not token:
                    raise CredentialProblem(f"{where} cannot be read ({exc})", "renew or correct it") from exc
            if not token:
                raise CredentialProblem(f"{where} is empty", "renew or correct it")
        # HTTP drops spaces around the value of a header.
        token = token.strip(" \t")
        if token and not _TOKEN.fullmatch(token):
            raise CredentialProblem(
                f"the token of {where} has characters that no token has", "correct it, or log in again"
            )
        remember(token)
        return token


def _authorization(settings: Settings, token: str) -> Headers:
    if token:
        return (("Authorization", f"Bearer {token}"),)
    if settings.username:
        pair = f"{settings.username}:{settings.password}"
        return (("Authorization", f"Basic {base64.b64encode(pair.encode()).decode()}"),)
    return ()


def _impersonation(impersonation: Impersonation) -> Headers:
    """Source: client-go @ v0.37 transport.impersonatingRoundTripper, which escapes keys of `extra` in the same way."""
    headers = [
        *([("Impersonate-User", impersonation.user)] if impersonation.user else ()),
        *([("Impersonate-Uid", impersonation.uid)] if impersonation.uid else ()),
        *(("Impersonate-Group", group) for group in impersonation.groups),
    ]
    for key, values in impersonation.extra:
        escaped = _LEGAL_KEY.sub(lambda found: "".join(f"%{octet:02X}" for octet in found[0].encode()), key)
        headers += [(f"Impersonate-Extra-{escaped}", value) for value in values]
    if any(not value.isprintable() or not value.isascii() for _, value in headers):
        problem = "the user, a group or a value to act as has characters that a header cannot have"
        raise CredentialProblem(problem, "correct --as, --as-group, or the kubeconfig")
    return tuple((name, value.strip(" ")) for name, value in headers)


def _tls_sources(settings: Settings) -> tuple[object, ...]:
    """Return the settings that a TLS context is made of. The content of files counts.

    A new context ends all connections, and the kubelet replaces `ca.crt` by an equal file with each new token of a pod.
    """
    files = settings.ca_file, settings.cert_file, settings.key_file
    data = settings.ca_data, settings.cert_data, settings.key_data
    return files, tuple(map(_digest, filter(None, files))), data, settings.is_insecure, settings.tls_server_name


def _digest(file: str) -> bytes | None:
    """Return None for a missing file, and for a pipe, which only `tls` can read."""
    # imported late: a kubectl plugin starts in a tenth of a second
    import hashlib

    try:
        if not os.path.isfile(file):
            return None
        with open(file, "rb") as opened:
            return hashlib.file_digest(opened, "sha256").digest()
    except OSError:
        return None


def load(
    path: str = "",
    context: str = "",
    *,
    exec_seconds: float | None = None,
) -> Credentials:
    """Load credentials of that kubeconfig and context, and use them once, so that problems appear now. Raises ConnectionProblem."""
    settings = partial(kubeconfig.load, path, context)
    credentials = Credentials(settings(), load=settings, exec_seconds=exec_seconds)
    credentials.refresh()
    return credentials

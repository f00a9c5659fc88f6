"""Checks whether a process of the control plane is ready, at its own health endpoint."""

import contextlib
import http.client
import ssl
from pathlib import Path

from tests.cluster.control_plane.certificates import Certificate
from tests.cluster.control_plane.components import HOST

_TIMEOUT_SECONDS = 2.0


def trusting(authority: Path, certificate: Certificate | None = None) -> ssl.SSLContext:
    """TLS that trusts only this authority, and presents a certificate on request."""
    context = ssl.create_default_context(cafile=str(authority))
    if certificate is not None:
        context.load_cert_chain(certificate.certificate, certificate.key)
    return context


def answers(port: int, path: str, tls: ssl.SSLContext | None) -> bool:
    """Whether a GET of `path` on loopback returns 200; also False without a response."""
    try:
        get(port, path, tls)
    except (OSError, http.client.HTTPException):
        return False
    return True


def get(port: int, path: str, tls: ssl.SSLContext | None) -> bytes:
    """Body of a GET on loopback, without credentials. Raises OSError or HTTPException for any status but 200."""
    connection = (
        http.client.HTTPConnection(HOST, port, timeout=_TIMEOUT_SECONDS)
        if tls is None
        else http.client.HTTPSConnection(HOST, port, timeout=_TIMEOUT_SECONDS, context=tls)
    )
    with contextlib.closing(connection):
        connection.request("GET", path)
        response = connection.getresponse()
        if response.status != http.client.OK:
            raise http.client.HTTPException(f"{path}: {response.status} {response.reason}")
        return response.read()

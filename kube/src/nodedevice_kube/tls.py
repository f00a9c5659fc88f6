"""TLS to the API server: authority, client certificate, and the name in the server's certificate."""

import contextlib
import os
import socket
import ssl
from collections.abc import Iterator
from typing import Any

from nodedevice_kube.errors import CredentialProblem
from nodedevice_kube.settings import Settings


class _Context(ssl.SSLContext):
    """Verifies the server's certificate for `name`, for any address of the connection.

    HTTP libraries pass the address as server_hostname; behind a proxy some of them accept no other name.
    """

    name: str = ""

    def wrap_bio(
        self,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        server_side: bool = False,
        server_hostname: str | bytes | None = None,
        session: ssl.SSLSession | None = None,
    ) -> ssl.SSLObject:
        return super().wrap_bio(incoming, outgoing, server_side, self.name or server_hostname, session)

    def wrap_socket(self, sock: socket.socket, *args: Any, **options: Any) -> ssl.SSLSocket:
        return super().wrap_socket(
            sock, *args, **{**options, "server_hostname": self.name or options["server_hostname"]}
        )


def new_context(settings: Settings, certificate: str = "", key: str = "") -> ssl.SSLContext:
    """Return TLS for the settings. certificate, key: PEM of a log-in program, used instead of the certificate in the settings.

    Reads files. Raises CredentialProblem.
    """
    context = _Context(ssl.PROTOCOL_TLS_CLIENT)
    context.name = settings.tls_server_name
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # Certificates of many clusters lack extensions that Python 3.13 requires, unlike other clients.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if settings.is_insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    try:
        if settings.ca_file or settings.ca_data:
            # Comments between certificates may have any character; the library takes ASCII alone.
            data = settings.ca_data.encode("ascii", "replace").decode()
            context.load_verify_locations(settings.ca_file or None, cadata=data or None)
        elif not settings.is_insecure:
            context.load_default_certs()
    except (OSError, ValueError) as exc:
        where = settings.ca_file or "certificate-authority-data"
        raise _unusable(f"the certificate authority {where} of {settings.origin}", exc) from exc
    try:
        with _pair(settings, certificate, key) as pair:
            if pair:
                # Without a password the library would prompt at the terminal.
                context.load_cert_chain(*pair, password="")
    except (OSError, ValueError) as exc:
        where = settings.cert_file or "that is in it"
        raise _unusable(f"the client certificate {where} of {settings.origin}", exc) from exc
    return context


def _unusable(what: str, exc: Exception) -> CredentialProblem:
    reason = getattr(exc, "reason", None) or getattr(exc, "strerror", None) or "it is not PEM"
    return CredentialProblem(f"{what} cannot be used ({reason})", "renew or correct it")


@contextlib.contextmanager
def _pair(settings: Settings, certificate: str, key: str) -> Iterator[tuple[str, str] | None]:
    certificate = certificate or settings.cert_data
    key = key or settings.key_data
    if not certificate and not settings.cert_file:
        yield None
        return
    with _file(certificate, settings.cert_file) as cert_file, _file(key, settings.key_file) as key_file:
        yield cert_file, key_file


@contextlib.contextmanager
def _file(content: str, file: str) -> Iterator[str]:
    """Yield a private temporary file with the content; without content the given file."""
    if not content:
        yield file
    elif hasattr(os, "memfd_create"):
        # A pod's file system may be read-only.
        descriptor = os.memfd_create("nodedevice", os.MFD_CLOEXEC)
        try:
            os.write(descriptor, content.encode())
            yield f"/proc/self/fd/{descriptor}"
        finally:
            os.close(descriptor)
    else:
        import tempfile

        with tempfile.NamedTemporaryFile("w", prefix="nodedevice-") as written:
            written.write(content)
            written.flush()
            yield written.name

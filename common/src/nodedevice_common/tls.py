"""The certificates of a server, read again when their files have changed. Connects to nothing.

Files that are being replaced are seen in any state, such as a certificate whose key comes a moment later: what cannot be used
changes nothing, and is tried again until it can.
"""

import logging
import os
import ssl

log = logging.getLogger(__name__)

# the identity of the file, and its last write
_Version = tuple[int, int, int, int]


class ServerCertificate:
    """TLS from the files of a certificate chain and its key, in PEM, and from the authority of clients' certificates, if any.

    Raises OSError (ssl.SSLError is a kind of it) if they cannot be used.
    """

    def __init__(self, chain: str, key: str, client_ca: str = "") -> None:
        self._chain, self._key, self._client_ca = chain, key, client_ca
        self._loaded = self._versions()
        self._warned: tuple[_Version, ...] | None = None
        self._context = self._new_context()

    def context(self) -> ssl.SSLContext:
        """TLS from the current files; the former one, while they cannot be used. Another object after each change."""
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
        """Whole or not at all: loading into the one in use would leave a new certificate there whose key does not fit."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        # Clients of TLS 1.3 have this curve, and usually offer a key of another one first: the server asks for it before it
        # computes anything. A client that does not respond costs 0.03 ms of CPU instead of 0.8.
        context.set_ecdh_curve("prime256v1")
        # without a password the library would ask for one at the terminal, and wait
        context.load_cert_chain(self._chain, self._key, password="")
        if self._client_ca:
            context.load_verify_locations(cafile=self._client_ca)
            context.verify_mode = ssl.CERT_REQUIRED
            # before it the server signs first, and a client could ask for a new handshake at any time
            context.minimum_version = ssl.TLSVersion.TLSv1_3
        return context

    def _versions(self) -> tuple[_Version, ...]:
        files = map(os.stat, filter(None, (self._chain, self._key, self._client_ca)))
        return tuple((status.st_ino, status.st_mtime_ns, status.st_ctime_ns, status.st_size) for status in files)

"""A certificate that is renewed, seen at each step of its renewal: the former pair is in force until a whole new one is."""

import os
import socket
import ssl
from itertools import count
from pathlib import Path

import pytest
import trustme
from nodedevice_common.tls import ServerCertificate

AUTHORITY = trustme.CA()
_written = count(1)


class Pair:
    def __init__(self, name: str) -> None:
        issued = AUTHORITY.issue_cert(name)
        self.chain, self.key = issued.cert_chain_pems[0].bytes(), issued.private_key_pem.bytes()


OLD, NEW = Pair("old.example"), Pair("new.example")
# what is in the certificate's file and in the key's, one after the other
RENEWALS = {
    "the certificate first": [(NEW.chain, OLD.key)],
    "the key first": [(OLD.chain, NEW.key)],
    "half a certificate": [(NEW.chain[:200], OLD.key), (NEW.chain, OLD.key)],
    "an empty file": [(b"", OLD.key), (NEW.chain, OLD.key), (NEW.chain, b"")],
    "no file": [(None, OLD.key), (None, None), (NEW.chain, None)],
    "no text": [(b"\xff\xfe\x00", OLD.key), (NEW.chain, b"\0")],
    "an encrypted key": [
        (NEW.chain, b"-----BEGIN ENCRYPTED PRIVATE KEY-----\nMFI=\n-----END ENCRYPTED PRIVATE KEY-----\n")
    ],
}


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """A certificate's and its key's: the old pair."""
    chain, key = tmp_path / "tls.crt", tmp_path / "tls.key"
    write(chain, OLD.chain)
    write(key, OLD.key)
    return chain, key


def write(file: Path, octets: bytes | None) -> None:
    """With another time stamp each time: the clock of a file system is slower than this test."""
    file.unlink(missing_ok=True)
    if octets is not None:
        file.write_bytes(octets)
        os.utime(file, ns=(next(_written), next(_written)))


def served(context: ssl.SSLContext) -> str:
    """The name in the certificate that a client gets."""
    client = ssl.create_default_context(cadata=AUTHORITY.cert_pem.bytes().decode())
    client.check_hostname = False
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        theirs.setblocking(False)
        sides = [context.wrap_socket(ours, server_side=True, do_handshake_on_connect=False)]
        sides.append(client.wrap_socket(theirs, do_handshake_on_connect=False))
        waiting = list(sides)
        while waiting:
            for side in list(waiting):
                try:
                    side.do_handshake()
                    waiting.remove(side)
                except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                    pass
        found = sides[1].getpeercert()
        for side in sides:
            side.close()
    assert found is not None
    return str(found["subjectAltName"][0][1])


@pytest.mark.parametrize("steps", RENEWALS.values(), ids=RENEWALS.keys())
def test_the_former_pair_is_in_force_until_a_whole_new_one_is_there(
    steps: list[tuple[bytes | None, bytes | None]], files: tuple[Path, Path], caplog: pytest.LogCaptureFixture
) -> None:
    chain, key = files
    certificate = ServerCertificate(str(chain), str(key))
    for octets, of_key in steps:
        write(chain, octets)
        write(key, of_key)
        said = len(caplog.records)
        # with each of several clients
        assert [served(certificate.context()) for _ in range(3)] == ["old.example"] * 3
        # said once for each version of the files
        assert len(caplog.records) - said <= 1
    assert {record.message for record in caplog.records} == {
        "the new TLS certificate cannot be used; serving with the one before"
    }
    write(chain, NEW.chain)
    write(key, NEW.key)
    assert served(certificate.context()) == "new.example"
    assert certificate.context() is certificate.context()


def test_what_could_not_be_used_is_tried_again_although_its_files_are_the_same(files: tuple[Path, Path]) -> None:
    """Such as a key that may not be read at first: no version of a file shows that."""
    chain, key = files
    certificate = ServerCertificate(str(chain), str(key))
    write(chain, NEW.chain)
    write(key, OLD.key)
    assert served(certificate.context()) == "old.example"
    key.write_bytes(NEW.key)
    os.utime(key, ns=(1_000_000_000, 1_000_000_000))
    assert served(certificate.context()) == "new.example"


def test_a_client_authority_that_is_replaced_in_the_middle_keeps_the_former(
    files: tuple[Path, Path], tmp_path: Path
) -> None:
    (chain, key), authority = files, tmp_path / "ca.crt"
    write(authority, AUTHORITY.cert_pem.bytes())
    certificate = ServerCertificate(str(chain), str(key), str(authority))
    before = certificate.context()
    for broken in (b"", b"-----BEGIN CERTIFICATE-----\n", None):
        write(authority, broken)
        assert certificate.context() is before
    write(authority, trustme.CA().cert_pem.bytes())
    assert certificate.context() is not before
    assert len(certificate.context().get_ca_certs()) == 1


def test_a_key_with_a_password_is_refused_and_nobody_is_asked_for_it(
    files: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    passwords: list[object] = []
    monkeypatch.setattr(ssl.SSLContext, "load_cert_chain", lambda *_, password: passwords.append(password))
    ServerCertificate(*map(str, files))
    assert passwords == [""], "without one the library asks at the terminal, and waits"

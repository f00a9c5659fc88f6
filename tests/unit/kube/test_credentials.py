"""When credentials are read again."""

from pathlib import Path
from typing import Any

import pytest
from nodedevice_kube import exec_plugin, tls
from nodedevice_kube.credentials import Access, Credentials
from nodedevice_kube.errors import BadKubeconfig, CredentialProblem
from nodedevice_kube.exec_plugin import Credential
from nodedevice_kube.settings import Impersonation, Settings


class Clocks:
    def __init__(self) -> None:
        self.monotonic = 0.0
        self.now = 1000.0


def credentials(clocks: Clocks, **settings: Any) -> Credentials:
    found = Settings(**{"server": "http://api", "origin": "context x", **settings})
    return Credentials(found, environment={}, monotonic=lambda: clocks.monotonic, now=lambda: clocks.now)


def authorization(access: Access) -> str:
    return dict(access.headers).get("Authorization", "")


def test_a_token_file_is_read_once_a_minute_and_after_a_refusal(tmp_path: Path) -> None:
    file, clocks = tmp_path / "token", Clocks()
    file.write_text("one\n")
    found = credentials(clocks, token_file=str(file))
    first = found.refresh()
    file.write_text("two")
    clocks.monotonic = 59
    assert found.refresh() is first
    clocks.monotonic = 60
    second = found.refresh()
    assert (authorization(first), authorization(second)) == ("Bearer one", "Bearer two")
    file.write_text("three")
    # another request was refused with what is no longer used
    found.refused(first)
    assert found.refresh() is second
    found.refused(second)
    assert authorization(found.refresh()) == "Bearer three"
    # nothing has changed: there is no point in asking again
    last = found.current
    found.refused(last)
    assert found.refresh() is last


def test_only_another_content_makes_another_tls_context(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tls, "new_context", lambda *_: object())
    ca, token, clocks = tmp_path / "ca", tmp_path / "token", Clocks()
    found = credentials(clocks, server="https://api", ca_file=str(ca), token_file=str(token))
    contexts = []
    for content in (("a", "one"), ("a", "two"), ("b", "two")):
        for file, text in zip((ca, token), content, strict=True):
            file.with_suffix(".new").write_text(text)
            file.with_suffix(".new").replace(file)
        clocks.monotonic += 60
        contexts.append(found.refresh().tls)
    assert contexts[0] is contexts[1] is not contexts[2]


@pytest.mark.parametrize("content", [b"", b"\xff", b"two words", None])
def test_a_file_that_is_being_replaced_changes_nothing(content: bytes | None, tmp_path: Path) -> None:
    file, clocks = tmp_path / "token", Clocks()
    file.write_text("one")
    found = credentials(clocks, token_file=str(file))
    first = found.refresh()
    file.write_bytes(content) if content is not None else file.unlink()
    clocks.monotonic = 60
    assert found.refresh() is first
    found.refused(first)
    with pytest.raises(CredentialProblem) as refused:
        found.refresh()
    assert "two words" not in str(refused.value)
    with pytest.raises(CredentialProblem):
        credentials(clocks, token_file=str(file)).refresh()


def test_a_log_in_program_runs_again_when_its_credential_expires(monkeypatch: pytest.MonkeyPatch) -> None:
    clocks, given = Clocks(), [Credential("one", expires_at=1100), Credential("two"), Credential("three")]
    monkeypatch.setattr(exec_plugin, "run", lambda *_: given.pop(0))
    found = credentials(clocks, exec_plugin={"command": "x"})
    assert authorization(found.refresh()) == "Bearer one"
    clocks.now = 1099.0
    assert not found.is_due
    clocks.now = 1100.0
    assert authorization(found.refresh()) == "Bearer two"
    clocks.monotonic = 1000
    assert authorization(found.refresh()) == "Bearer two"
    found.refused(found.current)
    assert authorization(found.refresh()) == "Bearer three"


def test_what_no_header_may_have_is_refused_without_being_shown() -> None:
    clocks = Clocks()
    for settings in ({"token": "SECRET\n"}, {"token": "SECRE\u0442"}):
        with pytest.raises(CredentialProblem) as refused:
            credentials(clocks, **settings).refresh()
        assert "SECRE" not in str(refused.value)
    with pytest.raises(CredentialProblem, match="to act as"):
        credentials(clocks, impersonation=Impersonation("a\nb")).refresh()
    with pytest.raises(BadKubeconfig, match="socks5"):
        credentials(clocks, proxy_url="socks5://u:p@x")

"""Texts for logs and terminals."""

import pytest
from nodedevice_kube.redaction import printable, without_password


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("https://u:p@host/x", "https://***@host/x"),
        ("u:p@host", "***@host"),
        ("http://u:p/w@host:1 and http://:q@other", "http://***@host:1 and http://***@other"),
        ("image registry/a:b@c", "image registry/a:b@c"),
        ("mail to a@example.com", "mail to a@example.com"),
        ("https://host:6443", "https://host:6443"),
    ],
)
def test_passwords(text: str, expected: str) -> None:
    assert without_password(text) == expected


def test_control_characters() -> None:
    assert printable("a\x1b[0m\nb\u202ec é") == "a\\x1b[0m\\nb\\u202ec é"

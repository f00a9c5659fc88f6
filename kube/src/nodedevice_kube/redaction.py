"""Texts for logs and terminals: without passwords of URLs, and without control characters. Pure."""

import re
from typing import Final

# user:password@ of a URL; the second form where the scheme is missing.
_USER: Final = re.compile(r"""(?<=://)[^\s"'<>]*:[^\s"'<>]*@|(?<![\w./@-])[^\s/@:"'<>]+:[^\s/@"'<>]+@""")


def without_password(text: str) -> str:
    """The text with user and password of each URL in it replaced by `***`."""
    return _USER.sub("***@", text)


def printable(text: str) -> str:
    """The text with each control character, and each that turns the direction of writing, escaped as in Python."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)

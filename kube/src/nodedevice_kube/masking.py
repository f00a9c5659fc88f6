"""Masks secrets in text for people: tokens, keys, and passwords in addresses, before a log or a terminal gets it.

Masks text in the form of a secret, and every secret that this process has read: neither way alone is enough.
"""

import base64
import re
from functools import cache
from typing import Final
from urllib.parse import quote, unquote

MASK: Final = "***"
# Shorter values are not masked everywhere: they may be a part of any word.
_SHORTEST: Final = 8
# secrets of this process, which replace each other
_MOST_REMEMBERED: Final = 256
_known: dict[str, None] = {}

_NAMES: Final = r"passw(?:or)?d|passphrase|secret|token|credentials?|(?:api|access|private|client|account)[_-]?key"
_NAMED: Final = rf"[\w.-]{{0,64}}(?:{_NAMES})(?:[_-]?(?:data|id|key|value))?"
# quotes have a backslash within a quoted text
_QUOTE: Final = r"""\\{0,3}["']"""
_VALUE: Final = r"""[^\s"'\\,;&<>]+"""
# Before each group: words in small letters; the patterns need one of them. A text without them compiles nothing.
_PATTERNS: Final = {
    # a private key, also one whose end was cut off
    ("private key",): (r"(?P<keep>-----BEGIN [A-Z ]{0,32}PRIVATE KEY-----)(?:.*?(?=-----END)|.*)",),
    # scheme://user:password@host; a password may have a slash or an @. A text with a digest is an image.
    ("@",): (
        r"(?P<keep>://)(?:[^\s\"'<>/@]{1,4096}(?:@[^\s\"'<>/@]{1,1024})*"
        r"|[^\s\"'<>/@:]{0,256}:(?!\d{1,5}[/?\#])[^\s\"'<>@]{1,4096})(?=@(?!sha\d{3}:))",
    ),
    # a header
    ("authorization", "bearer", "basic"): (
        rf"(?P<keep>\bauthorization{_QUOTE}?\s*[:=]\s*(?:\[?{_QUOTE})?(?:(?:basic|bearer|digest|negotiate)\s+)?){_VALUE}",
        r"(?P<keep>\bbearer\s+)(?!(?:tokens?|auth\w*|credentials?|scheme|realm)\b)[^\s\"'\\,;<>]{6,}",
        r"(?P<keep>\b(?:basic|bearer token|bearer)\s+)(?=[a-z+/_.-]{0,64}[0-9=])[a-z0-9+/=_.-]{12,}",
    ),
    # key=value of a query, an environment or a flag; key: value where either is in quotes
    ("passw", "passphrase", "secret", "token", "credential", "key"): (
        rf"(?P<keep>(?<![\w.-]){_NAMED}=(?:{_QUOTE})?){_VALUE}",
        rf"(?P<keep>{_QUOTE}{_NAMED}{_QUOTE}\s*[:=]\s*{_QUOTE})[^\"'\\]+",
        rf"(?P<keep>--(?:{_NAMES})[\s=]+(?:{_QUOTE})?)(?!-){_VALUE}",
        rf"(?P<keep>(?<![\w.-]){_NAMED}: +(?:{_QUOTE})?)(?=[^\s\"'\\,;]{{0,64}}\d)[^\s\"'\\,;<>]{{16,}}",
    ),
    # a JSON web token
    ("eyj",): (r"(?P<keep>\b)eyJ[\w-]{8,}\.[\w-]{8,}(?:\.[\w-]*)?",),
}
_USER_INFO: Final = re.compile(r"^(?:[a-z][a-z0-9+.-]*://)?([^/?#]*(?:/[^?#]*)?)@", re.IGNORECASE)


def masked(text: str) -> str:
    """The same text with all secrets masked."""
    # a copy, as a log-in may add one in another thread
    for each in tuple(_known):
        if each in text:
            text = text.replace(each, MASK)
    small = text.lower()
    for hints, patterns in _PATTERNS.items():
        if any(hint in small for hint in hints):
            for pattern in map(_compiled, patterns):
                text = pattern.sub(rf"\g<keep>{MASK}", text)
    return text


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    """Compiled at the first use, as few processes ever need one."""
    return re.compile(pattern, re.IGNORECASE | re.DOTALL)


def remember(*secrets: str) -> None:
    """Mask these values in all later texts. Short ones are not remembered."""
    for secret in secrets:
        if not secret or secret in _known:
            continue
        for form in {secret, secret.strip(), quote(secret, safe=""), unquote(secret)}:
            if len(form) >= _SHORTEST:
                _keep(form)


def _keep(form: str) -> None:
    _known.pop(form, None)
    _known[form] = None
    for oldest in tuple(_known)[:-_MOST_REMEMBERED]:
        _known.pop(oldest, None)


def remember_login(user: str, password: str) -> None:
    """Mask a password, also in the sent forms: user:password, and that in base64."""
    if password:
        pair = f"{user}:{password}"
        remember(password, pair, base64.b64encode(pair.encode("utf-8", "replace")).decode())


def remember_address(address: str) -> None:
    """Mask the password in the address of a server or a proxy, which may lack its scheme."""
    found = _USER_INFO.match(address)
    if found is not None and ":" in found[1]:
        # short ones as well: no other text has this form
        _keep(f"{found[1]}@")
        user, _, password = found[1].partition(":")
        remember_login(user, password)
        remember_login(unquote(user), unquote(password))


def printable(text: str) -> str:
    """Escape control characters and changes of direction as Python does."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)

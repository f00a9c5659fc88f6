"""Device IDs as the API, logs and terminals show them. Pure.

The kubelet accepts any text as a device ID: empty, with line breaks, ten kilobytes long. The API has 1 to 128 printable characters,
and `*` and `all` mean every device of a resource there. An ordinary ID is shown unchanged. Any other ID is shown as `escaped:` and
its characters in percent encoding; an ID too long for that, as `escaped:`, its beginning, `=` and its SHA-256. Two IDs are
never shown alike: an ID that begins with `escaped:` is itself escaped.

The device manager uses the shown form everywhere. Only what speaks to a device plugin, to the kubelet or to a monitor, and the
checkpoint, has the original: shown_id() where an ID comes in, original_id() where it goes out.
"""

import re
from collections.abc import Iterable
from hashlib import sha256
from typing import Final, Self
from urllib.parse import quote, unquote_to_bytes

from nodedevice_api.names import ALL_DEVICES, ALL_DEVICES_WORD

# The CRD's bound; the device plugin API documents 63, which the kubelet does not check.
MAX_SHOWN: Final = 128
ESCAPED: Final = "escaped:"
_DIGEST: Final = "="
_HEAD: Final = MAX_SHOWN - len(ESCAPED) - len(_DIGEST) - 64
_SHORTENED: Final = re.compile(rf"{ESCAPED}(?:[^%=]|%[0-9A-F]{{2}})*=[0-9a-f]{{64}}")
_HALF_A_CODE: Final = re.compile("%[0-9A-F]?$")
_RESERVED: Final = frozenset({"", ALL_DEVICES, ALL_DEVICES_WORD})
# Protobuf refuses lone surrogates, but JSON may have them.
_ERRORS: Final = "surrogatepass"


class ShortenedID(str):
    """The shown form of a long ID, which has the original with it. Equal to the plain text of the shown form.

    octets: of the original.
    """

    __slots__ = ("octets", "original")

    original: str
    octets: int

    @classmethod
    def of(cls, original: str) -> Self:
        octets = original.encode(errors=_ERRORS)
        found = cls(f"{ESCAPED}{_head(original)}{_DIGEST}{sha256(octets).hexdigest()}")
        found.original, found.octets = original, len(octets)
        return found


def shown_id(device_id: str) -> str:
    """How an ID is shown: 1 to 128 printable characters, other ones for each ID. An ordinary ID stays unchanged."""
    if len(device_id) <= MAX_SHOWN:
        is_reserved = device_id in _RESERVED or device_id.startswith(ESCAPED)
        if device_id.isprintable() and not is_reserved:
            return device_id
        escaped = f"{ESCAPED}{_encoded(device_id)}"
        if len(escaped) <= MAX_SHOWN:
            return escaped
    return ShortenedID.of(device_id)


def original_id(shown: str) -> str:
    """The ID that is shown so. For a shortened one that has lost its original, such as one from the API, the shown form."""
    if not shown.startswith(ESCAPED):
        return shown
    if isinstance(shown, ShortenedID):
        return shown.original
    if is_shortened(shown):
        return shown
    try:
        return unquote_to_bytes(shown.removeprefix(ESCAPED)).decode(errors=_ERRORS)
    except UnicodeDecodeError:
        # no shown form of any ID
        return shown


def written_id(text: str) -> str:
    """The shown form of an ID from the API, written in its shown form or as the plugin lists it."""
    return text if text.startswith(ESCAPED) else shown_id(text)


def is_ordinary(device_id: str) -> bool:
    """Whether an ID is shown unchanged."""
    return shown_id(device_id) == device_id


def is_shortened(shown: str) -> bool:
    """Whether this is the shown form of an ID that is too long to be escaped."""
    return _SHORTENED.fullmatch(shown) is not None


def has_original(shown: str) -> bool:
    """Whether original_id() knows the ID; not for a shortened one from the API, until its plugin has listed it."""
    return isinstance(shown, ShortenedID) or not (shown.startswith(ESCAPED) and is_shortened(shown))


def long_octets(device_ids: Iterable[str]) -> int:
    """Of the IDs that are shown shortened, in their original form; an ordinary ID has few."""
    return sum(i.octets for i in device_ids if isinstance(i, ShortenedID))


def _encoded(text: str) -> str:
    # Without - and :, so that it never resembles a part of another device.
    return quote(text, errors=_ERRORS).replace("-", "%2D")


def _head(original: str) -> str:
    return _HALF_A_CODE.sub("", _encoded(original[:_HEAD])[:_HEAD])

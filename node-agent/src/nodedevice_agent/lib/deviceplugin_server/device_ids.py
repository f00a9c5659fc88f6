"""Device IDs from paths: stable over restarts and hot-plug, readable, at most 63 characters, never shared by two paths."""

import hashlib
import re

# The device plugin API asks for at most 63 characters; IDs also travel in environment variables and file names.
MAX_DEVICE_ID = 63
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
_DEV = "/dev/"
_MAX_INDEX_DIGITS = len("-999")
_INDEXED = re.compile(r".*-\d+")


def device_id(path: str) -> str:
    """`/dev/ttyUSB0` gives `ttyUSB0`; a path that does not survive whole gets eight digits of its hash behind it.

    A name that ends like an index gets the hash too: `tty-0` is then always the first share of `/dev/tty`.
    """
    tail = path.removeprefix(_DEV)
    slug = _UNSAFE.sub("-", tail).strip("-.")
    room = MAX_DEVICE_ID - _MAX_INDEX_DIGITS
    if path.startswith(_DEV) and slug == tail and len(slug) <= room and not _INDEXED.fullmatch(slug):
        return slug
    digest = hashlib.sha256(path.encode(errors="surrogateescape")).hexdigest()[:8]
    slug = slug[: room - len(digest) - 1].strip("-.")
    return f"{slug}-{digest}" if slug else digest


def shared_ids(base_id: str, count: int) -> tuple[str, ...]:
    """IDs under which `count` containers may hold one device: the device's own for one, else `<id>-0` and on."""
    if count == 1:
        return (base_id,)
    return tuple(f"{base_id}-{index}" for index in range(count))


def natural_key(text: str) -> tuple[tuple[str, int], ...]:
    """Sorts `gpu-2` before `gpu-10`."""
    return tuple((word, int(number or -1)) for word, number in re.findall(r"(\D*)(\d*)", text))

"""Names of sockets and files that are made from resource names."""

import hashlib
import re

_MAX_SOCKET_SLUG = 16
_MAX_FILE_SLUG = 200


def socket_name(resource_name: str) -> str:
    """File name of the socket a plugin serves this resource on: at most 30 characters, equal name, equal socket.

    Short, because the kernel bounds the whole path of a Unix socket to 107 bytes and the directory is not ours to choose.
    """
    slug = re.sub(r"[^a-z0-9]+", "-", resource_name.partition("/")[2].lower()).strip("-")[:_MAX_SOCKET_SLUG]
    return f"{slug.rstrip('-')}-{_digest(resource_name)}.sock"


def file_slug(resource_name: str) -> str:
    """A file name for this resource without its suffix, readable and never shared by two names.

    `example.com/gpu` gives `example.com_gpu`: a domain has no underscore, so the first one is always the slash.
    """
    slug = resource_name.replace("/", "_")
    return slug if len(slug) <= _MAX_FILE_SLUG else f"{slug[:_MAX_FILE_SLUG]}-{_digest(resource_name)}"


def env_name(resource_name: str) -> str:
    """The environment variable that tells a container its devices: `example.com/gpu` gives `EXAMPLE_COM_GPU`."""
    name = re.sub(r"[^A-Z0-9]", "_", resource_name.upper())
    return f"_{name}" if name[:1].isdigit() else name


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]

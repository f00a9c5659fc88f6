"""Resource names, and the names of other things that are made from them.

Source: the API server's rules for extended resources (qualified name, no kubernetes.io, valid again behind `requests.`).
"""

import hashlib
import re

_LABEL = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
_DOMAIN = re.compile(rf"{_LABEL}(\.{_LABEL})*")
_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
# `requests.<name>` must be a valid name as well, for quotas.
_MAX_DOMAIN = 253 - len("requests.")
_MAX_SOCKET_SLUG = 16
_MAX_FILE_SLUG = 200


def resource_name_problem(resource_name: str) -> str:
    """What is wrong with the name of an extended resource, as a sentence that says what to do; empty when nothing is."""
    domain, slash, name = resource_name.partition("/")
    if not slash:
        return "must be domain/name, such as example.com/serial"
    if domain == "kubernetes.io" or domain.endswith(".kubernetes.io"):
        return "kubernetes.io is reserved by Kubernetes; use a domain of your own, such as example.com/serial"
    if domain.startswith("requests."):
        return "Kubernetes reads a name that begins with requests. as a quota; use another domain"
    if len(domain) > _MAX_DOMAIN:
        return f"the part before the slash may have at most {_MAX_DOMAIN} characters"
    if not _DOMAIN.fullmatch(domain):
        return "the part before the slash must be a lower-case DNS name, such as example.com"
    if not _NAME.fullmatch(name):
        return "the part after the slash must be 1 to 63 of letters, digits, - _ . and begin and end with a letter or digit"
    return ""


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

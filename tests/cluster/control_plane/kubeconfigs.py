"""Writes kubeconfig files: address of the API server, its authority, and the client's identity.

The authority is embedded, so a file works from any folder.
"""

import base64
from pathlib import Path
from typing import Any

import yaml

from tests.cluster.control_plane.certificates import Certificate, write_private


def write_for_certificate(path: Path, url: str, authority: Path, certificate: Certificate) -> Path:
    """Kubeconfig with a client certificate; both PEMs are embedded. Mode 0600."""
    user = {"client-certificate-data": _encoded(certificate.certificate), "client-key-data": _encoded(certificate.key)}
    return _write(path, {"server": url, "certificate-authority-data": _encoded(authority)}, user)


def write_for_token(path: Path, admin: Path, token: str) -> Path:
    """Kubeconfig of a ServiceAccount of the cluster that the one file of `admin` names.

    The token is in `<path>.token`, as mounted tokens are in files. Both mode 0600.
    """
    token_file = path.with_name(f"{path.name}.token").absolute()
    write_private(token_file, token.encode())
    [entry] = yaml.safe_load(admin.read_text())["clusters"]
    return _write(path, entry["cluster"], {"tokenFile": str(token_file)})


def _write(path: Path, cluster: dict[str, Any], user: dict[str, Any]) -> Path:
    name = "nodedevice-test"
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": name,
        "clusters": [{"name": name, "cluster": cluster}],
        "users": [{"name": name, "user": user}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
    }
    write_private(path, yaml.safe_dump(content).encode())
    return path


def _encoded(pem: Path) -> str:
    return base64.b64encode(pem.read_bytes()).decode()

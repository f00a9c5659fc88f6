"""Settings of kubeconfigs and environments, one row each, for a table of how kubectl and our programs follow them."""

import base64
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

from tests.conformance.connection.servers import NAME, ApiServer, Proxy

_V1: Final = "client.authentication.k8s.io/v1"


@dataclass
class Place:
    """Where a row's files are, and the servers they name."""

    folder: Path
    server: ApiServer
    proxy: Proxy
    strict_proxy: Proxy

    @property
    def ca(self) -> str:
        return str(self.server.folder / "ca.crt")

    def data(self, name: str) -> str:
        return base64.b64encode((self.server.folder / name).read_bytes()).decode()

    def file(self, name: str, content: str, mode: int = 0o600) -> str:
        path = self.folder / name
        path.write_text(content)
        path.chmod(mode)
        return str(path)

    def login_program(self, output: str, name: str = "login") -> str:
        return self.file(name, f"#!/bin/sh\ncat <<'EOF'\n{output}\nEOF\n", 0o700)


@dataclass
class Parts:
    """A kubeconfig in parts. env: of the process. files: further kubeconfigs of $KUBECONFIG, before or after the row's own."""

    cluster: dict[str, Any] = field(default_factory=dict)
    user: dict[str, Any] = field(default_factory=lambda: {"token": "t"})
    context: dict[str, Any] = field(default_factory=dict)
    env: dict[str, str] = field(default_factory=dict)
    before: list[dict[str, Any]] = field(default_factory=list)
    after: list[dict[str, Any]] = field(default_factory=list)
    is_listed: bool = False
    text: Callable[[str], str] = str


def credential(version: str = _V1, **status: Any) -> str:
    return json.dumps({"apiVersion": version, "kind": "ExecCredential", "status": status})


def login(place: Place, output: str | None = None, **entry: Any) -> dict[str, Any]:
    program = place.login_program(credential(token="t-exec") if output is None else output)
    return {"exec": {"apiVersion": _V1, "command": program, "interactiveMode": "Never", **entry}}


def by_login(output: str | None = None, **entry: Any) -> Callable[[Place], Parts]:
    return lambda place: Parts(user=login(place, output, **entry))


def written(old: str, new: str) -> Callable[[Place], Parts]:
    """The row's own file has this text otherwise."""
    return lambda _: Parts(text=lambda text: text.replace(old, new))


def plain(**cluster: Any) -> Callable[[Place], Parts]:
    return lambda _: Parts(cluster=cluster)


def of_user(**user: Any) -> Callable[[Place], Parts]:
    return lambda _: Parts(user={key.replace("_", "-"): value for key, value in user.items()})


def _with_certificate(place: Place) -> dict[str, str]:
    folder = place.server.folder
    return {"client-certificate": str(folder / "tls.crt"), "client-key": str(folder / "tls.key")}


def _with_data(place: Place) -> dict[str, str]:
    return {"client-certificate-data": place.data("tls.crt"), "client-key-data": place.data("tls.key")}


def _relative(place: Place) -> Parts:
    place.file("token", "t-file\n")
    place.file("ca.crt", Path(place.ca).read_text())
    return Parts(cluster={"certificate-authority": "ca.crt"}, user={"tokenFile": "token"})


def _login_with_certificate(place: Place) -> Parts:
    certificate, key = ((place.server.folder / name).read_text() for name in ("tls.crt", "tls.key"))
    return Parts(user=login(place, credential(clientCertificateData=certificate, clientKeyData=key)))


def _second_file(place: Place) -> Parts:
    """The user of another file in another folder, with a token file beside it; a file that does not exist."""
    other = place.folder / "other"
    other.mkdir()
    (other / "token").write_text("t-other")
    return Parts(user={}, before=[{"folder": "other", "users": [{"name": "u", "user": {"tokenFile": "token"}}]}])


def _proxy_env(place: Place, exceptions: str = "", **more: str) -> Parts:
    # The address has to be one that Go takes to a proxy: not a loopback one. The proxy forwards all to the server.
    return Parts(
        cluster={"server": "https://10.1.2.3:6443", "tls-server-name": NAME},
        env={"HTTPS_PROXY": place.proxy.url, "NO_PROXY": exceptions, **more},
    )


def _named(name: str) -> Callable[[Place], Parts]:
    """A context whose name is not in quotes."""
    return lambda _: Parts(
        text=lambda text: text.replace("name: x", f"name: {name}").replace("context: x", f"context: {name}")
    )


def _with_comment(place: Place) -> Parts:
    data = base64.b64encode("# Autorit\u00e9\n".encode() + Path(place.ca).read_bytes()).decode()
    return Parts(cluster={"certificate-authority": "", "certificate-authority-data": data})


_ALL_OF_EVE: Final = {"as": "eve", "as_groups": ["a", "b"], "as_uid": "7", "as_user_extra": {"Sco pe/x": ["view"]}}
Row = tuple[str, Callable[[Place], Parts]]

ROWS: Final[tuple[Row, ...]] = (
    # server
    ("server", plain()),
    ("server with a slash at its end", lambda p: Parts(cluster={"server": p.server.url + "/"})),
    ("server in capitals", lambda p: Parts(cluster={"server": p.server.url.replace("https", "HTTPS")})),
    (
        "certificate-authority-data",
        lambda p: Parts(cluster={"certificate-authority": "", "certificate-authority-data": p.data("ca.crt")}),
    ),
    ("certificate-authority and its data", lambda p: Parts(cluster={"certificate-authority-data": p.data("ca.crt")})),
    ("certificate-authority-data with a comment", _with_comment),
    ("certificate-authority missing", plain(**{"certificate-authority": "/none/ca.crt"})),
    (
        "certificate-authority of another server",
        lambda p: Parts(cluster={"certificate-authority": str(p.folder.parent / "other-ca.crt")}),
    ),
    ("insecure-skip-tls-verify", plain(**{"certificate-authority": "", "insecure-skip-tls-verify": True})),
    ("insecure-skip-tls-verify with an authority", plain(**{"insecure-skip-tls-verify": True})),
    ("tls-server-name", plain(**{"tls-server-name": NAME})),
    ("tls-server-name of another server", plain(**{"tls-server-name": "other.example.com"})),
    ("tls-server-name that is too long", plain(**{"tls-server-name": "a" * 300})),
    ("disable-compression", plain(**{"disable-compression": True})),
    # proxies
    ("proxy-url", lambda p: Parts(cluster={"proxy-url": p.proxy.url})),
    ("proxy-url with a password", lambda p: Parts(cluster={"proxy-url": p.strict_proxy.url_with_password})),
    ("proxy-url without its password", lambda p: Parts(cluster={"proxy-url": p.strict_proxy.url})),
    ("proxy-url without a scheme", lambda p: Parts(cluster={"proxy-url": p.proxy.url.removeprefix("http://")})),
    ("proxy-url beside NO_PROXY", lambda p: Parts(cluster={"proxy-url": p.proxy.url}, env={"NO_PROXY": "*"})),
    ("proxy-url and tls-server-name", lambda p: Parts(cluster={"proxy-url": p.proxy.url, "tls-server-name": NAME})),
    ("HTTPS_PROXY", _proxy_env),
    ("HTTPS_PROXY for a loopback address", lambda p: Parts(env={"HTTPS_PROXY": p.proxy.url})),
    ("NO_PROXY: another network", lambda p: _proxy_env(p, "192.168.0.0/16,.svc")),
    ("NO_PROXY: host and another port", lambda p: _proxy_env(p, "10.1.2.3:443")),
    ("NO_PROXY: a domain", lambda p: _proxy_env(p, "example.com,.internal")),
    ("NO_PROXY: the end of an address", lambda p: _proxy_env(p, "2.3")),
    ("https_proxy in small letters", lambda p: _proxy_env(p, **{"HTTPS_PROXY": "", "https_proxy": p.proxy.url})),
    # users
    ("tokenFile, ending in a newline", lambda p: Parts(user={"tokenFile": p.file("token", "t-file\r\n")})),
    ("tokenFile and token", lambda p: Parts(user={"tokenFile": p.file("token", "t-file"), "token": "old"})),
    ("tokenFile empty", lambda p: Parts(user={"tokenFile": p.file("token", "\n")})),
    ("tokenFile missing", of_user(tokenFile="/none/token")),
    ("tokenFile and authority by relative paths", _relative),
    ("token with a newline", of_user(token="SECRET\n")),
    ("token with a space at its end", of_user(token="SECRET ")),
    ("as with a space at its end", of_user(token="t", **{"as": "eve "})),
    ("username and password", of_user(username="u", password="p:\u00e9")),
    ("username and token", of_user(username="u", password="p", token="t")),
    ("client-certificate", lambda p: Parts(user=_with_certificate(p))),
    ("client-certificate-data", lambda p: Parts(user=_with_data(p))),
    ("client-certificate without a key", lambda p: Parts(user={"client-certificate": f"{p.server.folder}/tls.crt"})),
    ("client-certificate and token", lambda p: Parts(user={**_with_certificate(p), "token": "t"})),
    ("as, as-groups, as-uid, as-user-extra", of_user(token="t", **_ALL_OF_EVE)),
    ("as-groups without as", of_user(token="t", as_groups=["a"])),
    ("auth-provider", of_user(auth_provider={"name": "gcp"})),
    # exec plugins
    ("exec v1", by_login()),
    ("exec v1beta1", by_login(credential(f"{_V1}beta1", token="t-exec"), apiVersion=f"{_V1}beta1")),
    ("exec v1alpha1", by_login(apiVersion=f"{_V1}alpha1")),
    ("exec with another version in its output", by_login(credential(f"{_V1}beta1", token="t-exec"))),
    ("exec by a relative path", by_login(command="./login")),
    ("exec with a certificate", _login_with_certificate),
    ("exec without a command", by_login(command="")),
    ("exec that fails", by_login(command="/bin/false")),
    ("exec that is not installed", by_login(command="none-such", installHint="install it")),
    ("exec with a token beside it", lambda p: Parts(user={**login(p), "token": "t"})),
    (
        "exec with an expired credential",
        by_login(credential(token="t-exec", expirationTimestamp="2020-01-01T00:00:00Z")),
    ),
    ("exec that always needs a terminal", by_login(interactiveMode="Always")),
    ("exec with a username beside it", lambda p: Parts(user={**login(p), "username": "u", "password": "p"})),
    ("exec with a client certificate beside it", lambda p: Parts(user={**login(p), **_with_certificate(p)})),
    ("exec without any field", of_user(exec={})),
    ("exec v1 without interactiveMode", by_login(interactiveMode=None)),
    ("exec with another interactiveMode", by_login(interactiveMode="Sometimes")),
    ("exec with a number in args", by_login(args=[1])),
    ("exec with a number in env", by_login(env=[{"name": "A", "value": 1}])),
    (
        "exec with an expiry without a zone",
        by_login(credential(token="t-exec", expirationTimestamp="2099-01-01T00:00:00")),
    ),
    ("exec without a kind in its output", by_login(credential(token="t").replace("kind", "x"))),
    # files
    ("a user in a second file of KUBECONFIG", _second_file),
    ("two current contexts", lambda p: Parts(is_listed=True, after=[{"folder": ".", "current-context": "none"}])),
    (
        "two clusters of one name",
        lambda p: Parts(
            is_listed=True,
            after=[{"folder": ".", "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}]}],
        ),
    ),
    ("an empty second file", lambda p: Parts(is_listed=True, after=[{"folder": "."}])),
    ("a context without a cluster", lambda _: Parts(context={"cluster": "none"})),
    ("JSON", lambda _: Parts(text=lambda text: json.dumps(yaml.safe_load(text)))),
    ("a cluster twice in one file", written("clusters:", "clusters:\n- name: c")),
    ("another kind of file", written("kind: Config", "kind: Secret")),
    ("another apiVersion", written("apiVersion: v1", "apiVersion: v2")),
    ("a date as the name of a context", _named("2026-01-01")),
    ("a time as the name of a context", _named("10:30")),
    ("a number as token", of_user(token=7)),
    ("text instead of a kubeconfig", lambda _: Parts(text=lambda _: "just words")),
)


def write(parts: Parts, place: Place) -> Mapping[str, str]:
    """Write the files of a row. Returns the environment that names them."""
    cluster = {"server": place.server.url, "certificate-authority": place.ca, **parts.cluster}
    whole = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {key: value for key, value in cluster.items() if value != ""}}],
        "users": [{"name": "u", "user": parts.user}] if not parts.before else [],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u", **parts.context}}],
        "current-context": "x",
    }
    own = place.folder / "config"
    own.write_text(parts.text(yaml.safe_dump(whole)))
    files = [*_others(parts.before, place, "before"), str(own), *_others(parts.after, place, "after")]
    if parts.is_listed or parts.before:
        files.insert(0, str(place.folder / "missing"))
    return {**parts.env, "KUBECONFIG": os.pathsep.join(files)}


def _others(contents: list[dict[str, Any]], place: Place, name: str) -> list[str]:
    files = []
    for at, content in enumerate(contents):
        file = place.folder / content.pop("folder") / f"{name}-{at}"
        file.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "Config", **content}) if content else "")
        files.append(str(file))
    return files

"""Reads the API server's address and credentials, from a kubeconfig file or the pod's ServiceAccount. No network.

The library assumes a valid file. Files are validated first, and errors never quote their content, which may be secret.
"""

import os
from pathlib import Path

import msgspec
from lightkube import KubeConfig
from lightkube.config.kubeconfig import SERVICE_ACCOUNT, SingleConfig
from lightkube.core.exceptions import ConfigError
from nodedevice_common import kubeconfig as kubeconfigs
from nodedevice_common.kubeconfig import KubeconfigProblem

from nodedevice_agent.errors import AgentSettingsError

_REMEDY = "correct it, or name another one with --kubeconfig"


def read(kubeconfig: Path | None) -> SingleConfig:
    """The current context of that file, else of the ServiceAccount, $KUBECONFIG or ~/.kube/config. Raises AgentSettingsError."""
    if kubeconfig is None and os.path.exists(Path(SERVICE_ACCOUNT, "token")):
        return _of_pod()
    # not pathlib's, which raises where there is no home
    file = Path(os.path.expanduser(kubeconfig or os.environ.get("KUBECONFIG") or "~/.kube/config"))
    try:
        raw, form = kubeconfigs.read(file)
        if form.current_context is None:
            raise unusable(file, "it has no current-context")
        lists = {key: raw.get(key) or [] for key in ("clusters", "contexts", "users")}
        config = KubeConfig.from_dict({**raw, **lists}, fname=file).get()
    except LookupError as exc:
        raise unusable(file, f"its current context names {exc}, which is not in it") from exc
    except (KubeconfigProblem, ConfigError, msgspec.ValidationError, TypeError, ValueError) as exc:
        raise unusable(file, str(exc)) from exc
    if config is None or config.user is None:
        raise unusable(file, "no current context with a user")
    _check(file, config)
    return config


def unusable(file: Path | None, why: str) -> AgentSettingsError:
    """file: None for the pod's ServiceAccount."""
    where = file or "(from the environment)"
    return AgentSettingsError(f"cannot use kubeconfig {where}: {' '.join(why.split())}; {_REMEDY}")


def _of_pod() -> SingleConfig:
    try:
        config = KubeConfig.from_service_account().get()
    except LookupError as exc:
        why = f"{SERVICE_ACCOUNT} exists, but {exc} is not in the environment"
        raise unusable(None, why) from exc
    except (ConfigError, OSError, ValueError) as exc:
        raise unusable(None, str(exc)) from exc
    assert config is not None
    return config


def _check(file: Path, config: SingleConfig) -> None:
    """Raises AgentSettingsError for an invalid address, and for a file that cannot be read."""
    if not config.cluster.server.startswith(("https://", "http://")):
        raise unusable(file, "the server of its cluster must begin with https:// or http://")
    assert config.user is not None
    named = {
        "certificate-authority": config.cluster.certificate_auth,
        "client-certificate": config.user.client_cert,
        "client-key": config.user.client_key,
    }
    for key, name in named.items():
        if name:
            path = Path(config.abs_file(name))
            try:
                path.open("rb").close()
            except OSError as exc:
                raise unusable(file, f"its {key} {path}: {exc.strerror}") from exc

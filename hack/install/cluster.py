"""Reads and changes nodedevice in the cluster of the current kubeconfig, by kubectl and Helm.

The kubeconfig is copied at the beginning: a later change of the context has no effect.
"""

import json
import os
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from nodedevice_api.names import GROUP
from nodedevice_kube.kubeconfig import remember_secrets

from hack import yaml_text
from hack.install.commands import Completed, attempt, failure, last_words, parsed, run
from hack.install.errors import InstallError
from hack.install.owners import Owner
from tests.cluster.build.binaries import find, missing
from tests.cluster.chart import CHART
from tests.cluster.control_plane.certificates import write_private

Json = dict[str, Any]
KINDS: Final = tuple(f"{kind}.{GROUP}" for kind in ("nodedeviceconfigs", "nodedevices", "poddevices"))
_LABEL: Final = "app.kubernetes.io/name=nodedevice"
_LIMIT: Final = "--request-timeout=30s"
# for the first request, and for a server that drops packets
_ANSWER: Final = "--request-timeout=10s"
# distributions' paths of an administrator's kubeconfig
_KUBECONFIGS: Final = ("/etc/rancher/k3s/k3s.yaml", "/etc/rancher/rke2/rke2.yaml", "/etc/kubernetes/admin.conf")
# objects of an install that an ordinary account may not create
_RIGHTS: Final = (
    "create namespaces",
    "create customresourcedefinitions.apiextensions.k8s.io",
    "create clusterroles.rbac.authorization.k8s.io",
    "create validatingadmissionpolicies.admissionregistration.k8s.io",
    "list nodes",
)
# Helm 3 got `--reset-then-reuse-values` later
_OLDEST_HELM: Final = (3, 14)


class Cluster:
    """folder: for a copy of the kubeconfig. say: called with a line for each download.

    is_plan: use Helm only if this machine has it; do not fetch it.
    """

    def __init__(self, folder: Path, say: Callable[[str], None], *, is_plan: bool = False) -> None:
        self._kubectl = shutil.which("kubectl") or str(find(["kubectl"], say)["kubectl"])
        self._helm, self._helm_major = _helm(say, is_fetched=not is_plan)
        self._caches = folder / "caches"
        self.context, self.server = self._take_kubeconfig(folder)

    def _take_kubeconfig(self, folder: Path) -> tuple[str, str]:
        """Copy it, with the current context alone. Returns the context's name and the server's address."""
        done = attempt([self._kubectl, "config", "view", "--minify", "--flatten", "--raw", "-o", "yaml"])
        content: Json = (yaml_text.load(done.stdout) or {}) if done.returncode == 0 else {}
        if not content.get("clusters"):
            why = last_words(done.stderr) if done.stderr.strip() else "it names no cluster"
            raise InstallError(f"no current kubeconfig ({why})", _kubeconfig_remedy())
        remember_secrets(content)
        _resolve_paths(content)
        self.kubeconfig = folder / "kubeconfig"
        write_private(self.kubeconfig, json.dumps(content).encode())
        self._environment = {"KUBECONFIG": str(self.kubeconfig)}
        return str(content["current-context"]), str(content["clusters"][0]["cluster"].get("server", ""))

    # -- kubectl ------------------------------------------------------------------------------------------------------------

    def version(self) -> tuple[int, str]:
        """Kubernetes' minor number and version. Raises InstallError if the API server does not respond."""
        done = self._attempt("get", "--raw=/version", _ANSWER)
        if done.returncode != 0:
            raise failure(f"asking the API server {self.server} of the context {self.context}", done.stderr)
        described = parsed(done.stdout, "kubectl") or {}
        minor = re.match(r"\d+", str(described.get("minor")))
        return int(minor[0]) if minor else 0, str(described.get("gitVersion"))

    def check_rights(self) -> None:
        """Raises InstallError with what this account may not do."""
        if self._attempt("auth", "can-i", "*", "*", "--all-namespaces", _LIMIT).returncode == 0:
            return
        lacking = [right for right in _RIGHTS if self._attempt("auth", "can-i", *right.split(), _LIMIT).returncode]
        if lacking:
            raise InstallError(
                f"the account of the context {self.context} may not {', '.join(lacking)}",
                "installing takes an administrator's kubeconfig (the ClusterRole cluster-admin)",
            )

    def get(self, *what: str) -> Json:
        """A list or an object; empty if the object or its kind does not exist. Raises InstallError."""
        done = self._attempt("get", *what, "-o", "json", "--ignore-not-found", _LIMIT)
        if done.returncode != 0:
            if "doesn't have a resource type" in done.stderr or "could not find the requested resource" in done.stderr:
                return {}
            raise failure(f"kubectl get {' '.join(what)}", done.stderr)
        return dict(parsed(done.stdout, "kubectl") or {})

    def items(self, *what: str) -> list[Json]:
        return list(self.get(*what).get("items") or [])

    def kubectl(self, *arguments: str, remedy: str = "") -> str:
        """Run kubectl and return its output. remedy: by default found from the error. Raises InstallError."""
        return run(
            [self._kubectl, f"--cache-dir={self._caches}", *arguments], _shown("kubectl", arguments), self._environment
        )

    def differs(self, manifest: str) -> bool:
        """Whether an object of a release's manifest is missing, or its content differs from the manifest."""
        diff = ("diff", "--server-side", "--force-conflicts", "--field-manager=make-install", "-f", "-")
        done = self._attempt(*diff, stdin=manifest)
        # 0: equal, 1: differs; otherwise unknown, and an upgrade does no harm
        return done.returncode != 0

    def _attempt(self, *arguments: str, stdin: str = "") -> Completed:
        return attempt([self._kubectl, f"--cache-dir={self._caches}", *arguments], self._environment, stdin)

    # -- Helm ---------------------------------------------------------------------------------------------------------------

    @property
    def has_helm(self) -> bool:
        return bool(self._helm)

    def releases(self, owner: Owner) -> list[Json]:
        """All releases of this cluster, as Helm lists them, in any state; without Helm only that owner's. Raises
        InstallError.
        """
        if not self.has_helm:
            return self._release_by_secrets(owner)
        states = ("--deployed", "--failed", "--pending", "--uninstalling")
        return list(parsed(self._do("list", "--all-namespaces", *states, "--output", "json"), "helm") or [])

    def _release_by_secrets(self, owner: Owner) -> list[Json]:
        """Find releases by the Secrets in which Helm keeps them, one per revision; their labels lack only the chart."""
        selector = f"owner=helm,name={owner.release}"
        found = [each["metadata"]["labels"] for each in self.items("secrets", "-n", owner.namespace, "-l", selector)]
        if not found:
            return []
        last = max(found, key=lambda labels: int(labels.get("version", 0)))
        chart = f"nodedevice-{own_release()}"
        return [{"namespace": owner.namespace, "name": owner.release, "status": last.get("status", ""), "chart": chart}]

    def labelled_workloads(self) -> list[Json]:
        """DaemonSets and Deployments of the chart, of any installer, in any namespace. Raises InstallError.

        A tenant may use the chart's label as well: workloads count only if an account has rights of the chart.
        """
        bindings = self.items("clusterrolebindings", "-l", _LABEL)
        namespaces = {subject.get("namespace") for each in bindings for subject in each.get("subjects") or []}
        found = self.items("daemonsets,deployments", "-A", "-l", _LABEL)
        return [each for each in found if each["metadata"]["namespace"] in namespaces]

    def release(self, owner: Owner) -> Json:
        """A release as Helm keeps it; empty if it does not exist."""
        done = self._helm_attempt("status", owner.release, "--namespace", owner.namespace, "--output", "json")
        return dict(parsed(done.stdout, "helm") or {}) if done.returncode == 0 else {}

    def planned(self, owner: Owner, files: Sequence[Path]) -> Json:
        """The release that an upgrade with these values would make. Raises InstallError, as for values that the chart refuses."""
        return dict(
            parsed(self._do(*self._upgrade(owner, files), "--dry-run=server", "--output", "json"), "helm") or {}
        )

    def upgrade(self, owner: Owner, files: Sequence[Path]) -> None:
        """Install or upgrade. Values of the release that are not in these files stay."""
        over_others = ["--force-conflicts"] if self._helm_major > 3 else []
        self._do(*self._upgrade(owner, files), "--create-namespace", *over_others, "--hide-notes")

    def uninstall(self, owner: Owner) -> None:
        """Without its hooks. Raises InstallError."""
        self._do("uninstall", owner.release, "--namespace", owner.namespace, "--no-hooks", "--wait", "--timeout", "5m")

    def _upgrade(self, owner: Owner, files: Sequence[Path]) -> list[str]:
        named = [word for file in files for word in ("--values", str(file))]
        chosen = ["--namespace", owner.namespace, "--reset-then-reuse-values", *named]
        return ["upgrade", "--install", owner.release, str(CHART), *chosen]

    def _do(self, *arguments: str) -> str:
        return run([self._helm, *arguments], _shown("helm", arguments), self._environment)

    def _helm_attempt(self, *arguments: str) -> Completed:
        return attempt([self._helm, *arguments], self._environment)


def _resolve_paths(content: Json) -> None:
    """Make the paths of token files and login programs absolute. Both are relative to the user's kubeconfig, and kubectl
    keeps them.
    """
    named = [Path(each).expanduser() for each in os.environ.get("KUBECONFIG", "").split(os.pathsep) if each]
    files = [each for each in named or [Path("~/.kube/config").expanduser()] if each.is_file()]
    folders = {
        user.get("name"): file.absolute().parent
        for file in reversed(files)
        for user in (yaml_text.load(file.read_text()) or {}).get("users") or []
    }
    for each in content.get("users") or []:
        user, folder = each.get("user") or {}, folders.get(each.get("name"), Path.cwd())
        if user.get("tokenFile"):
            user["tokenFile"] = str(folder / user["tokenFile"])
        command = (user.get("exec") or {}).get("command") or ""
        if "/" in command:
            user["exec"]["command"] = str(folder / command)


def _shown(program: str, arguments: Sequence[str]) -> str:
    """The first words of a command, which identify it."""
    return " ".join([program, *[word for word in arguments if not word.startswith("-")][:2]])


def _helm(say: Callable[[str], None], *, is_fetched: bool) -> tuple[str, int]:
    """The user's Helm if it is new enough, else the project's; with its major version. Empty: it is not fetched."""
    own = shutil.which("helm")
    if own and (version := _helm_version(own)) >= _OLDEST_HELM:
        return own, version[0]
    if not is_fetched and missing(["helm"]):
        return "", 0
    fetched = str(find(["helm"], say)["helm"])
    return fetched, _helm_version(fetched)[0]


def _helm_version(helm: str) -> tuple[int, int]:
    """Zeros if its version is unknown."""
    words = attempt([helm, "version", "--short"]).stdout.strip().removeprefix("v").split(".")
    try:
        return int(words[0]), int(words[1])
    except (ValueError, IndexError):
        return 0, 0


def _kubeconfig_remedy() -> str:
    found = [path for path in _KUBECONFIGS if os.path.exists(path)]
    if found and "KUBECONFIG" not in os.environ:
        return f"export KUBECONFIG={found[0]}, with an account that may read it"
    return "set KUBECONFIG, or choose one with `kubectl config use-context`"


def own_release() -> str:
    """The version of the working tree's chart."""
    return str(yaml_text.load((CHART / "Chart.yaml").read_text())["appVersion"])


def values_file(values: Mapping[str, Any], file: Path) -> Path:
    """Write values for Helm, as JSON: its YAML reader takes some words for numbers. Returns the file."""
    file.write_text(json.dumps(values))
    return file

"""The programs of the control plane and their exact versions, as pinned by tests/cluster/build/go.

Builds nothing. One Go module per family, because the families' dependencies conflict; those of etcd and Kubernetes do
not, at the version of etcd that kubeadm starts. So one module pins both, and shared packages are compiled once.
`KUBERNETES=1.36.3` in the environment selects another version of that family than the pinned one.
"""

import hashlib
import os
import platform
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.cluster.errors import BinaryError

_GO_MODULES = Path(__file__).parent / "go"
_TESTS = Path(__file__).parents[3] / "tests"
_EXAMPLES = Path(__file__).parents[3] / "docs/plugin-examples"
_BENCH = Path(__file__).parents[3] / "hack/bench"
_CUT_DEBUG_INFO = "-s -w"
# debug information that the linker removes takes the compiler a tenth of its time
_MAKE_NO_DEBUG_INFO = "-gcflags=all=-dwarf=false"


@dataclass(frozen=True)
class Family:
    """Programs that one Go module pins together.

    name: of its folder under go/, unless `folder` names another: if the folder has own sources next to go.mod, or is
    another family's.
    module: the Go module whose version is the family's; empty for a program that is all our own.
    packages: for each program, the Go package it is built from.
    version_variables: linker variables that hold the version, where the source does not (or the program says v0.0.0).
    tags: build tags, mostly to leave features out.
    asked_by: environment variable that may select another version than the pinned one.
    go_mod_name: file that pins them, if a folder has several; the file with the sums has the same name with `.sum`.
    """

    name: str
    module: str
    packages: Mapping[str, str]
    version_variables: Mapping[str, str] = field(default_factory=dict)
    tags: tuple[str, ...] = ()
    asked_by: str | None = None
    folder: Path | None = None
    go_mod_name: str = "go.mod"

    @property
    def pinned_folder(self) -> Path:
        return self.folder or _GO_MODULES / self.name

    @property
    def sources(self) -> tuple[Path, ...]:
        """Go files of our own that are built with the module, sorted."""
        return tuple(sorted(self.pinned_folder.glob("*.go")))

    @property
    def pinned_version(self) -> str:
        if not self.module:
            return "v0.0.0"
        found = re.search(rf"^\s*{re.escape(self.module)} (v\S+)", self._pinned_go_mod(), re.MULTILINE)
        assert found, f"{self.pinned_folder}/{self.go_mod_name} does not require {self.module}"
        return found[1]

    @property
    def version(self) -> str:
        """Version to build, as `v1.37.2`. Raises BinaryError if the environment asks for an invalid version."""
        asked = os.environ.get(self.asked_by, "") if self.asked_by else ""
        if not asked:
            return self.pinned_version
        if not re.fullmatch(r"v?\d+\.\d+\.\d+", asked):
            raise BinaryError(
                self.name, f"{self.asked_by}={asked} is not a version", f"write it as {self.pinned_version[1:]}"
            )
        return f"v{asked.removeprefix('v')}"

    @property
    def is_pinned(self) -> bool:
        """False when another version was requested: then go.mod is only a proposal, and there is no go.sum."""
        return self.version == self.pinned_version

    @property
    def go_mod(self) -> str:
        return self._pinned_go_mod() if self.is_pinned else self._go_mod_of_other_version()

    @property
    def go_version(self) -> tuple[int, ...]:
        """The oldest Go that may build it, as (1, 26, 0)."""
        found = re.search(r"^go (\S+)$", self._pinned_go_mod(), re.MULTILINE)
        assert found, f"{self.pinned_folder}/go.mod has no go line"
        return tuple(int(part) for part in found[1].split("."))

    @property
    def flags(self) -> tuple[str, ...]:
        """Arguments of `go build`: small, reproducible programs that know their version."""
        major, minor = self.version.removeprefix("v").split(".")[:2]
        values = {"version": self.version, "major": major, "minor": minor}
        variables = [f"-X {variable}={value.format(**values)}" for variable, value in self.version_variables.items()]
        # -buildvcs=false: the state of *this* repository does not describe them
        tags = ("-tags", ",".join(self.tags)) if self.tags else ()
        go_mod = ("-modfile", self.go_mod_name) if self.go_mod_name != "go.mod" else ()
        linker = " ".join([_CUT_DEBUG_INFO, *variables])
        return "-trimpath", "-buildvcs=false", _MAKE_NO_DEBUG_INFO, *tags, *go_mod, "-ldflags", linker

    @property
    def key(self) -> str:
        """Name of the cache folder: it differs for other pins, sources, flags or kinds of machine."""
        go_sum_name = self.go_mod_name.replace(".mod", ".sum")
        go_sum = (self.pinned_folder / go_sum_name).read_text() if self.is_pinned else ""
        sources = (source.read_text() for source in self.sources)
        content = [self.go_mod, go_sum, *sources, *self.flags, platform.machine()]
        digest = hashlib.sha256("\0".join(content).encode()).hexdigest()[:12]
        return f"{self.name}-{self.version}-{digest}"

    def _pinned_go_mod(self) -> str:
        return (self.pinned_folder / self.go_mod_name).read_text()

    def _go_mod_of_other_version(self) -> str:
        """The family's tools and the replacements at the other version; `go mod tidy` resolves their dependencies.

        The staging modules of Kubernetes v1.X.Y are published as v0.X.Y.
        """
        left_out = r"^(require|tool) (\(\n.*?^\)|[^(\n]+)\n"
        text = re.sub(left_out, "", self._pinned_go_mod(), flags=re.MULTILINE | re.DOTALL)
        text = text.replace(re.sub(r"^v1\.", "v0.", self.pinned_version), re.sub(r"^v1\.", "v0.", self.version))
        tools = "".join(f"tool {package}\n" for package in self.packages.values())
        return f"{text}\nrequire {self.module} {self.version}\n\n{tools}"


_COMPONENT_VERSION = "k8s.io/component-base/version"
_KUBERNETES_VERSION = {
    f"{_COMPONENT_VERSION}.gitVersion": "{version}",
    f"{_COMPONENT_VERSION}.gitMajor": "{major}",
    f"{_COMPONENT_VERSION}.gitMinor": "{minor}",
}
_ETCD = "go.etcd.io/etcd/server/v3"
_CONTAINERD = "github.com/containerd/containerd/v2"
_NRI = "github.com/containerd/nri"
_CNI = "github.com/containernetworking/plugins/plugins"

FAMILIES = (
    Family(name="etcd", module=_ETCD, packages={"etcd": _ETCD}, folder=_GO_MODULES / "kubernetes"),
    Family(
        name="kubernetes",
        module="k8s.io/kubernetes",
        packages={
            "kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver",
            "kube-controller-manager": "k8s.io/kubernetes/cmd/kube-controller-manager",
            "kube-scheduler": "k8s.io/kubernetes/cmd/kube-scheduler",
            "kubectl": "k8s.io/kubernetes/cmd/kubectl",
            "sample-device-plugin": "k8s.io/kubernetes/test/images/sample-device-plugin",
        },
        version_variables=_KUBERNETES_VERSION,
        asked_by="KUBERNETES",
    ),
    Family(
        # separate from the rest of Kubernetes: most tests need only a control plane, which is built without it
        name="kubelet",
        module="k8s.io/kubernetes",
        packages={"kubelet": "k8s.io/kubernetes/cmd/kubelet"},
        version_variables=_KUBERNETES_VERSION,
        asked_by="KUBERNETES",
    ),
    Family(
        # a separate family: other programs are not rebuilt for it
        name="dra-test-driver",
        module="k8s.io/kubernetes",
        packages={"dra-test-driver": "k8s.io/kubernetes/test/e2e/dra/test-driver"},
        version_variables=_KUBERNETES_VERSION,
        asked_by="KUBERNETES",
    ),
    Family(
        name="containerd",
        module=_CONTAINERD,
        packages={
            "containerd": f"{_CONTAINERD}/cmd/containerd",
            "containerd-shim-runc-v2": f"{_CONTAINERD}/cmd/containerd-shim-runc-v2",
            "ctr": f"{_CONTAINERD}/cmd/ctr",
        },
        version_variables={f"{_CONTAINERD}/version.Version": "{version}"},
        # snapshotters that need a special disk
        tags=("no_btrfs", "no_devmapper", "no_zfs"),
    ),
    Family(
        name="cni",
        module="github.com/containernetworking/plugins",
        packages={
            "bridge": f"{_CNI}/main/bridge",
            "host-local": f"{_CNI}/ipam/host-local",
            "loopback": f"{_CNI}/main/loopback",
        },
    ),
    Family(
        name="oracle",
        module="k8s.io/kubernetes",
        # the kubelet's internal packages differ between releases, so it is of the pinned one alone
        packages={"oracle": "nodedevice.io/tests/oracle"},
        folder=_TESTS / "oracle",
    ),
    Family(
        # of a current runtime, and of one that skips plugins with a closed connection
        name="nri-library-older",
        module=_NRI,
        packages={"nri-library-0.12.3": "nodedevice.io/tests/nri-library"},
        folder=_TESTS / "nri_library",
        go_mod_name="older.mod",
    ),
    Family(
        name="nri-library",
        module=_NRI,
        packages={"nri-library-0.12.5": "nodedevice.io/tests/nri-library"},
        folder=_TESTS / "nri_library",
    ),
    Family(
        name="cdi-oracle",
        module="tags.cncf.io/container-device-interface",
        # containerd's own version
        packages={"cdi-oracle": "nodedevice.io/tests/oracle/cdi"},
        folder=_TESTS / "oracle" / "cdi",
    ),
    Family(
        # docs/write-a-device-plugin.md shows it, and a test runs it
        name="plugin-example",
        module="k8s.io/kubelet",
        packages={"example-device-plugin": "nodedevice.io/docs/plugin-example"},
        folder=_EXAMPLES / "go",
    ),
    Family(name="checker", module="", packages={"checker": "nodedevice.io/tests/cluster/checker"}),
    Family(
        name="minimal-extender",
        module="",
        packages={"minimal-extender": "nodedevice.io/hack/bench/minimal-extender"},
        folder=_BENCH / "extender" / "minimal",
    ),
    Family(name="kwok", module="sigs.k8s.io/kwok", packages={"kwok": "sigs.k8s.io/kwok/cmd/kwok"}),
    Family(
        name="helm",
        module="helm.sh/helm/v4",
        packages={"helm": "helm.sh/helm/v4/cmd/helm"},
        version_variables={"helm.sh/helm/v4/internal/version.version": "{version}"},
    ),
    Family(
        # in addition to the newest: users will install charts with it for years
        name="helm3",
        module="helm.sh/helm/v3",
        packages={"helm3": "helm.sh/helm/v3/cmd/helm"},
        version_variables={"helm.sh/helm/v3/internal/version.version": "{version}"},
    ),
    Family(
        name="actionlint",
        module="github.com/rhysd/actionlint",
        packages={"actionlint": "github.com/rhysd/actionlint/cmd/actionlint"},
    ),
    Family(
        name="crane",
        module="github.com/google/go-containerregistry",
        packages={"crane": "github.com/google/go-containerregistry/cmd/crane"},
        version_variables={"github.com/google/go-containerregistry/cmd/crane/cmd.Version": "{version}"},
    ),
    Family(
        name="cosign",
        module="github.com/sigstore/cosign/v3",
        packages={"cosign": "github.com/sigstore/cosign/v3/cmd/cosign"},
        version_variables={"sigs.k8s.io/release-utils/version.gitVersion": "{version}"},
    ),
)

ALL_BINARIES = tuple(name for family in FAMILIES for name in family.packages)


def family_of(binary: str) -> Family:
    """The family that a program belongs to. Raises KeyError for an unknown program."""
    for family in FAMILIES:
        if binary in family.packages:
            return family
    raise KeyError(binary)

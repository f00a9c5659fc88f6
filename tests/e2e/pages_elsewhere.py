"""The commands of the documentation that test_pages does not type itself: who does, or why nobody."""

from typing import Final

_INSTALL: Final = "tests/e2e/chart/test_install.py"
_README: Final = ("tests/e2e/chart/test_readme.py", "texts(_SECTION")

# How it begins: the file that tries it, and the words there that do. The first that fits.
TRIED_ELSEWHERE: Final = {
    "make demo GPU=": ("tests/e2e/test_gpu_demo.py", '"hack.demo.gpu_demo"'),
    "make demo": ("tests/e2e/test_demo.py", '"hack.demo.demo"'),
    "CLUSTER=current make demo": ("tests/e2e/test_current_cluster.py", '"CLUSTER": "current"'),
    "make up": ("tests/e2e/test_demo.py", '[*_LOCAL, "up"]'),
    "make check": (".ci/run", "make check"),
    "make e2e": (".ci/run", "make e2e"),
    "make conformance": (".ci/run", "make conformance"),
    "make chaos": (".ci/run", "make chaos"),
    # what `make check` consists of
    "make setup": ("Makefile", "lint: setup"),
    "make test": ("Makefile", "check: lint types imports verify-generate test "),
    "make imports": ("Makefile", "check: lint types imports verify-generate test "),
    "make generate": ("Makefile", "verify-generate: generate "),
    "make dashboards": ("Makefile", "tests/chart tests/monitoring"),
    "make binaries": ("hack/cluster/build/binaries.py", "def find("),
    ".venv/bin/pytest tests/integration/deviceplugin/test_third_party.py": ("Makefile", "tests/integration"),
    "helm install": _README,
    "helm upgrade nodedevice charts/nodedevice --namespace nodedevice-system --reuse-values": _README,
    "kubectl apply -f - <<'EOF'": _README,
    "kubectl wait": _README,
    "kubectl exec fuse": _README,
    "helm test": (_INSTALL, "release.test()"),
    "helm upgrade": ("tests/e2e/chart/test_upgrade.py", "release.upgrade("),
    "helm uninstall --no-hooks": ("tests/e2e/chart/cluster.py", 'release.uninstall("--no-hooks")'),
    "helm uninstall": ("tests/e2e/chart/test_uninstall.py", "release.uninstall()"),
    "kubectl delete crd": ("tests/e2e/chart/cluster.py", 'kubectl("delete", "--wait", *ours)'),
    "kubectl exec --namespace nodedevice-system POD": ("tests/e2e/chart/test_readme.py", '"runtime show"'),
    "kubectl rollout restart": ("tests/e2e/chart/test_readme.py", '"kubectl rollout restart '),
    "nodedevice-operator crds apply": ("tests/chart/test_crds_command.py", '"crds", "apply"'),
    "kubectl get nodedevice NODE.nvidia.com.gpu": ("hack/demo/gpu_demo.py", '"get", "nodedevice", _NODE_DEVICE'),
    "nodedevice-operator cleanup": ("tests/chart/test_cleanup_command.py", '"cleanup"'),
    "nodedevice-operator check": ("tests/chart/test_check_command.py", '"check"'),
    "nodedevice-agent run --config": ("hack/cluster/local/stack.py", '"run", "--config"'),
    "nodedevice-agent runtime move": ("tests/unit/node_agent/runtime/test_selected_runtime.py", '"move", "--to"'),
    "nodedevice-agent gpu show": ("tests/unit/node_agent/cli/test_gpu.py", '"show"'),
    "nodedevice-agent gpu clear": ("tests/unit/node_agent/cli/test_gpu.py", '"clear"'),
}

# How it begins, and why nobody types it as it stands.
NOT_TRIED: Final = {
    "KUBERNETES=": "another release is built and tried by hand; docs/install.md says what came of it",
    "make unit": "a part of `make test`",
    "make lock": "asks for the newest of every dependency and rewrites the locks",
    "make transcripts": "rewrites a page; what it makes of a cluster's words is tested in tests/unit/docs",
    "make bench": "measures, for minutes, and its figures are this machine's",
    "make gpu-check": "needs a GPU",
    "kind ": "needs kind and a container engine; the tests' own node imports the same images",
    "containerd config dump": "reads /etc/containerd, which a test must not write; hack/cluster/node/containerd.py has those lines",
    "kubectl logs job/nodedevice-cleanup": "that Job is there only while `helm uninstall` waits for it",
    "nodedevice-agent simulate break|mend|remove": "a synopsis; the README's own line is typed",
}

# A command's name in a sentence, without what it needs to be typed.
MENTIONED: Final = frozenset({
    "kubectl describe",
    "kubectl drain",
    "kubectl edit",
    "kubectl explain",
    "kubectl patch --type=merge",
    "kubectl uncordon",
    "nodedevice-agent checkpoint show",
})  # fmt: skip

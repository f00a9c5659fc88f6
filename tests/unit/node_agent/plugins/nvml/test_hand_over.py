"""handOver auto: what the node's CDI specifications name, and by which way a container gets its GPUs."""

import asyncio
import json
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from nodedevice_agent.lib import cdi_files
from nodedevice_agent.lib.deviceplugin_server.server import DevicePluginService
from nodedevice_agent.lib.deviceplugin_server.values import AllocationRefused, ContainerIdentity, Delivery
from nodedevice_agent.plugins.nvml import cdi_specs
from nodedevice_agent.plugins.nvml.cdi_choice import Specified, Specs
from nodedevice_agent.plugins.nvml.cdi_specs import CdiSpecs
from nodedevice_agent.plugins.nvml.devices import NEEDED_NODES
from nodedevice_agent.plugins.nvml.driver_troubles import Trouble
from nodedevice_agent.plugins.nvml.gpu import Gpu
from nodedevice_agent.plugins.nvml.mig import MigInstance
from nodedevice_agent.plugins.nvml.node_gpus import Fleet
from nodedevice_agent.plugins.nvml.parts import uses_of
from nodedevice_agent.plugins.nvml.reader.messages import Found
from nodedevice_agent.plugins.nvml.settings import NvmlSettings
from nodedevice_agent.plugins.nvml.source import HostOfGpus, NvmlSource
from nodedevice_api import device_details_pb2
from nodedevice_api.upstream.kubelet.deviceplugin.v1beta1 import api_pb2

KIND = "nvidia.com/gpu"
ONE, TWO = (Gpu(f"GPU-{n}", "T4", pci_bus_id=f"0000:{n}a:00.0", minor=n) for n in (1, 2))
DIVIDED = msgspec.structs.replace(ONE, instances=(MigInstance("MIG-1", "1g.10gb", 1, 0, 10000),))
NONE_BESIDES = ["A=b", "NVIDIA_VISIBLE_DEVICES=void"]
SOMEBODY = ContainerIdentity("default", "p", "uid", "main")


def spec(*names: str, kind: str = KIND) -> str:
    devices = [{"name": name, "containerEdits": {"env": ["A=b"]}} for name in names]
    return json.dumps({"cdiVersion": "0.6.0", "kind": kind, "devices": devices, "containerEdits": {}})


def write(root: Path, name: str, content: str, directory: str = "etc/cdi") -> Path:
    """Another file each time, as one that is moved there."""
    file = root / directory / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.with_name("new").write_text(content)
    return file.with_name("new").rename(file)


YAML = """
cdiVersion: 0.6.0
kind: nvidia.com/gpu
containerEdits: {env: [NVIDIA_VISIBLE_DEVICES=void]}
devices:
- name: GPU-1
  containerEdits: {env: [A=b]}
- name: "0"
  containerEdits: {env: [A=b]}
- name: all
  containerEdits: {env: [A=b]}
"""


class TestSpecifications:
    @pytest.mark.parametrize(
        ("files", "names"),
        [
            pytest.param({}, set(), id="none"),
            pytest.param({"etc/cdi/a.json": spec("GPU-1", "GPU-2")}, {"GPU-1", "GPU-2"}, id="JSON"),
            pytest.param({"var/run/cdi/a.yaml": YAML}, {"GPU-1", "0", "all"}, id="YAML"),
            pytest.param({"etc/cdi/a.json": spec("GPU-1", kind="nvidia.com/mig")}, set(), id="another kind"),
            pytest.param({"etc/cdi/a.txt": spec("GPU-1"), "etc/cdi/b.yml": YAML}, set(), id="another ending"),
            pytest.param(
                {"etc/cdi/a.json": spec("GPU-1"), "etc/cdi/b.json": spec("GPU-1", "GPU-2")},
                {"GPU-2"},
                id="twice in one directory",
            ),
            pytest.param(
                {"etc/cdi/a.json": spec("GPU-1"), "var/run/cdi/a.json": spec("GPU-1")}, {"GPU-1"}, id="in both"
            ),
        ],
    )
    async def test_the_names_of_one_kind(self, tmp_path: Path, files: dict[str, str], names: set[str]) -> None:
        for path, content in files.items():
            write(tmp_path, Path(path).name, content, str(Path(path).parent))
        specs = CdiSpecs(f"{tmp_path}/", KIND)
        assert await specs.refresh() is bool(names)
        assert specs.specs.names.keys() == names
        assert await specs.refresh() is False

    @pytest.mark.parametrize(
        "make",
        [
            pytest.param(lambda path: path.write_text("{"), id="not JSON"),
            pytest.param(lambda path: path.write_bytes(b"\xff\x00"), id="no text"),
            pytest.param(lambda path: path.write_text("[" * 100_000), id="deep"),
            pytest.param(
                lambda path: path.write_text('{"kind": "nvidia.com/gpu", "devices": [{"name": 1}]}'), id="form"
            ),
            pytest.param(lambda path: path.write_text(" " * (cdi_files.MAX_BYTES + 1)), id="big"),
            pytest.param(os.mkfifo, id="FIFO"),
            pytest.param(lambda path: path.mkdir(), id="directory"),
            pytest.param(lambda path: path.symlink_to("/nowhere"), id="link to nothing"),
        ],
    )
    @pytest.mark.parametrize("ending", ["json", "yaml"])
    async def test_one_that_cannot_be_read_is_named_once_and_costs_no_other(
        self, tmp_path: Path, make: Callable[[Path], Any], ending: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        path = write(tmp_path, f"a.{ending}", "")
        path.unlink()
        make(path)
        write(tmp_path, "b.json", spec("GPU-1"))
        specs = CdiSpecs(str(tmp_path), KIND)
        for _ in range(3):
            await specs.refresh()
        assert specs.specs.names.keys() == {"GPU-1"}
        (record,) = caplog.records
        assert str(path) in record.error  # type: ignore[attr-defined]
        assert len(record.error) < 1000  # type: ignore[attr-defined]

    @pytest.mark.parametrize(
        ("name", "content", "is_read"),
        [
            pytest.param("a.yaml", YAML, True, id="YAML"),
            # as container runtimes do
            pytest.param("a.json", YAML, True, id="YAML in a file of JSON"),
            pytest.param("a.json", spec("GPU-1"), True, id="JSON"),
            pytest.param("a.yaml", spec("GPU-1"), True, id="JSON in a file of YAML"),
        ],
    )
    async def test_each_file_is_read_as_yaml(self, tmp_path: Path, name: str, content: str, is_read: bool) -> None:
        write(tmp_path, name, content)
        specs = CdiSpecs(str(tmp_path), KIND)
        await specs.refresh()
        assert ("GPU-1" in specs.specs.names) is is_read

    @pytest.mark.parametrize(("root", "first"), [("", "/etc/cdi"), ("/", "/etc/cdi"), ("/host/", "/host/etc/cdi")])
    def test_the_directories_are_the_hosts(self, root: str, first: str) -> None:
        assert [str(each) for each in CdiSpecs(root, KIND).directories] == [first, first.replace("etc", "var/run")]

    async def test_one_that_is_just_small_enough_is_read(self, tmp_path: Path) -> None:
        content = spec("GPU-1")
        write(tmp_path, "a.json", content + " " * (cdi_files.MAX_BYTES - len(content)))
        specs = CdiSpecs(str(tmp_path), KIND)
        await specs.refresh()
        assert specs.specs.names.keys() == {"GPU-1"}
        write(tmp_path, "a.json", content + " " * (cdi_files.MAX_BYTES - len(content) + 1))
        await specs.refresh()
        assert specs.specs.names == {}

    async def test_aliases_cost_nothing(self, tmp_path: Path) -> None:
        edits = ", ".join(f"&{c} [*{b}, *{b}]" for b, c in zip("abcdefgh", "bcdefghi", strict=True))
        write(tmp_path, "a.yaml", f"annotations: {{x: [&a [x, x], {edits}]}}\n{YAML}")
        whole = ", ".join(["A=b"] * 1000)
        many = "".join(f"- {{name: GPU-{n}, containerEdits: {{env: *e}}}}\n" for n in range(1000))
        edited = f"- {{name: a, containerEdits: {{env: &e [{whole}]}}}}\n{many}"
        write(tmp_path, "b.yaml", f"cdiVersion: 0.6.0\nkind: nvidia.com/gpu\ndevices:\n{edited}")
        write(tmp_path, "c.yaml", YAML)
        specs = CdiSpecs(str(tmp_path), KIND)
        await specs.refresh()
        assert specs.specs.names.keys() == {"GPU-1", "0", "all"}

    async def test_a_bounded_number_is_read(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        for number in range(cdi_files.MAX_FILES + 5):
            write(tmp_path, f"{number:04}.json", spec(f"GPU-{number}"))
        specs = CdiSpecs(str(tmp_path), KIND)
        await specs.refresh()
        assert len(specs.specs.names) == cdi_files.MAX_FILES
        # and none again while it is the same
        monkeypatch.setattr(cdi_files, "first_document", lambda octets, loader: pytest.fail("read again"))
        assert await specs.refresh() is False

    @pytest.mark.parametrize(
        ("everybodys", "own", "is_void"), [([], [], False), (NONE_BESIDES, [], True), ([], NONE_BESIDES, True)]
    )
    async def test_whether_one_gives_nothing_besides(
        self, tmp_path: Path, everybodys: list[str], own: list[str], is_void: bool
    ) -> None:
        """Such an answer says so, and the container may have the variable twice."""
        devices = [{"name": "GPU-1", "containerEdits": {"env": ["C=d", *own]}}]
        whole = {"cdiVersion": "0.6.0", "kind": KIND, "devices": devices, "containerEdits": {"env": everybodys}}
        write(tmp_path, "nvidia.json", json.dumps(whole), "var/run/cdi")
        made = source(tmp_path, ONE)
        await made.read_files()
        given = made.allocate(["GPU-1"], SOMEBODY)
        assert given.cdi_devices == ("nvidia.com/gpu=GPU-1",)
        assert given.env == ({"NVIDIA_VISIBLE_DEVICES": "void"} if is_void else {})
        assert made.allocate(["GPU-1"], None).env == {"NVIDIA_VISIBLE_DEVICES": "GPU-1"}

    async def test_a_disk_that_hangs_costs_one_thread(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        answers, calls = threading.Event(), []

        def hanging(*args: object) -> object:
            calls.append(args)
            answers.wait()
            return Specs({"GPU-1": Specified("/etc/cdi/a.json")}), {}, frozenset()

        monkeypatch.setattr(cdi_specs, "_all", hanging)
        specs = CdiSpecs(str(tmp_path), KIND)
        reads = [asyncio.create_task(specs.refresh()) for _ in range(3)]
        await asyncio.sleep(0)
        reads[0].cancel()
        reads.append(asyncio.create_task(specs.refresh()))
        await asyncio.sleep(0)
        answers.set()
        assert await asyncio.gather(*reads[1:]) == [True, True, True]
        assert len(calls) == 1

    async def test_what_changes_is_read_again(self, tmp_path: Path) -> None:
        path, specs = write(tmp_path, "a.json", spec("GPU-1")), CdiSpecs(str(tmp_path), KIND)
        await specs.refresh()
        write(tmp_path, "a.json", spec("GPU-2"))
        assert await specs.refresh() is True
        assert specs.specs.names.keys() == {"GPU-2"}
        path.unlink()
        assert await specs.refresh() is True
        assert specs.specs.names == {}


def source(root: Path, *gpus: Gpu, delivery: Delivery | None = None, **more: Any) -> NvmlSource:
    settings = msgspec.convert({"cdiKind": KIND, **more}, NvmlSettings)
    fleet = Fleet(settings.health_rules())
    fleet.found(Found("580", list(gpus)))
    made = NvmlSource("nvidia.com/gpu", settings, HostOfGpus.seen_at(str(root), settings, delivery), fleet)
    made.publish([(gpu, use) for gpu in gpus for use in uses_of(gpu, settings)])
    return made


def test_what_is_wrong_with_the_driver_is_the_reason_of_all(tmp_path: Path) -> None:
    made = source(tmp_path, ONE, TWO, sharing=[{"shares": {"replicas": 2, "mps": {}}}])
    (reason, _), trouble = made.devices.trouble, Trouble("GpuUnreadable", "the driver does not answer")
    assert reason == "MpsNotRunning"
    made._fleet.unread(trouble)
    made.publish(made._uses)
    assert made.devices.trouble == ("GpuUnreadable", "the driver does not answer (GpuUnreadable)")


@pytest.fixture
def files(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The device files that the host has."""
    there = {
        "/dev/nvidia1",
        "/dev/nvidia2",
        "/dev/nvidia-caps/nvidia-cap1",
        "/dev/nvidia-caps/nvidia-cap2",
        *NEEDED_NODES,
    }
    numbers = {path: f"c195:{number}" for number, path in enumerate(sorted(there))}
    monkeypatch.setattr(
        "nodedevice_agent.plugins.nvml.host_files.number_of",
        lambda root, path: numbers.get(path, "") if path in there else "",
    )
    return there


BY_KUBELET, OLD_RUNTIME = Delivery(by_kubelet=True), Delivery(takes_cdi=False)


@pytest.mark.parametrize("hand_over", [["auto"], ["deviceNodes"], ["env", "deviceNodes"]])
@pytest.mark.parametrize("missing", ["/dev/nvidia2", "/dev/nvidia-uvm"])
async def test_a_missing_device_file_is_waited_for(
    tmp_path: Path, files: set[str], hand_over: list[str], missing: str
) -> None:
    files.discard(missing)
    made = source(tmp_path, ONE, TWO, handOver=hand_over)
    reason, message = made.devices.trouble
    assert reason == "DeviceFileMissing"
    assert message.startswith(
        f"{missing} missing on the node, which containers with GPUs are given: load the driver's modules"
    )
    with pytest.raises(AllocationRefused, match=f"{missing} missing on the node"):
        made.allocate(["GPU-2"], SOMEBODY)
    files.add(missing)
    made.publish(made._uses)
    assert made.devices.trouble == ("", "")
    assert f"{NEEDED_NODES[1]}" in [node.host_path for node in made.allocate(["GPU-2"], SOMEBODY).device_nodes]


def test_files_that_no_container_is_given_are_not_missed(tmp_path: Path, files: set[str]) -> None:
    files.clear()
    assert source(tmp_path, ONE, handOver=["env", "cdi"]).devices.trouble == ("", "")
    # an agent that sees no file of the driver
    assert source(tmp_path, ONE).devices.trouble == ("", "")
    # nor those of a GPU that is not given
    made = source(tmp_path, ONE, handOver=["deviceNodes"])
    assert made.devices.trouble[1].startswith("/dev/nvidia-uvm and /dev/nvidia1 and /dev/nvidiactl missing")
    made._fleet.ecc("GPU-1")
    made.publish(made._uses)
    assert made.devices.trouble == ("", "")


def test_the_capability_files_of_an_instance_are_waited_for(tmp_path: Path, files: set[str]) -> None:
    minors = tmp_path / "proc/driver/nvidia-caps/mig-minors"
    minors.parent.mkdir(parents=True)
    minors.write_text("gpu1/gi1/access 1\ngpu1/gi1/ci0/access 2\n")
    files.discard("/dev/nvidia-caps/nvidia-cap2")
    made = source(tmp_path, DIVIDED, mig="single", handOver=["deviceNodes"])
    assert made.devices.trouble[1].startswith("/dev/nvidia-caps/nvidia-cap2 missing")
    with pytest.raises(AllocationRefused, match="/dev/nvidia-caps/nvidia-cap2 missing"):
        made.allocate(["MIG-1"], SOMEBODY)


async def test_files_are_not_missed_of_an_instance_that_is_given_by_cdi(tmp_path: Path, files: set[str]) -> None:
    """Its GPU, which nobody is given, has no name in the specifications."""
    write(tmp_path, "a.json", spec("MIG-1"))
    files.discard("/dev/nvidia-uvm")
    made = source(tmp_path, DIVIDED, mig="single")
    await made.read_files()
    assert made.devices.trouble == ("", "")


class TestTheWay:
    @pytest.mark.parametrize(
        ("named", "delivery", "missing", "ways"),
        [
            pytest.param("GPU-1 GPU-2", Delivery(), "", "cdi", id="named"),
            pytest.param("GPU-1 GPU-2", BY_KUBELET, "", "cdi,env", id="named, by a kubelet"),
            pytest.param("GPU-1 GPU-2", OLD_RUNTIME, "", "env,deviceNodes", id="named, and no CDI by NRI"),
            pytest.param("GPU-1", Delivery(), "", "env,deviceNodes", id="one of two named"),
            pytest.param("0 1 all", Delivery(), "", "env,deviceNodes", id="named by index"),
            pytest.param("", Delivery(), "", "env,deviceNodes", id="none named"),
            pytest.param("", BY_KUBELET, "", "env", id="none named, by a kubelet"),
            pytest.param("", Delivery(), "/dev/nvidia2 /dev/nvidiactl", "env", id="without a file of the driver"),
        ],
    )
    async def test_by_the_specifications_and_the_delivery(
        self, tmp_path: Path, files: set[str], named: str, delivery: Delivery, missing: str, ways: str
    ) -> None:
        files.difference_update(missing.split())
        write(tmp_path, "nvidia.json", spec(*named.split()))
        made = source(tmp_path, ONE, TWO, delivery=delivery)
        await made.read_files()
        given = made.allocate(["GPU-1", "GPU-2"], None if delivery.by_kubelet else SOMEBODY)
        assert ("cdi" in ways) is (given.cdi_devices == ("nvidia.com/gpu=GPU-1", "nvidia.com/gpu=GPU-2"))
        assert ("env" in ways) is (given.env == {"NVIDIA_VISIBLE_DEVICES": "GPU-1,GPU-2"})
        paths = [node.host_path for node in given.device_nodes]
        assert ("deviceNodes" in ways) is (paths[:2] == ["/dev/nvidia1", "/dev/nvidia2"])

    @pytest.mark.parametrize(("named", "ways"), [("MIG-1", "cdi"), ("GPU-1", "env,deviceNodes")])
    async def test_of_an_instance(self, tmp_path: Path, files: set[str], named: str, ways: str) -> None:
        minors = tmp_path / "proc/driver/nvidia-caps/mig-minors"
        minors.parent.mkdir(parents=True)
        minors.write_text("gpu1/gi1/access 1\ngpu1/gi1/ci0/access 2\n")
        write(tmp_path, "nvidia.json", spec(named))
        made = source(tmp_path, DIVIDED, mig="single")
        await made.read_files()
        (device,) = made.devices.latest
        assert dict(device.attributes)["handOver"] == ways
        assert bool(made.allocate(["MIG-1"], SOMEBODY).cdi_devices) is (ways == "cdi")

    async def test_is_shown_and_decided_at_each_allocate(self, tmp_path: Path, files: set[str]) -> None:
        made = source(tmp_path, ONE)

        def shown() -> str:
            return dict(made.devices.latest[0].attributes)["handOver"]

        service = DevicePluginService(made)
        request = api_pb2.ContainerAllocateRequest(devices_ids=["GPU-1"])
        request.MergeFromString(
            device_details_pb2.ContainerAllocateDetails(pod_uid="uid", container="main").SerializeToString()
        )
        whole = api_pb2.AllocateRequest(container_requests=[request])
        first = await service.Allocate(whole, None)  # type: ignore[arg-type]
        assert (shown(), list(first.container_responses[0].cdi_devices)) == ("env,deviceNodes", [])
        write(tmp_path, "nvidia.json", spec("GPU-1"))
        then = await service.Allocate(whole, None)  # type: ignore[arg-type]
        assert (shown(), then.container_responses[0].cdi_devices[0].name) == ("cdi", "nvidia.com/gpu=GPU-1")

    @pytest.mark.parametrize("way", ["env", "deviceNodes", "cdi"])
    async def test_that_is_set_is_not_decided(self, tmp_path: Path, files: set[str], way: str) -> None:
        write(tmp_path, "nvidia.json", spec("GPU-1"))
        made = source(tmp_path, ONE, handOver=[way])
        await made.read_files()
        given = made.allocate(["GPU-1"], SOMEBODY)
        ways = {"env": given.env, "deviceNodes": given.device_nodes, "cdi": given.cdi_devices}
        assert [name for name, edits in ways.items() if edits] == [way]
        assert "handOver" not in dict(made.devices.latest[0].attributes)

"""handOver auto: what the node's CDI specifications name, and by which way a container gets its GPUs."""

import json
from pathlib import Path

import msgspec
import pytest
from nodedevice_agent.lib.deviceplugin_server.server import DevicePluginService
from nodedevice_agent.lib.deviceplugin_server.values import AllocationRefused, Injector
from nodedevice_agent.plugins.nvml.cdi_specs import CdiSpecs
from nodedevice_agent.plugins.nvml.devices import NEEDED_NODES
from nodedevice_agent.plugins.nvml.driver_troubles import Trouble
from nodedevice_agent.plugins.nvml.gpu import Gpu
from nodedevice_agent.plugins.nvml.mig import CAPABILITY_MINORS, MigInstance
from nodedevice_api import device_details_pb2
from nodedevice_api.upstream.kubelet.deviceplugin.v1beta1 import api_pb2

from tests.unit.node_agent.plugins.nvml.sources import SOMEBODY, Served, device_file, place

KIND = "nvidia.com/gpu"
ONE, TWO = (Gpu(f"GPU-{n}", "T4", pci_bus_id=f"0000:{n}a:00.0", minor=n) for n in (1, 2))
DIVIDED = msgspec.structs.replace(ONE, instances=(MigInstance("MIG-1", "1g.10gb", 1, 0, 10000),))
NONE_BESIDES = ["A=b", "NVIDIA_VISIBLE_DEVICES=void"]


def spec(*names: str, kind: str = KIND) -> str:
    devices = [{"name": name, "containerEdits": {"env": ["A=b"]}} for name in names]
    return json.dumps({"cdiVersion": "0.6.0", "kind": kind, "devices": devices, "containerEdits": {}})


def write(root: Path, name: str, content: str, directory: str = "etc/cdi") -> Path:
    """Another file each time, as one that is moved there."""
    file = place(root, f"{directory}/{name}")
    file.with_name("new").write_text(content)
    return file.with_name("new").rename(file)


class TestSpecifications:
    async def test_one_that_cannot_be_read_is_named_once_and_costs_no_other(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        path = write(tmp_path, "a.json", "[" * 100_000)
        write(tmp_path, "b.json", spec("GPU-1"))
        specs = CdiSpecs(str(tmp_path), KIND)
        for _ in range(3):
            await specs.refresh()
        assert specs.specs.names.keys() == {"GPU-1"}
        (record,) = caplog.records
        assert str(path) in record.error  # type: ignore[attr-defined]
        assert len(record.error) < 1000  # type: ignore[attr-defined]

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
        made = Served(tmp_path, ONE).source
        await made.read_files()
        given = made.allocate(["GPU-1"], SOMEBODY)
        assert given.cdi_devices == ("nvidia.com/gpu=GPU-1",)
        assert given.env == ({"NVIDIA_VISIBLE_DEVICES": "void"} if is_void else {})
        assert made.allocate(["GPU-1"], None).env == {"NVIDIA_VISIBLE_DEVICES": "GPU-1"}


def test_what_is_wrong_with_the_driver_is_the_reason_of_all(tmp_path: Path) -> None:
    served = Served(tmp_path, ONE, TWO, sharing=[{"shares": {"replicas": 2, "mps": {}}}])
    assert served.source.devices.trouble[0] == "MpsNotRunning"
    served.fleet.unread(Trouble("GpuUnreadable", "the driver does not answer"))
    served.publish()
    assert served.source.devices.trouble == ("GpuUnreadable", "the driver does not answer (GpuUnreadable)")


CAPS = "/dev/nvidia-caps/nvidia-cap"


@pytest.fixture
def host(tmp_path: Path) -> Path:
    """With the device files of two GPUs and of an instance of the first one."""
    for path in ("/dev/nvidia1", "/dev/nvidia2", f"{CAPS}1", f"{CAPS}2", *NEEDED_NODES):
        device_file(tmp_path, path)
    place(tmp_path, CAPABILITY_MINORS).write_text("gpu1/gi1/access 1\ngpu1/gi1/ci0/access 2\n")
    return tmp_path


BY_KUBELET, OLD_RUNTIME = Injector(is_kubelet=True), Injector(takes_cdi=False)


@pytest.mark.parametrize("hand_over", [["auto"], ["deviceNodes"], ["env", "deviceNodes"]])
@pytest.mark.parametrize("missing", ["/dev/nvidia2", "/dev/nvidia-uvm"])
async def test_a_missing_device_file_is_waited_for(host: Path, hand_over: list[str], missing: str) -> None:
    (host / missing[1:]).unlink()
    served = Served(host, ONE, TWO, handOver=hand_over)
    made = served.source
    reason, message = made.devices.trouble
    assert reason == "DeviceFileMissing"
    assert message.startswith(f"{missing} missing on the node, which containers with GPUs are given: load the driver's")
    with pytest.raises(AllocationRefused, match=f"{missing} missing on the node"):
        made.allocate(["GPU-2"], SOMEBODY)
    device_file(host, missing)
    served.publish()
    assert made.devices.trouble == ("", "")
    assert NEEDED_NODES[1] in [node.host_path for node in made.allocate(["GPU-2"], SOMEBODY).device_nodes]


def test_files_that_no_container_is_given_are_not_missed(tmp_path: Path) -> None:
    assert Served(tmp_path, ONE, handOver=["env", "cdi"]).source.devices.trouble == ("", "")
    # an agent that sees no file of the driver
    assert Served(tmp_path, ONE).source.devices.trouble == ("", "")
    # nor those of a GPU that is not given
    served = Served(tmp_path, ONE, handOver=["deviceNodes"])
    assert served.source.devices.trouble[1].startswith("/dev/nvidia-uvm and /dev/nvidia1 and /dev/nvidiactl missing")
    served.fleet.ecc("GPU-1")
    served.publish()
    assert served.source.devices.trouble == ("", "")


def test_the_capability_files_of_an_instance_are_waited_for(host: Path) -> None:
    (host / f"{CAPS}2"[1:]).unlink()
    made = Served(host, DIVIDED, mig="single", handOver=["deviceNodes"]).source
    assert made.devices.trouble[1].startswith(f"{CAPS}2 missing")
    with pytest.raises(AllocationRefused, match=f"{CAPS}2 missing"):
        made.allocate(["MIG-1"], SOMEBODY)


async def test_files_are_not_missed_of_an_instance_that_is_given_by_cdi(host: Path) -> None:
    """Its GPU, which nobody is given, has no name in the specifications."""
    write(host, "a.json", spec("MIG-1"))
    (host / "dev/nvidia-uvm").unlink()
    made = Served(host, DIVIDED, mig="single").source
    await made.read_files()
    assert made.devices.trouble == ("", "")


class TestTheWay:
    @pytest.mark.parametrize(
        ("named", "injector", "missing", "ways"),
        [
            pytest.param("GPU-1 GPU-2", Injector(), "", "cdi", id="named"),
            pytest.param("GPU-1 GPU-2", BY_KUBELET, "", "cdi,env", id="named, by a kubelet"),
            pytest.param("GPU-1 GPU-2", OLD_RUNTIME, "", "env,deviceNodes", id="named, and no CDI by NRI"),
            pytest.param("GPU-1", Injector(), "", "env,deviceNodes", id="one of two named"),
            pytest.param("0 1 all", Injector(), "", "env,deviceNodes", id="named by index"),
            pytest.param("", Injector(), "", "env,deviceNodes", id="none named"),
            pytest.param("", BY_KUBELET, "", "env", id="none named, by a kubelet"),
            pytest.param("", Injector(), "/dev/nvidia2 /dev/nvidiactl", "env", id="without a file of the driver"),
        ],
    )
    async def test_by_the_specifications_and_the_delivery(
        self, host: Path, named: str, injector: Injector, missing: str, ways: str
    ) -> None:
        for path in missing.split():
            (host / path[1:]).unlink()
        write(host, "nvidia.json", spec(*named.split()))
        made = Served(host, ONE, TWO, injector=injector).source
        await made.read_files()
        given = made.allocate(["GPU-1", "GPU-2"], None if injector.is_kubelet else SOMEBODY)
        assert ("cdi" in ways) is (given.cdi_devices == ("nvidia.com/gpu=GPU-1", "nvidia.com/gpu=GPU-2"))
        assert ("env" in ways) is (given.env == {"NVIDIA_VISIBLE_DEVICES": "GPU-1,GPU-2"})
        paths = [node.host_path for node in given.device_nodes]
        assert ("deviceNodes" in ways) is (paths[:2] == ["/dev/nvidia1", "/dev/nvidia2"])

    @pytest.mark.parametrize("way", ["env", "deviceNodes", "cdi"])
    async def test_that_is_set_is_not_decided(self, host: Path, way: str) -> None:
        write(host, "nvidia.json", spec("GPU-1"))
        made = Served(host, ONE, handOver=[way]).source
        await made.read_files()
        given = made.allocate(["GPU-1"], SOMEBODY)
        ways = {"env": given.env, "deviceNodes": given.device_nodes, "cdi": given.cdi_devices}
        assert [name for name, edits in ways.items() if edits] == [way]
        assert "handOver" not in dict(made.devices.latest[0].attributes)

    async def test_is_shown_and_decided_at_each_allocate(self, host: Path) -> None:
        made = Served(host, ONE).source

        def shown() -> str:
            return dict(made.devices.latest[0].attributes)["handOver"]

        service = DevicePluginService(made)
        request = api_pb2.ContainerAllocateRequest(devices_ids=["GPU-1"])
        details = device_details_pb2.ContainerAllocateDetails(pod_uid="uid", container="main")
        request.MergeFromString(details.SerializeToString())
        whole = api_pb2.AllocateRequest(container_requests=[request])
        first = await service.Allocate(whole, None)  # type: ignore[arg-type]
        assert (shown(), list(first.container_responses[0].cdi_devices)) == ("env,deviceNodes", [])
        write(host, "nvidia.json", spec("GPU-1"))
        then = await service.Allocate(whole, None)  # type: ignore[arg-type]
        assert (shown(), then.container_responses[0].cdi_devices[0].name) == ("cdi", "nvidia.com/gpu=GPU-1")

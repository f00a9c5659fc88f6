"""The edits of several device plugins for one container, merged."""

import pytest
from msgspec.structs import replace
from nodedevice_agent.devicemanager.allocation.container_edits import (
    ContainerEdits,
    ContainerMount,
    DeviceFile,
    EditConflict,
    merged,
    normalized,
    unrestricted,
    without,
)

NOTHING = ContainerEdits({}, (), (), {}, ())
GPU = ContainerEdits(
    {"GPU": "0"},
    (ContainerMount("/lib/gpu", "/opt/gpu", True),),
    (DeviceFile("/dev/gpu0", "/dev/gpu0", "rw"),),
    {"gpu": "0"},
    ("vendor.com/gpu=0",),
)
NIC = ContainerEdits(
    {"NIC": "1"},
    (ContainerMount("/lib/nic", "/opt/nic", False),),
    (DeviceFile("/dev/nic1", "/dev/nic1", "r"),),
    {"nic": "1"},
    ("vendor.com/nic=1",),
)


@pytest.mark.kubelet("scenario 49")
def test_no_edits() -> None:
    assert merged({}) == (NOTHING, ())
    assert merged({"vendor.com/gpu": NOTHING}) == (NOTHING, ())


@pytest.mark.kubelet("scenario 50")
def test_the_edits_of_one_plugin_stay_unchanged() -> None:
    assert merged({"vendor.com/gpu": GPU}) == (GPU, ())


@pytest.mark.kubelet("behaviour 62", "scenario 51")
def test_two_resources_are_merged_in_order_of_their_names() -> None:
    both = ContainerEdits(
        {"GPU": "0", "NIC": "1"},
        GPU.mounts + NIC.mounts,
        GPU.devices + NIC.devices,
        {"gpu": "0", "nic": "1"},
        ("vendor.com/gpu=0", "vendor.com/nic=1"),
    )
    assert merged({"vendor.com/nic": NIC, "vendor.com/gpu": GPU}) == (both, ())


@pytest.mark.kubelet("scenario 52")
def test_a_repeated_cdi_device_is_included_once_without_a_conflict() -> None:
    cdi = replace(NOTHING, cdi_devices=("vendor.com/gpu=0", "vendor.com/gpu=0"))
    edits, conflicts = merged({"vendor.com/gpu": cdi, "vendor.com/other": cdi})
    assert (edits.cdi_devices, conflicts) == (("vendor.com/gpu=0",), ())


def test_equal_values_are_no_conflict() -> None:
    assert merged({"vendor.com/gpu": GPU, "vendor.com/other": GPU}) == (GPU, ())


@pytest.mark.kubelet("behaviour 62", "weak spot 24")
def test_in_a_conflict_the_first_resource_by_name_wins() -> None:
    other = ContainerEdits(
        {"GPU": "7"},
        (ContainerMount("/lib/gpu", "/elsewhere", True),),
        (DeviceFile("/dev/gpu0", "/dev/gpu0", "r"),),
        {"gpu": "7"},
        (),
    )
    edits, conflicts = merged({"vendor.com/zzz": other, "vendor.com/gpu": GPU})
    assert edits == GPU
    assert conflicts == tuple(
        EditConflict(what, name, "vendor.com/gpu", "vendor.com/zzz")
        for what, name in (("env", "GPU"), ("mount", "/lib/gpu"), ("device", "/dev/gpu0"), ("annotation", "gpu"))
    )


class TestWithout:
    @pytest.mark.parametrize("own", ["/coll", "/x/../coll"])
    @pytest.mark.parametrize("plugins", ["/coll", "/coll/", "//coll/."])
    def test_paths_are_normalized(self, own: str, plugins: str) -> None:
        wanted = replace(
            NOTHING, mounts=(ContainerMount(plugins, "/srv", False), ContainerMount("/coll/sub", "/srv", False))
        )
        left, words = without(wanted, (), {normalized(own)})
        assert left == replace(NOTHING, mounts=(ContainerMount("/coll/sub", "/srv", False),))
        assert words == (f"mount {plugins}",)

    def test_environment_variables_by_name(self) -> None:
        wanted = replace(NOTHING, envs={"OWN": "plugin", "OTHER": "plugin"})
        assert without(wanted, {"OWN", "MORE"}, ()) == (replace(NOTHING, envs={"OTHER": "plugin"}), ("env OWN",))

    def test_nothing_to_remove(self) -> None:
        assert without(GPU, {"MORE"}, {"/more"}) == (GPU, ())


@pytest.mark.parametrize(
    ("permissions", "result"), [("r", "rwm"), ("rwm", "rwm"), ("m", "mrw"), ("rx", "rxwm"), ("", "")]
)
def test_unrestricted(permissions: str, result: str) -> None:
    (device,) = unrestricted(replace(NOTHING, devices=(DeviceFile("/dev/a", "/dev/b", permissions),))).devices
    assert device == DeviceFile("/dev/a", "/dev/b", result)

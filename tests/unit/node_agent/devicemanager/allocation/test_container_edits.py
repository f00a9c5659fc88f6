"""The edits of several device plugins for one container, merged."""

import pytest
from msgspec.structs import replace
from nodedevice_agent.devicemanager.container_edits import (
    ContainerEdits,
    ContainerMount,
    DeviceFile,
    EditConflict,
    in_normal_form,
    merged,
    normalized,
    unrestricted,
    without,
)

NOTHING = ContainerEdits({}, (), (), {}, ())
GPU, NIC = (
    ContainerEdits(
        {name.upper(): "0"},
        (ContainerMount(f"/lib/{name}", f"/opt/{name}", read_only),),
        (DeviceFile(f"/dev/{name}", f"/dev/{name}", "rw"),),
        {name: "0"},
        (f"vendor.com/{name}=0",),
    )
    for name, read_only in (("gpu", True), ("nic", False))
)


@pytest.mark.kubelet("scenario 49", "scenario 50")
@pytest.mark.parametrize("edits", [NOTHING, GPU])
def test_equal_edits_of_one_plugin_or_several_stay_as_they_are(edits: ContainerEdits) -> None:
    assert merged({"vendor.com/gpu": edits}) == (edits, ())
    assert merged({"vendor.com/gpu": edits, "vendor.com/other": edits}) == (edits, ())


@pytest.mark.kubelet("behaviour 62", "scenario 51")
def test_two_resources_are_merged_in_order_of_their_names() -> None:
    both = ContainerEdits(
        {"GPU": "0", "NIC": "0"},
        GPU.mounts + NIC.mounts,
        GPU.devices + NIC.devices,
        {"gpu": "0", "nic": "0"},
        ("vendor.com/gpu=0", "vendor.com/nic=0"),
    )
    assert merged({"vendor.com/nic": NIC, "vendor.com/gpu": GPU}) == (both, ())


@pytest.mark.kubelet("scenario 52")
def test_a_repeated_cdi_device_is_included_once_without_a_conflict() -> None:
    cdi = replace(NOTHING, cdi_devices=("vendor.com/gpu=0", "vendor.com/gpu=0"))
    edits, conflicts = merged({"vendor.com/gpu": cdi, "vendor.com/other": cdi})
    assert (edits.cdi_devices, conflicts) == (("vendor.com/gpu=0",), ())


@pytest.mark.kubelet("behaviour 62", "weak spot 24")
def test_in_a_conflict_the_first_resource_by_name_wins() -> None:
    other = ContainerEdits({"GPU": "7"}, (ContainerMount("/lib/gpu", "/elsewhere", True),), (), {"gpu": "7"}, ())
    edits, conflicts = merged({"vendor.com/zzz": other, "vendor.com/gpu": GPU})
    assert edits == GPU
    assert conflicts == tuple(
        EditConflict(what, name, "vendor.com/gpu", "vendor.com/zzz")
        for what, name in (("env", "GPU"), ("mount", "/lib/gpu"), ("annotation", "gpu"))
    )


# One file, and one mount, as two plugins may write them.
SPELLINGS = ["/dev/x", "//dev/x", "/dev//x", "/dev/./x", "/dev/x/", "/./dev///x/."]
PERMISSIONS = ["r", "w", "m", "rw", "wr", "mrw", "rwm", "rrr"]


def responses(one: ContainerEdits, other: ContainerEdits) -> list[ContainerEdits]:
    """Merged in each way in which they can come together: of two resources, and in one response."""
    together = replace(one, mounts=one.mounts + other.mounts, devices=one.devices + other.devices)
    pairs = [{"vendor.com/a": one, "vendor.com/b": other}, {"vendor.com/a": other, "vendor.com/b": one}]
    all_edits = []
    for pair in [*pairs, {"a": together}]:
        edits, conflicts = merged({name: in_normal_form(edits) for name, edits in pair.items()})
        assert conflicts == ()
        all_edits.append(edits)
    return all_edits


@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("permissions", PERMISSIONS)
@pytest.mark.parametrize("others", PERMISSIONS)
def test_one_file_has_the_permissions_of_all(spelling: str, permissions: str, others: str) -> None:
    one = replace(NOTHING, devices=(DeviceFile("/dev/given", "/dev/x", permissions),))
    other = replace(NOTHING, devices=(DeviceFile("dev/./given", spelling, others),))
    union = "".join(letter for letter in "rwm" if letter in permissions + others)
    for edits in responses(one, other):
        assert edits.devices == (DeviceFile("/dev/given", "/dev/x", union),)


@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("read_only", [True, False])
@pytest.mark.parametrize("others", [True, False])
def test_one_mount_is_writable_if_one_of_them_is(spelling: str, read_only: bool, others: bool) -> None:
    one = replace(NOTHING, mounts=(ContainerMount("/in", "/dev/x", read_only),))
    other = replace(NOTHING, mounts=(ContainerMount("//in/", spelling, others),))
    for edits in responses(one, other):
        assert edits.mounts == (ContainerMount("/in", "/dev/x", read_only and others),)


def test_a_device_without_a_path_in_the_container_has_the_hosts() -> None:
    assert in_normal_form(replace(NOTHING, devices=(DeviceFile("", "/dev//x", "wr"),))).devices == (
        DeviceFile("/dev/x", "/dev/x", "rw"),
    )


@pytest.mark.parametrize("path", ["/dev/../x", "/dev/link/../x", "dev/x", ""])
def test_of_a_path_of_the_host_only_what_cannot_matter_is_changed(path: str) -> None:
    assert in_normal_form(replace(NOTHING, mounts=(ContainerMount("/in", path, True),))).mounts[0].host_path == path


class TestCdiDevicesByAnnotation:
    """Source: pkg/cdi/annotations.go and pkg/parser/parser.go @ v1.1.1."""

    @pytest.mark.parametrize(
        ("annotations", "names"),
        [
            ({"cdi.k8s.io/a": "v.com/c=d"}, ["v.com/c=d"]),
            ({"cdi.k8s.io/a": "v/c=d,v/c=e,w.com/c_1.x=0:1.f"}, ["v/c=d", "v/c=e", "w.com/c_1.x=0:1.f"]),
            ({"cdi.k8s.io/b": "v.com/c=b", "cdi.k8s.io/a": "v.com/c=a"}, ["v.com/c=a", "v.com/c=b"]),
            ({"cdi.k8s.io/a": "V/c=0", "cdi.k8s.io/b": "V/c=0"}, ["V/c=0"]),
            ({"cdi.k8s.io/": "v/c=d"}, ["v/c=d"]),
        ],
    )
    def test_they_join_the_others(self, annotations: dict[str, str], names: list[str]) -> None:
        edits = replace(NOTHING, annotations={"other": "1", **annotations}, cdi_devices=("first.com/c=d", names[-1]))
        found = in_normal_form(edits)
        assert found.annotations == {"other": "1"}
        assert found.cdi_devices == tuple(dict.fromkeys(["first.com/c=d", names[-1], *names]))

    @pytest.mark.parametrize(
        "value",
        [
            *("", ",", "v.com/c=d,", ",v.com/c=d", "v.com/c=d, v.com/c=e", " v.com/c=d", "v.com/c=d\n"),
            *("d", "c=d", "/c=d", "v.com/=d", "v.com/c=", "v.com=d", "v.com/c/e=d", "v.com/c=d=e", "v.com/c=d/e"),
            *("1v/c=d", "v/1c=d", "v./c=d", "v/c_=d", "v/c=_d", "v/c=d:", "v/c=d e", "ü/c=d", "v/c=٣"),
        ],
    )
    def test_what_names_none_stays_to_be_refused(self, value: str) -> None:
        edits = replace(NOTHING, annotations={"cdi.k8s.io/a": value})
        assert in_normal_form(edits) == edits

    def test_two_resources_may_have_one_annotation(self) -> None:
        """Of one plugin: its key need not have the resource's name."""
        one, other = (replace(NOTHING, annotations={"cdi.k8s.io/vendor": f"v.com/{name}=0"}) for name in "ab")
        found = merged({"v.com/a": in_normal_form(one), "v.com/b": in_normal_form(other)})
        assert found == (replace(NOTHING, cdi_devices=("v.com/a=0", "v.com/b=0")), ())


class TestWithout:
    @pytest.mark.parametrize("own", ["/coll", "/x/../coll"])
    @pytest.mark.parametrize("plugins", ["/coll", "/coll/", "//coll/."])
    def test_paths_are_normalized(self, own: str, plugins: str) -> None:
        stays, goes = (ContainerMount(path, "/srv", False) for path in ("/coll/sub", plugins))
        found = without(replace(NOTHING, mounts=(goes, stays)), (), {normalized(own)})
        assert found == (replace(NOTHING, mounts=(stays,)), (f"mount {plugins}",))

    def test_environment_variables_by_name(self) -> None:
        wanted = replace(NOTHING, envs={"OWN": "plugin", "OTHER": "plugin"})
        assert without(wanted, {"OWN", "MORE"}, ()) == (replace(NOTHING, envs={"OTHER": "plugin"}), ("env OWN",))


@pytest.mark.parametrize(
    ("permissions", "result"), [("r", "rwm"), ("rwm", "rwm"), ("m", "rwm"), ("rx", "rwmx"), ("", "")]
)
def test_unrestricted(permissions: str, result: str) -> None:
    (device,) = unrestricted(replace(NOTHING, devices=(DeviceFile("/dev/a", "/dev/b", permissions),))).devices
    assert device == DeviceFile("/dev/a", "/dev/b", result)

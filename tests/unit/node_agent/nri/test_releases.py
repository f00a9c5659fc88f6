"""Which features of NRI each release of a container runtime has."""

import pytest
from nodedevice_agent.devicemanager.container_edits import ContainerEdits
from nodedevice_agent.devicemanager.runtime import InjectionRefused
from nodedevice_agent.nri.releases import check_cdi, check_command, has_validators

PLAIN = ContainerEdits({"A": "b"})
BY_CDI = ContainerEdits(cdi_devices=("vendor.com/gpu=0",))


@pytest.mark.parametrize(
    ("name", "version", "cdi", "validators"),
    [
        ("containerd", "v2.4.2", True, True),
        ("containerd", "2.2.0-rc.0", True, True),
        ("containerd", "2.1.0-beta.1+unknown", True, False),
        ("containerd", "v2.1.4", True, False),
        ("containerd", "v2.0.7", False, False),
        ("cri-o", "1.35.0", True, True),
        ("cri-o", "1.34.0", True, None),
        ("cri-o", "1.33.9", False, False),
        ("CRI-O", "v1.9.9", False, False),
        ("containerd", "from a branch", True, None),
        ("containerd", "", True, None),
        ("another", "0.1", True, None),
    ],
)
def test_releases(name: str, version: str, cdi: bool, validators: bool | None) -> None:
    assert has_validators(name, version) is validators
    check_cdi(PLAIN, name, version)
    if validators is False:
        with pytest.raises(InjectionRefused, match=r"command of container main has \$\(A\), .* update it"):
            check_command("main", ["app", "--x=$(A)"], {"B", "A"}, name, version)
    else:
        check_command("main", ["app", "--x=$(A)"], {"B", "A"}, name, version)
    if cdi:
        check_cdi(BY_CDI, name, version)
        return
    with pytest.raises(InjectionRefused, match=r"vendor\.com/gpu=0 .* update it"):
        check_cdi(BY_CDI, name, version)

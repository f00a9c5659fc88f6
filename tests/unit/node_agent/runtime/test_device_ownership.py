"""Whose device files in containers are: by the agent's setting, or as the runtime's configuration has it."""

import itertools
import logging
import os
import threading
from pathlib import Path

import pytest
from nodedevice_agent.devicemanager.pods import ContainerSettings
from nodedevice_agent.devicemanager.runtime import DeviceOwner, InjectionRefused
from nodedevice_agent.runtime import device_ownership
from nodedevice_agent.runtime.device_ownership import OPTION, DeviceOwnership
from nodedevice_agent.runtime.runtime_config import ConfigUnreadable, is_set

V3 = f"version = 3\n[plugins.'io.containerd.cri.v1.runtime']\n{OPTION} = %s\n"
V2 = f'version = 2\n[plugins."io.containerd.grpc.v1.cri"]\n{OPTION} = %s\n'
V1 = f"[plugins.cri]\n{OPTION} = %s\n"
CRIO = f"[crio.runtime]\n{OPTION} = %s\n"


class TestOwner:
    @pytest.mark.parametrize(
        ("own", "user_of_image", "expected"),
        [
            (ContainerSettings(), 0, DeviceOwner(0, 0)),
            (ContainerSettings(run_as_user=1000), 0, DeviceOwner(1000, 0)),
            (ContainerSettings(run_as_group=2000), 0, DeviceOwner(0, 2000)),
            (ContainerSettings(run_as_user=1000, run_as_group=2000), 5, DeviceOwner(1000, 2000)),
            (ContainerSettings(run_as_user=0, run_as_group=0), 0, DeviceOwner(0, 0)),
            # the kubelet asks for the image's user, and for no group of it
            (ContainerSettings(), 65532, DeviceOwner(65532, 0)),
            (ContainerSettings(run_as_user=2**32 + 7), 0, DeviceOwner(7, 0)),
        ],
    )
    async def test_the_containers(self, own: ContainerSettings, user_of_image: int, expected: DeviceOwner) -> None:
        assert await DeviceOwnership("container", "").owner(own, user_of_image) == expected
        assert await DeviceOwnership("host", "").owner(own, user_of_image) == DeviceOwner()


class TestAsTheRuntimeHasIt:
    @pytest.mark.parametrize(("content", "is_on"), [*itertools.product([V3, V2, V1], [True, False])])
    def test_in_each_version_of_the_format(self, content: str, is_on: bool, tmp_path: Path) -> None:
        (tmp_path / "config.toml").write_text(content % str(is_on).lower())
        assert is_set(tmp_path / "config.toml", OPTION) is is_on

    @pytest.mark.parametrize("imports", ['["more.toml"]', '["{}/more.toml"]', '["./m*.toml"]', '["{}/*.toml"]'])
    def test_in_a_file_that_is_imported(self, imports: str, tmp_path: Path) -> None:
        (tmp_path / "config.toml").write_text(f"imports = {imports.format(tmp_path)}\nversion = 3\n")
        (tmp_path / "more.toml").write_text(V3 % "true")
        assert is_set(tmp_path / "config.toml", OPTION)

    def test_without_a_file_containerd_reads_a_directory(self, tmp_path: Path) -> None:
        (tmp_path / "conf.d").mkdir()
        (tmp_path / "conf.d/a.toml").write_text(V3 % "true")
        # no file, whatever it is called
        (tmp_path / "conf.d/b.toml").mkdir()
        assert is_set(tmp_path / "config.toml", OPTION)
        (tmp_path / "config.toml").write_text("version = 3")
        assert not is_set(tmp_path / "config.toml", OPTION)

    @pytest.mark.parametrize(("first", "last"), [*itertools.product(["true", "false"], repeat=2)])
    def test_of_cri_o_the_last_file_counts(self, first: str, last: str, tmp_path: Path) -> None:
        (tmp_path / "crio.conf").write_text(CRIO % first)
        (tmp_path / "crio.conf.d").mkdir()
        (tmp_path / "crio.conf.d/10-last").write_text(CRIO % last)
        (tmp_path / "crio.conf.d/00-other").write_text("[crio.runtime]\nlog_level = 'info'\n")
        assert is_set(tmp_path / "crio.conf", OPTION) is (last == "true")
        (tmp_path / "crio.conf").unlink()
        assert is_set(tmp_path / "crio.conf", OPTION) is (last == "true")

    @pytest.mark.parametrize(
        ("content", "named"),
        [
            pytest.param(None, "does not exist here", id="none"),
            pytest.param(b"version = ", "not valid TOML", id="cut off"),
            pytest.param(b"\xff\xfe", "not valid TOML", id="no text"),
            pytest.param(b"a = " + b"[" * 5000, "not valid TOML", id="deep"),
            pytest.param(b"#" * 600_000, "longer than", id="long"),
            pytest.param(b'imports = ["/none.toml"]', "which .*config.toml imports, does not exist", id="not here"),
        ],
    )
    def test_what_cannot_be_read_is_named(self, content: bytes | None, named: str, tmp_path: Path) -> None:
        if content is not None:
            (tmp_path / "config.toml").write_bytes(content)
        with pytest.raises(ConfigUnreadable, match=named):
            is_set(tmp_path / "config.toml", OPTION)

    def test_more_files_than_any_runtime_has(self, tmp_path: Path) -> None:
        (tmp_path / "config.toml").write_text('imports = ["*/*.toml"]')
        (tmp_path / "d").mkdir()
        # with the one that includes them as many as may be
        for number in range(63):
            (tmp_path / f"d/{number}.toml").write_text(V3 % "true")
        assert is_set(tmp_path / "config.toml", OPTION)
        (tmp_path / "d/63.toml").write_text("version = 3")
        with pytest.raises(ConfigUnreadable, match="more than 64 files"):
            is_set(tmp_path / "config.toml", OPTION)

    @pytest.mark.parametrize(
        "content",
        [
            *("plugins = 1", "imports = 1", "imports = [1]", f"[plugins.cri]\n{OPTION} = 'x'", "[crio]"),
            pytest.param(f"imports = [{{{'.'.join('a' * 50_000)} = 1}}]", id="deep"),
        ],
    )
    def test_another_type_than_containerds_is_not_set(self, content: str, tmp_path: Path) -> None:
        (tmp_path / "config.toml").write_text(content)
        (tmp_path / "1").write_text("")
        assert not is_set(tmp_path / "config.toml", OPTION)

    def test_a_pipe_is_not_waited_for(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "config.toml")
        with pytest.raises(ConfigUnreadable, match="does not exist"):
            is_set(tmp_path / "config.toml", OPTION)

    async def test_it_is_reported_when_it_changes(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO)
        file = tmp_path / "config.toml"
        ownership = DeviceOwnership("auto", str(file))
        own = ContainerSettings(run_as_user=1000)
        for content, owner in [(None, 0), (V3 % "true", 1000), (V3 % "false", 0)]:
            if content is not None:
                file.write_text(content)
            for _ in range(2):
                ownership.connected("containerd")
                assert await ownership.owner(own, 0) == DeviceOwner(owner, 0)
        assert [record.getMessage()[:36] for record in caplog.records] == [
            "device ownership of the runtime is n",
            *["device ownership is the runtime's"] * 2,
        ]
        found = [(vars(record).get("owner"), vars(record)["path"]) for record in caplog.records]
        assert found == [(owner, str(file)) for owner in (None, "container", "host")]

    async def test_one_without_end_refuses_containers(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Neither the first one nor any reading after it is waited for in the event loop, or begun twice."""
        monkeypatch.setattr(device_ownership, "_WAIT_SECONDS", 0.01)
        go_on, begun = threading.Event(), list[Path]()

        def is_set(file: Path, option: str) -> bool:
            begun.append(file)
            go_on.wait()
            return True

        monkeypatch.setattr(device_ownership, "is_set", is_set)
        ownership, own = DeviceOwnership("auto", "/hangs"), ContainerSettings(run_as_user=1000)
        for _ in range(2):
            ownership.connected("containerd")
            with pytest.raises(InjectionRefused, match=r"/hangs; .* set --device-ownership"):
                await ownership.owner(own, 0)
        assert len(begun) == 1
        go_on.set()
        monkeypatch.setattr(device_ownership, "_WAIT_SECONDS", 60.0)
        assert await ownership.owner(own, 0) == DeviceOwner(1000, 0)
        assert len(begun) == 2

    async def test_of_an_unknown_runtime_the_file_is_not_known(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO)
        ownership = DeviceOwnership("auto", "")
        ownership.connected("another")
        assert await ownership.owner(ContainerSettings(run_as_user=1000), 0) == DeviceOwner()
        (record,) = caplog.records
        assert record.__dict__["error"] == "this runtime's configuration file is not known"

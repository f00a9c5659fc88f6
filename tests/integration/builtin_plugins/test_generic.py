"""The generic plugin over real sockets: devices follow the files of the host."""

from pathlib import Path

from tests.fakes.device_manager import Manager
from tests.integration.builtin_plugins.plugins import SERIAL, asking_for, running, serial


async def test_files_appear_and_disappear(manager: Manager, plugin_dir: Path, tmp_path: Path, host: Path) -> None:
    (host / "dev/ttyUSB0").touch()
    async with running(serial(host), plugin_dir, tmp_path):
        await manager.until_listed(SERIAL, ["ttyUSB0"])
        (host / "dev/ttyUSB1").touch()
        await manager.until_listed(SERIAL, ["ttyUSB0", "ttyUSB1"])
        (host / "dev/ttyUSB0").unlink()
        await manager.until_listed(SERIAL, ["ttyUSB1"])
        (host / "dev/ttyUSB1").rename(host / "dev/ttyUSB7")
        await manager.until_listed(SERIAL, ["ttyUSB7"])


async def test_allocate_returns_all_its_edits(manager: Manager, plugin_dir: Path, tmp_path: Path, host: Path) -> None:
    (host / "dev/ttyUSB0").symlink_to("/dev/null")
    (host / "dev/firmware").touch()
    raw = serial(
        host,
        paths=[{"path": "/dev/ttyUSB*", "mountPath": "/dev/modem", "permissions": "rwm"}, {"path": "/dev/firmware"}],
        mounts=[{"hostPath": "/run/modem", "readOnly": True}],
        env={"MODEM": "yes"},
        count=2,
    )
    async with running(raw, plugin_dir, tmp_path):
        await manager.until_listed(SERIAL, ["ttyUSB0::0", "ttyUSB0::1"])
        request = asking_for(["ttyUSB0::0", "ttyUSB0::1"])
        (answer,) = (await manager.dial(SERIAL).Allocate(request)).container_responses
    assert [(d.host_path, d.container_path, d.permissions) for d in answer.devices] == [
        ("/dev/ttyUSB0", "/dev/modem", "rwm")
    ]
    assert [(m.host_path, m.container_path, m.read_only) for m in answer.mounts] == [
        ("/dev/firmware", "/dev/firmware", False),
        ("/run/modem", "/run/modem", True),
    ]
    assert dict(answer.envs) == {"MODEM": "yes"}

"""Every reason that the plugin reports is on the page of reasons, and no other."""

import re
from pathlib import Path

from nodedevice_agent.plugins import nvml
from nodedevice_agent.plugins.nvml.reasons import GpuReason

LITERAL = re.compile(
    r'(?:Trouble|Problem|CannotDivide)\(\s*"(\w+)"|^(?:FAILED|HANGS|_UNREADABLE) = "(\w+)"', re.MULTILINE
)


def test_each_reason_is_documented() -> None:
    folder = Path(next(iter(nvml.__path__)))
    code = "".join(path.read_text() for path in sorted(folder.rglob("*.py")) if path.name != "reasons.py")
    used = {one or other for one, other in LITERAL.findall(code)}
    documented = {value for name, value in vars(GpuReason).items() if name.isupper()}
    assert used == documented

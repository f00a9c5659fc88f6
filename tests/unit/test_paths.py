"""Whether there is a file, and of which kind, is asked in one way: what cannot be found out is False, and raises nothing.

pathlib's own questions raise for a name that is too long, a directory that may not be entered and a disk that does not answer, and
its paths raise for links in circles and for a home that is not known.
"""

import ast
from collections.abc import Iterator
from typing import Final

from tests.unit.sources import modules, parsed, shown

INSTEAD: Final = {
    **dict.fromkeys(("exists", "is_file", "is_dir", "is_symlink"), "os.path.exists, isfile, isdir, islink, lexists"),
    "is_socket": "lib.filesystem.is_socket",
    **dict.fromkeys(("is_fifo", "is_mount", "is_block_device", "is_char_device", "samefile"), "os.stat, and its error"),
    **dict.fromkeys(("resolve", "expanduser"), "os.path.realpath, os.path.expanduser"),
    "home": "os.path.expanduser",
}


def questions(module: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(module):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in INSTEAD):
            continue
        of = ast.unparse(node.func.value)
        # an entry of os.scandir: only it has this argument, and its caller catches its errors
        is_entry = any(keyword.arg == "follow_symlinks" for keyword in node.keywords) and of in ("e", "entry")
        # with arguments it is another method of that name
        is_other = bool(node.args) and node.func.attr not in ("samefile", "resolve")
        if of not in ("os.path", "filesystem") and not is_entry and not is_other:
            yield node.lineno, node.func.attr


def test_nothing_of_the_product_asks_pathlib() -> None:
    found = [
        f"{shown(path)}:{line}: .{name}(): use {INSTEAD[name]}"
        for path in modules("common", "node-agent", "operator", "proto")
        for line, name in questions(parsed(path))
    ]
    assert not found, "\n".join(found)

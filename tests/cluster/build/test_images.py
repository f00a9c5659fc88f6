"""Which archive in the cache is of the present sources. What is built runs in tests/e2e/chart."""

from pathlib import Path

import pytest

from tests.cluster.build import product_images
from tests.cluster.build.product_images import PROGRAMS


@pytest.mark.parametrize("program", PROGRAMS)
def test_all_that_the_dockerfile_copies_decides(program: str, tmp_path: Path) -> None:
    context = product_images.context(program, tmp_path / "context")
    assert not list(context.rglob("__pycache__"))
    tag = product_images._image(program, context, tmp_path).tag
    assert product_images._image(program, product_images.context(program, tmp_path / "again"), tmp_path).tag == tag
    files = [path for path in context.rglob("*") if path.is_file()]
    assert {"names.py", "__main__.py", "Dockerfile"} <= {path.name for path in files}
    for path in (
        path for path in files if path.name in ("names.py", "__main__.py", "Dockerfile") or path.suffix == ".txt"
    ):
        before = path.read_bytes()
        path.write_bytes(before + b"# changed")
        assert product_images._image(program, context, tmp_path).tag != tag, path
        path.write_bytes(before)

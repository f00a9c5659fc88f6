"""Writes a program for `kubectl exec` while an image is built, as pip would for a wheel:

    python3 -I launcher.py /usr/local/bin nodedevice-agent

An image may lack a shell and `env`, so the first line names the image's Python.
"""

import sys
from pathlib import Path


def text(program: str, python: str) -> str:
    """Return the text of the file, which imports the program's module from PYTHONPATH."""
    module = program.replace("-", "_")
    return f"#!{python}\nimport sys\n\nfrom {module}.__main__ import main\n\nsys.exit(main())\n"


def write(folder: Path, program: str, python: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / program
    file.write_text(text(program, python), encoding="utf-8")
    file.chmod(0o755)


if __name__ == "__main__":
    for name in sys.argv[2:]:
        write(Path(sys.argv[1]), name, sys.executable)

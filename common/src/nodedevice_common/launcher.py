"""Our programs by their names in an image, for `kubectl exec`: what pip would write for a wheel. Run while an image is built:

    python3 -I launcher.py /usr/local/bin nodedevice-agent

An image may have neither a shell nor `env`, so the first line of each names that image's Python.
"""

import sys
from pathlib import Path


def text(program: str, python: str) -> str:
    """The text of the file: the program's module is in PYTHONPATH, and called as the program with underscores."""
    module = program.replace("-", "_")
    return f"#!{python}\nimport sys\n\nfrom {module}.__main__ import main\n\nsys.exit(main())\n"


def write(folder: Path, program: str, python: str) -> None:
    """Make it, for every user to run."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / program
    file.write_text(text(program, python), encoding="utf-8")
    file.chmod(0o755)


if __name__ == "__main__":
    for name in sys.argv[2:]:
        write(Path(sys.argv[1]), name, sys.executable)

"""What a page has its reader type: the lines of its blocks, whole commands in its sentences, and objects of ours; typed here."""

import re
import shlex
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import yaml

ROOT: Final = Path(__file__).parents[2]
_PROGRAM: Final = (
    r"(?:[A-Z_]+=\S+ )*(?:kubectl|helm|make|kind|containerd|nodedevice-(?:agent|operator)|\.venv/bin/[^\s`]+)"
)
_YAML: Final = re.compile(r"^(?P<indent> *)```yaml\n(?P<text>.*?)^(?P=indent)```$", re.MULTILINE | re.DOTALL)
_BLOCK: Final = re.compile(r"^(?P<indent> *)```sh\n(?P<text>.*?)^(?P=indent)```$", re.MULTILINE | re.DOTALL)
_IN_A_SENTENCE: Final = re.compile(rf"`({_PROGRAM}\s[^`]+)`")
_HERE_DOCUMENT: Final = re.compile(r"<<'(\w+)'$", re.MULTILINE)


def commands_of(page: str, *, in_sentences: bool = True) -> list[str]:
    """page: its content. Each command once, those of blocks first; one with a here-document is one command of several lines."""
    found = [command for block in _BLOCK.finditer(page) for command in _split(block["text"])]
    if in_sentences:
        found += [" ".join(inline[1].split()) for inline in _IN_A_SENTENCE.finditer(_BLOCK.sub("", page))]
    return list(dict.fromkeys(found))


def applied_by(page: str) -> list[str]:
    """Commands by which a reader applies the page's objects: those that stand there, and one for each YAML block of our kinds."""
    found = [each for each in commands_of(page, in_sentences=False) if each.startswith("kubectl apply -f - <<")]
    blocks = [textwrap.dedent(block["text"]) for block in _YAML.finditer(page)]
    ours = [block for block in blocks if block.startswith("apiVersion: nodedevice.io/")]
    return found + [f"kubectl apply -f - <<'EOF'\n{block}EOF" for block in ours]


def commands_of_install(title: str) -> list[str]:
    """The commands in the blocks of a section of docs/install.md."""
    return commands_of(_of_install(title), in_sentences=False)


def agent_yaml() -> dict[str, Any]:
    """The settings that docs/install.md has an agent outside of pods begin with."""
    [_, text] = _of_install("The agent's account").split("```yaml\n")
    return dict(yaml.safe_load(text.partition("```")[0]))


def _of_install(title: str) -> str:
    page = (ROOT / "docs/install.md").read_text("utf-8")
    return re.split(r"\n##+ ", page.partition(f"\n### {title}\n")[2])[0]


def typed(
    command: str, environment: Mapping[str, str] | None, timeout_seconds: float = 60, folder: Path = ROOT
) -> "subprocess.CompletedProcess[str]":
    """What became of a command in a shell. folder: the root of the repository, unless it is named."""
    return subprocess.run(
        ["bash", "-euo", "pipefail", "-c", command],
        cwd=folder,
        check=False,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=timeout_seconds,
        env=environment,
    )


def done(command: str, environment: Mapping[str, str] | None, timeout_seconds: float = 60) -> str:
    """What a command printed in a shell; it ends well."""
    ended = typed(command, environment, timeout_seconds)
    assert ended.returncode == 0, f"{command}\n{ended.stdout}{ended.stderr}"
    return ended.stdout


def typed_in_one_shell(
    lines: Sequence[str], folder: Path, environment: Mapping[str, str] | None = None, timeout_seconds: float = 120
) -> dict[str, str]:
    """What each prints, by line; functions and variables of one are those of the next. None may fail."""
    script = "".join(f"printf '\\0%s\\0' {shlex.quote(line)}\n{line}\n" for line in lines)
    ended = typed(script, environment, timeout_seconds, folder)
    assert ended.returncode == 0, f"{ended.stdout}\n{ended.stderr}"
    parts = ended.stdout.split("\0")[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True))


def local_cluster(command: str, environment: Mapping[str, str] | None = None) -> "subprocess.CompletedProcess[str]":
    """`make up` or `make down`, by what their targets run."""
    words = [sys.executable, "-m", "tests.cluster.local.local", command]
    return subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=180, check=False)


def _split(block: str) -> Iterator[str]:
    """A command goes on in the next line after a backslash and while a quote or a here-document is open."""
    text = ""
    for line in block.splitlines():
        text = f"{text}\n{line}" if text else line
        if not line.endswith("\\") and not _is_open(text):
            if text.strip() and not text.strip().startswith("#"):
                yield text.strip()
            text = ""


def _is_open(text: str) -> bool:
    if begun := _HERE_DOCUMENT.search(text):
        return not text.endswith(f"\n{begun[1]}")
    try:
        shlex.split(text, comments=True)
    except ValueError:
        return True
    return False

"""Reads a Dockerfile, so that the release's images are equal to those of `docker build`. Pure."""

import json
import re
import shlex
from dataclasses import dataclass, field
from itertools import pairwise

_PROGRAMS = "/usr/local/bin/"
_SITE = "/opt/nodedevice"


@dataclass
class Stage:
    """The instructions of a Dockerfile that the release carries out itself.

    copies: (source, target) of all stages, from the project. programs: by path, made by nodedevice_common.launcher.
    levels: of optimization, at which modules are compiled. config: as in an OCI image configuration, with the labels.
    """

    requirements: str = ""
    copies: list[tuple[str, str]] = field(default_factory=list)
    programs: list[str] = field(default_factory=list)
    levels: list[int] = field(default_factory=list)
    labels: dict[str, str] = field(default_factory=dict)
    config: dict[str, object] = field(default_factory=dict)


def read(text: str) -> Stage:
    """Read a Dockerfile. Raises ValueError for an instruction that is unknown here: it would be missing in the image."""
    stage = Stage()
    environ: list[str] = ["PATH=/usr/local/bin:/usr/bin:/bin"]
    for line in re.sub(r"\\\n", " ", text).splitlines():
        word, _, rest = line.partition(" ")
        match word:
            case "RUN" if _SITE in (words := json.loads(rest)) and "compileall" in words:
                stage.levels = [int(level) for option, level in pairwise(words) if option == "-o"] or [0]
            case "" | "#" | "ARG" | "FROM" | "RUN":
                continue
            case "COPY" if rest.startswith("requirements/"):
                stage.requirements = rest.split()[0]
            case "COPY" if not rest.startswith("--from="):
                source, target = rest.split()
                stage.copies.append((source, target))
            case "COPY":
                # output of an earlier stage: the whole of /opt/nodedevice, and launchers
                target = rest.split()[-1]
                if target.startswith(_PROGRAMS):
                    stage.programs.append(target)
            case "LABEL":
                stage.labels |= dict(pair.split("=", 1) for pair in shlex.split(rest))
            case "ENV":
                environ += shlex.split(rest)
            case "USER":
                stage.config["User"] = rest.strip()
            case "ENTRYPOINT" | "CMD":
                stage.config[word.capitalize()] = json.loads(rest)
            case _:
                raise ValueError(f"{word} is an instruction that the release does not know")
    stage.config |= {"Env": environ, "Labels": stage.labels, "WorkingDir": "/"}
    return stage

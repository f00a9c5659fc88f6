"""Changes constants of a program, and measures its event loop: Python imports this at its start where its folder is in PYTHONPATH.

TEST_CONSTANTS: JSON, value by name, as `{"package.module.NAME": 60.0}`. Each is set when the program itself imports the module, so
that nothing is imported earlier than without this. A name that does not exist ends the program.

TEST_TURNS: a file that gets a line for each long turn of an event loop (tests/fakes/turns.py). Without it nothing is measured.
"""

import json
import os
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any


class _Finder(MetaPathFinder):
    def __init__(self, constants: dict[str, float]) -> None:
        # by module and name
        self._constants: dict[str, dict[str, float]] = {}
        for dotted, value in constants.items():
            module, _, name = dotted.rpartition(".")
            self._constants.setdefault(module, {})[name] = value

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        constants = self._constants.get(fullname)
        spec = PathFinder.find_spec(fullname, path, target) if constants is not None else None
        if constants is None or spec is None or spec.loader is None:
            return None
        # typeshed has it as a method, and one instance is one module's
        loader: Any = spec.loader
        execute = loader.exec_module

        def execute_and_set(module: ModuleType) -> None:
            execute(module)
            for name, value in constants.items():
                getattr(module, name)
                setattr(module, name, value)

        loader.exec_module = execute_and_set
        return spec


sys.meta_path.insert(0, _Finder(json.loads(os.environ["TEST_CONSTANTS"])))

if _turns := os.environ.get("TEST_TURNS"):
    sys.path.append(str(Path(__file__).parents[3]))
    from tests.fakes.turns import report_turns

    report_turns(Path(_turns), least_ms=20.0)

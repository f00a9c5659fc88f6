"""Makes charts/nodedevice/templates/_defaults.tpl from values.yaml: the defaults of null and missing values.

Helm removes a value that is set to null, and `helm upgrade --reuse-values` uses the values of the previous chart. Templates
would find no value then. Part of `make generate`.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import yaml

from charts.generate_schema import SOURCE

_CHART: Final = Path(__file__).parent / "nodedevice"
TEMPLATE: Final = _CHART / "templates" / "_defaults.tpl"
# In these values null removes one entry, as usual in Helm, such as a memory limit. Only the whole value has a default.
_WHOLE: Final = ("resources", "clientConnection", "tlsConfig")

_HEAD: Final = """{{- /* Made from values.yaml by charts/generate_defaults.py. */ -}}
{{- /*
Puts the default in place of each value that is null or not there, and refuses what config_rules.json does not allow. The first
line of every template that reads values: in which order Helm renders them is its own affair.
*/ -}}
{{- define "nodedevice.withDefaults" -}}
{{- range $path, $default := include "nodedevice.defaults" . | fromJson -}}
{{- $steps := splitList "." $path -}}
{{- $at := $.Values -}}
{{- range initial $steps -}}
{{- if not (kindIs "map" (index $at .)) -}}
{{- $_ := set $at . dict -}}
{{- end -}}
{{- $at = get $at . -}}
{{- end -}}
{{- if kindIs "invalid" (index $at (last $steps)) -}}
{{- $_ := set $at (last $steps) $default -}}
{{- end -}}
{{- end -}}
{{- include "nodedevice.check.rules" . -}}
{{- end }}

"""


def _leaves(values: dict[str, Any], schema: dict[str, Any], definitions: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the dotted path and the default of each value.

    Divides a mapping if its schema fixes the keys. A mapping with free keys is one value.
    """
    for key, value in values.items():
        below = schema["properties"][key]
        below = definitions[below["$ref"].rpartition("/")[2]] if "$ref" in below else below
        if value and isinstance(value, dict) and "properties" in below and key not in _WHOLE:
            for path, default in _leaves(value, below, definitions):
                yield f"{key}.{path}", default
        else:
            yield key, value


def defaults() -> dict[str, Any]:
    """Return all defaults by dotted path."""
    values = yaml.safe_load((_CHART / "values.yaml").read_text(encoding="utf-8"))
    schema = yaml.safe_load(SOURCE.read_text(encoding="utf-8"))
    return dict(_leaves(values, schema, schema["$defs"]))


def text() -> str:
    """Return the content of the generated file."""
    body = json.dumps(defaults(), indent=1, ensure_ascii=False)
    return f'{_HEAD}{{{{- define "nodedevice.defaults" -}}}}\n{body}\n{{{{- end }}}}\n'


if __name__ == "__main__":
    TEMPLATE.write_text(text(), encoding="utf-8")

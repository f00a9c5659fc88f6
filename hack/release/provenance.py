"""How a release was made, as the predicate of SLSA's provenance 1.0: the commit and the arguments, no time, no machine.
Pure.

It is a statement of its signer (`make publish`): the signature says who built, this names the sources.
"""

import json

# version of what `make release` does with its arguments
_BUILD_TYPE = "urn:nodedevice:make-release:1"
_BUILDER = "urn:nodedevice:make-release"


def text(version: str, registry: str, source: str, commit: str) -> str:
    """commit: of the release. source: address of the sources; may be empty."""
    repository = {"uri": f"git+{source}" if source else "urn:nodedevice:source", "digest": {"gitCommit": commit}}
    predicate = {
        "buildDefinition": {
            "buildType": _BUILD_TYPE,
            "externalParameters": {"version": version, "registry": registry, "source": source},
            "internalParameters": {},
            "resolvedDependencies": [repository],
        },
        "runDetails": {"builder": {"id": _BUILDER}},
    }
    return json.dumps(predicate, indent=2, sort_keys=True) + "\n"

"""trimtab in every worker of a Ray job, by Ray's worker process set-up hook.

    ray.init(runtime_env=with_trimtab(runtime_env, imports=("my.adapter",)))

Every worker imports the modules that are named, which register what they have with their framework, and is armed, so
that `trimtab attach --pid` reaches it. The hook that the job had before is called first; Ray has room for one alone.
A worker whose hook raises does not start, so nothing that is trimtab's is raised here. trimtab has to be installed, or
sent along by `py_modules`, wherever workers run.

Only the standard library is imported by this module, and Ray is not.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterable, Mapping
from typing import Any

HOOK = "trimtab.hooks.ray_setup.setup"
BEFORE = "TRIMTAB_RAY_HOOK_BEFORE"
"""Environment variable of the workers: the full name of the hook that the job had."""
IMPORTS = "TRIMTAB_RAY_IMPORTS"
"""Environment variable of the workers: modules to import, with commas between."""


def with_trimtab(runtime_env: Mapping[str, Any] | None = None, *, imports: Iterable[str] = ()) -> dict[str, Any]:
    """A runtime environment like the job's own, in which workers are set up by `setup`.

    Args:
        runtime_env: the job's own, which is not changed.
        imports: modules that every worker imports, such as the adapter of the job's framework.

    Raises:
        ValueError: its hook is a function, which workers could not find by its name; name it by `module.function`.
    """
    made = dict(runtime_env or {})
    before = made.get("worker_process_setup_hook") or ""
    if not isinstance(before, str):
        raise ValueError(
            f"worker_process_setup_hook: {before!r} is a function; give its full name, module.function, so that "
            "workers can call it"
        )
    variables = dict(made.get("env_vars") or {})
    if before != HOOK:
        variables[BEFORE] = before
    named = [*filter(None, variables.get(IMPORTS, "").split(",")), *imports]
    variables[IMPORTS] = ",".join(dict.fromkeys(named))
    return made | {"env_vars": variables, "worker_process_setup_hook": HOOK}


def setup() -> None:
    """Set up a worker; Ray calls it at its start, in the main thread."""
    if before := os.environ.get(BEFORE):
        module, _, name = before.rpartition(".")
        getattr(importlib.import_module(module), name)()  # what it raises, it would have raised without us
    for module in filter(None, os.environ.get(IMPORTS, "").split(",")):
        try:
            importlib.import_module(module)
        except Exception as error:
            print(f"trimtab: {module} is not used in this worker: {type(error).__name__}: {error}", file=sys.stderr)
    try:
        importlib.import_module("trimtab.hooks.armed.stub").arm()
    except Exception as error:
        print(f"trimtab: this worker is not armed: {type(error).__name__}: {error}", file=sys.stderr)

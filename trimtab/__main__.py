"""`python -m trimtab`: the command line, for which the `agent` extra must be installed."""

from __future__ import annotations

import gc
import importlib
import sys

NEEDED = ("typer", "rich", "fastapi", "pydantic", "sqlalchemy", "uvicorn")


def main() -> None:
    """Run the command line, or say what to install."""
    gc.disable()  # nearly all that is made while modules load stays; looking through it takes a sixth of the time
    try:
        cli = importlib.import_module("trimtab.api.cli")
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] not in NEEDED:
            raise
        sys.exit(f"trimtab: {error.name} is not installed; the command line needs: pip install 'trimtab[agent]'")
    finally:
        gc.enable()
    cli.main()


if __name__ == "__main__":
    main()

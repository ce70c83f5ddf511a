"""The loss modules of real frameworks, where their source can be found, without all that lies around them.

Such a module imports its whole package, down to things that need a GPU to be built. What is asked for here runs as it
was released; packages on the way are entered without running their `__init__`, and what is named as absent is replaced
by modules whose every name is an empty class.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
import types
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest


class _Anything(type):
    """Classes that can stand as types in annotations, and as decorators that do nothing."""

    def __getitem__(cls, _: Any) -> Any:
        return cls

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return cls

    def __or__(cls, _: Any) -> Any:
        return cls

    __ror__ = __or__

    def __call__(cls, *_: Any, **__: Any) -> Any:
        return lambda function=None, *rest, **given: function  # noqa: ARG005


class _Empty(types.ModuleType):
    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__path__ = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Anything(name, (), {})


class _Around(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def __init__(self, absent: Sequence[str], bare: dict[str, Path]) -> None:
        self.absent, self.bare = absent, bare

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        del path, target
        if name in self.bare or any(name == top or name.startswith(f"{top}.") for top in self.absent):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        if spec.name not in self.bare:
            return _Empty(spec.name)
        module = types.ModuleType(spec.name)
        module.__path__ = [str(self.bare[spec.name])]
        return module

    def exec_module(self, module: types.ModuleType) -> None:
        if module.__name__ in self.bare:
            module.__path__ = [str(self.bare[module.__name__])]


def needs(package: str) -> Any:
    """Skips a test where the package's source is not there."""
    return pytest.mark.skipif(
        source_of(package) is None, reason=f"{package} is not installed: only its stand-in is run"
    )


def source_of(package: str) -> Path | None:
    """The folder of an installed package, which is not imported."""
    spec = importlib.util.find_spec(package) if package not in sys.modules else sys.modules[package].__spec__
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(next(iter(spec.submodule_search_locations)))


@contextmanager
def real(
    module: str,
    *,
    absent: Sequence[str] = (),
    bare: Sequence[str] = (),
    given: Mapping[str, Mapping[str, Any]] | None = None,
) -> Iterator[Any]:
    """The module, while the block runs; `given` are the contents of absent modules that it calls."""
    top = module.partition(".")[0]
    home = source_of(top)
    assert home is not None, f"{top} is not installed"
    finder = _Around(absent, {name: home.joinpath(*name.split(".")[1:]) for name in bare})
    before = set(sys.modules)
    sys.meta_path.insert(0, finder)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of what they import, which is theirs
            for name, contents in (given or {}).items():
                vars(importlib.import_module(name)).update(contents)
            found = importlib.import_module(module)
        yield found
    finally:
        sys.meta_path.remove(finder)
        for name in set(sys.modules) - before:
            if name.partition(".")[0] in {top, *(path.partition(".")[0] for path in absent)}:
                del sys.modules[name]

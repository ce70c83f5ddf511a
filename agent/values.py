"""Frozen values, made quickly.

A step of the fold makes some hundreds of them. The `__init__` of a frozen dataclass looks every field up by name and
goes through `object.__setattr__`, which takes three times as long as writing a slot does; `dataclasses.replace` builds
the whole value anew by such an `__init__`. What is here does the same by the slots themselves:

- `replace` stands for that of `dataclasses` in all of `agent/`, but for settings, which check their fields;
- `quick` goes on what every step makes, so on what a detector finds and remembers;
- `maker` is for the two of which a step makes dozens, tracks and verdicts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, Field, fields
from functools import cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
_ABSENT = object()


def quick(kind: type[T]) -> type[T]:
    """A frozen, slotted and keyword-only dataclass, with an `__init__` that writes its slots directly.

    >>> from dataclasses import dataclass
    >>> @quick
    ... @dataclass(frozen=True, slots=True, kw_only=True)
    ... class Point:
    ...     x: float
    ...     y: float = 0.0
    >>> Point(x=1.0)
    Point(x=1.0, y=0.0)
    """
    made, known_as = _compiled(kind, "def made(self, *, {arguments}):", ""), kind.__init__
    made.__name__ = "__init__"
    made.__qualname__, made.__annotations__ = known_as.__qualname__, known_as.__annotations__
    kind.__init__ = made  # type: ignore[method-assign]
    return kind


def maker(kind: Callable[P, T]) -> Callable[P, T]:
    """A function that makes values of such a dataclass, in less time still: what a class is called through is slow."""
    return _compiled(kind, "def made(*, {arguments}):\n self = new(kind)", "return self")  # type: ignore[no-any-return]


def _compiled(kind: Any, head: str, last: str) -> Any:
    """A function that sets every field of `self`."""
    known = fields(kind)
    arguments = ", ".join(f"{each.name}{_default(each)}" for each in known)
    lines = [head.format(arguments=arguments), *(f"set_{each.name}(self, {_given(each)})" for each in known)]
    if hasattr(kind, "__post_init__"):
        lines.append("self.__post_init__()")
    scope: dict[str, Any] = {"ABSENT": _ABSENT, "new": object.__new__, "kind": kind}
    for each in known:
        scope |= {f"set_{each.name}": getattr(kind, each.name).__set__, f"default_{each.name}": each.default}
        scope[f"make_{each.name}"] = each.default_factory
    exec("\n ".join([*lines, last]), scope)
    return scope["made"]


def _default(each: Field[Any]) -> str:
    if each.default is not MISSING:
        return f"=default_{each.name}"
    return "" if each.default_factory is MISSING else "=ABSENT"


def _given(each: Field[Any]) -> str:
    if each.default_factory is MISSING:
        return each.name
    return f"make_{each.name}() if {each.name} is ABSENT else {each.name}"


if TYPE_CHECKING:
    from dataclasses import replace as replace  # so that the types of the changes are checked
else:

    def replace(value, /, **changes):
        """`dataclasses.replace` of a slotted value; the value itself where all that changes is as it was."""
        for name, changed in changes.items():
            if getattr(value, name) is not changed:
                break
        else:
            return value
        read, write = _slots(type(value))
        made = object.__new__(type(value))
        for put, field in zip(write.values(), read(value), strict=True):
            put(made, field)
        for name, changed in changes.items():
            write[name](made, changed)
        return made


@cache
def _slots(kind: type[Any]) -> tuple[Any, dict[str, Any]]:
    """What reads all slots of a dataclass, and what writes each of them."""
    if hasattr(kind, "__post_init__"):
        raise TypeError(f"{kind.__name__} checks its fields when it is made: replace them by dataclasses.replace")
    names = [each.name for each in fields(kind)]
    return attrgetter(*names), {name: getattr(kind, name).__set__ for name in names}

"""Pages: a cursor and a limit go in, the cursor of the next page comes out, null at the end.

A cursor is opaque: it is what `next` was. It stays good, whatever is added meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, TypeVar

from fastapi import Depends, Query
from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from trimtab.api.portable import MAX_INTEGER, MAX_ROW
from trimtab.api.views import View

Item = TypeVar("Item")

MAX_PAGE = 1000
PAGE = 100


class Page(View):
    """A stretch of a list."""

    next: str | None = Field(description="`cursor` of the next page; null at the end.")


def _up_to(most: int) -> AfterValidator:
    def checked(cursor: str) -> str:
        if int(cursor) > most:
            raise PydanticCustomError("cursor", "is larger than any; give what `next` was")
        return cursor

    return AfterValidator(checked)


_DIGITS = Field(pattern="^[0-9]{1,16}$")
_ASKED = Query(description="`next` of the page before; the first when missing.")


def _cursor(
    cursor: Annotated[Annotated[str, _DIGITS, _up_to(MAX_ROW)] | None, _ASKED] = None,
) -> int | None:
    return None if cursor is None else int(cursor)


def _long_cursor(
    cursor: Annotated[Annotated[str, _DIGITS, _up_to(MAX_INTEGER)] | None, _ASKED] = None,
) -> int | None:
    return None if cursor is None else int(cursor)


CursorOf = Annotated[int | None, Depends(_cursor)]
LongCursorOf = Annotated[int | None, Depends(_long_cursor)]
"""Over what trainers number, such as attempts, and not rows of the database."""
Limit = Annotated[int, Query(ge=1, le=MAX_PAGE, description="Most items of a page.")]


def paged(items: Sequence[Item], limit: int, cursor: Callable[[Item], int]) -> tuple[list[Item], str | None]:
    """The page of items of which one more than `limit` was asked for, and the cursor of the next.

    >>> paged([9, 8, 7], 2, cursor=int)
    ([9, 8], '8')
    """
    page = list(items[:limit])
    return page, str(cursor(page[-1])) if len(items) > limit else None

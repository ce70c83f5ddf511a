"""The one way to a terminal: what jobs and people wrote is shown as text there, and is never an order to it."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console as RichConsole
from rich.console import ConsoleOptions, RenderableType
from rich.segment import Segment

_CONTROLS = {code: None for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\t\n"}
"""Characters that clear a screen, name its window or move about on it; without them the rest of the order is text."""
_NO_TEXT = dict.fromkeys(range(0xD800, 0xE000), "\N{REPLACEMENT CHARACTER}")
"""Bytes of an argument or of a file's name that are not UTF-8, which no stream takes."""
_SHOWN = _CONTROLS | _NO_TEXT


class Console(RichConsole):
    """A console on standard output or standard error that knows no markup but what `Text` says, and no escapes of
    others."""

    def __init__(
        self, *, stderr: bool = False, soft_wrap: bool = False, highlight: bool = True, width: int | None = None
    ) -> None:
        super().__init__(stderr=stderr, soft_wrap=soft_wrap, highlight=highlight, width=width, markup=False)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Segments, as rich makes them of anything that is printed; the colours are put around them later."""
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else text.translate(_SHOWN), style, control)

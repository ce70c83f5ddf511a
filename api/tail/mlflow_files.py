"""MLflow's file store: a run's folder, with a file for each metric below `metrics/`, whose lines are
`time value step`, the time in milliseconds."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from trimtab.api.tail.files import PIECE, chunk, unreadable
from trimtab.api.tail.merging import Entry, Part, merged
from trimtab.api.tail.source import Piece, Place, Row, Skipped, TailError, read_to_end
from trimtab.api.tail.values import number, step_of, time_of

FOLDER = "metrics"
MOST_FILES = 2048


class MlflowFiles:
    """The folder of one run."""

    kind: ClassVar[str] = "mlflow_files"
    quiet_s: ClassVar[float] = 30.0

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self, place: Place) -> Piece:
        """The values since `place`, each a row, in the order of time."""
        known = place.get("files", {})
        paths = self._paths()
        most = max(4 * PIECE // max(len(paths), 1), PIECE // 64)
        return merged([_part(key, path, known.get(key, {}), most) for key, path in paths])

    def end(self) -> Place:
        """Behind the last whole line of every file."""
        return read_to_end(self)

    def _paths(self) -> list[tuple[str, Path]]:
        folder = self.path / FOLDER
        try:
            found = sorted(path for path in folder.rglob("*") if path.is_file()) if folder.is_dir() else []
        except OSError as error:
            raise unreadable(folder, error) from error
        if len(found) > MOST_FILES:
            raise TailError(f"{folder}: {len(found)} metrics are more than {MOST_FILES}; log fewer")
        return [(path.relative_to(folder).as_posix(), path) for path in found]


def _part(key: str, path: Path, place: Place, most: int) -> Part:
    found = chunk(path, place, most)
    entries, end = [], found.offset
    for line in found.data[: found.data.rfind(b"\n") + 1].split(b"\n")[:-1]:
        end += len(line) + 1
        row = _row(key, line)
        entries.append(Entry(row=row, end=end, skipped=Skipped(damaged=int(row is None))))
    if not entries and len(found.data) >= most:  # no line is that long
        entries.append(Entry(row=None, end=end + len(found.data), skipped=Skipped(damaged=1)))
    return Part(name=key, chunk=found, entries=entries)


def _row(key: str, line: bytes) -> Row | None:
    words = line.decode(errors="replace").split()
    if len(words) not in (2, 3):
        return None
    try:
        time = time_of(float(words[0]))
    except ValueError:
        return None
    value = number(words[1])
    if value is None:
        try:
            value = float(words[1])
        except ValueError:
            return None
    step = step_of(words[2]) if len(words) == 3 else 0
    return Row(step=step, time=None if time is None else time / 1000, values={key: value})

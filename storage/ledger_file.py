"""A job's whole ledger as one file of JSON lines: what `trimtab export` writes and `trimtab replay` reads.

Line 1 is the header `{"trimtab_ledger": 1, "job", "config"}`; then one line an entry (`{"entry": {...}}`, in ledger
order), one line an event (`{"event": {...}}`) and, last, `{"state": {...} | null, "schema": "...", "seq": n}`: the
newest snapshot, the state after entry n. Where what the first summaries said is gone, line 2 is the state after the
last of those, `{"base": {...}, "schema": "...", "seq": n, "essentials": {...}}`, and the entries begin behind it.
Payloads, details and state are JSON data, never JSON inside strings. A file may be gzipped.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, TextIO

from trimtab.hooks.records import check_job
from trimtab.storage.values import Base, Entry, EntryKind, Recorded, StoredEvent, StoredState

FORMAT = 1


class LedgerFileError(ValueError):
    """A file that is no ledger; the message names the line and what is wrong with it."""


def lines(record: Recorded) -> Iterator[str]:
    """The lines of the file, without line ends."""
    header = {"trimtab_ledger": FORMAT, "job": record.job, "config": json.loads(record.config)}
    yield json.dumps(header)
    if (base := record.base) is not None:
        essentials = json.loads(base.essentials)
        line = {"base": json.loads(base.state), "schema": base.schema, "seq": base.seq, "essentials": essentials}
        yield json.dumps(line)
    for entry in record.entries:
        yield json.dumps({"entry": {**asdict(entry), "payload": json.loads(entry.payload)}})
    for event in record.events:
        yield json.dumps({"event": asdict(event)})
    state = record.state
    if state is None:
        yield json.dumps({"state": None})
    else:
        yield json.dumps({"state": json.loads(state.state), "schema": state.schema, "seq": state.seq})


def read(path: Path) -> Recorded:
    """The job that a file holds.

    Raises:
        LedgerFileError: the file cannot be read, is no ledger, or ends before its last line.
    """
    header: dict[str, Any] | None = None
    base: Base | None = None
    entries: list[Entry] = []
    events: list[StoredEvent] = []
    try:
        with _opened(path) as file:
            for number, line in enumerate(file, start=1):
                try:
                    data = json.loads(line)
                    if number == 1:
                        header = _header(data)
                    elif "entry" in data and header is not None:
                        entries.append(_entry(data["entry"], header["job"]))
                    elif "base" in data:
                        base = _base(data)
                    elif "event" in data:
                        events.append(StoredEvent(**data["event"]))
                    elif "state" in data and header is not None:
                        return Recorded(
                            job=header["job"],
                            config=json.dumps(header["config"]),
                            entries=tuple(entries),
                            events=tuple(events),
                            state=_state(data, len(entries)),
                            base=base,
                        )
                    else:
                        raise ValueError("neither entry, event nor state")
                except (ValueError, KeyError, TypeError) as error:
                    raise LedgerFileError(f"{path}, line {number}: not a line of a ledger ({error})") from error
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise LedgerFileError(f"{path}: cannot be read ({error})") from error
    raise LedgerFileError(f"{path}: ends before its last line, the state; export it again")


def _opened(path: Path) -> TextIO:
    """The file's text, unpacked where it is gzipped."""
    with path.open("rb") as file:
        packed = file.read(2) == b"\x1f\x8b"
    return gzip.open(path, "rt", encoding="utf-8") if packed else path.open(encoding="utf-8")


def _header(data: Any) -> dict[str, Any]:
    if not isinstance(data, dict) or data.get("trimtab_ledger") != FORMAT:
        raise ValueError(
            f'the first line is not {{"trimtab_ledger": {FORMAT}, ...}}; write the file with `trimtab export`'
        )
    job = data["job"]
    if not isinstance(job, str):
        raise ValueError(f"job: {job!r} is not text")
    check_job(job)
    return {"job": job, "config": data["config"]}


def _state(data: dict[str, Any], entries: int) -> StoredState | None:
    """The state, of an unknown schema where the line names none, and after the last entry where it names no other."""
    if data["state"] is None:
        return None
    return StoredState(
        state=json.dumps(data["state"]), schema=data.get("schema", ""), seq=int(data.get("seq", entries))
    )


def _base(data: dict[str, Any]) -> Base:
    state, essentials = json.dumps(data["base"]), json.dumps(data["essentials"])
    return Base(state=state, schema=data["schema"], seq=data["seq"], essentials=essentials)


def _entry(data: dict[str, Any], job: str) -> Entry:
    payload = data["payload"]
    named = payload.get("job", job) if isinstance(payload, dict) else job
    if named != job:
        raise ValueError(f"job: the entry is of {named!r}, the file of {job!r}")
    return Entry(**{**data, "kind": EntryKind(data["kind"]), "payload": json.dumps(data["payload"])})

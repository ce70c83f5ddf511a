"""Which names only this machine answers to."""

from pathlib import Path

import pytest

from trimtab.api.guard import is_loopback
from trimtab.api.server import BindError, bind, url_of
from trimtab.storage.database import Database


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.9.9.9", "::1", "[::1]"])
def test_loopback(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize(
    "host",
    ["", "0.0.0.0", "::", "10.0.0.1", "evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "2130706433"],
)
def test_not_loopback(host: str) -> None:
    assert not is_loopback(host)


def test_a_taken_port_is_told(tmp_path: Path) -> None:
    database = Database(tmp_path / "agent.db")
    with bind("127.0.0.1", 0, database) as listener:
        listener.listen()
        port = listener.getsockname()[1]
        assert url_of(listener) == f"http://127.0.0.1:{port}"
        with pytest.raises(BindError, match=f"cannot listen on 127.0.0.1:{port}"):
            bind("127.0.0.1", port, database)
    database.close()

"""Which names only this machine answers to."""

import pytest

from trimtab.api.guard import is_loopback
from trimtab.api.server import BindError, bind, url_of


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.9.9.9", "::1", "[::1]"])
def test_loopback(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize(
    "host",
    ["", "0.0.0.0", "::", "10.0.0.1", "evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "2130706433"],
)
def test_not_loopback(host: str) -> None:
    assert not is_loopback(host)


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.1", "example.com"])
def test_others_are_not_listened_to(host: str) -> None:
    with pytest.raises(BindError, match="no access tokens yet"):
        bind(host, 0)


def test_a_taken_port_is_told() -> None:
    with bind("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
        assert url_of(listener) == f"http://127.0.0.1:{port}"
        with pytest.raises(BindError, match=f"cannot listen on 127.0.0.1:{port}"):
            bind("127.0.0.1", port)

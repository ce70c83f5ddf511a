"""Requests to addresses that users gave: on loopback, with names that a resolver of ours answers."""

from __future__ import annotations

import asyncio
import ipaddress
import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from alerting import LOOPBACK
from receivers import Receiver, dribbled, held, huge, reply

from trimtab.api.notify.posting import Answer, Poster, resolved
from trimtab.api.notify.ssrf import Policy, RefusedError

NAME = "hooks.example.test"


def answering(*answers: list[str]) -> Callable[[str, int], Awaitable[list[str]]]:
    """A resolver that gives one answer after another, and the last one for good."""
    left = list(answers)

    async def resolve(_host: str, _port: int) -> list[str]:
        return left.pop(0) if len(left) > 1 else left[0]

    return resolve


def posted(
    url: str,
    policy: Policy = LOOPBACK,
    resolve: Callable[[str, int], Awaitable[list[str]]] = resolved,
    trusted: ssl.SSLContext | None = None,
) -> Answer:
    async def post() -> Answer:
        async with Poster(policy, resolve=resolve, ssl_context=trusted) as poster:
            return await poster.post(url, b"{}", {"webhook-id": "msg_1"})

    return asyncio.run(post())


def named(receiver: Receiver) -> str:
    return f"http://{NAME}:{receiver.server_port}/hook?x=1"


def test_a_request_arrives_with_the_name_that_it_was_sent_to() -> None:
    with Receiver(reply(202, b"taken", retry_after="3")) as receiver:
        answer = posted(named(receiver), resolve=answering(["127.0.0.1"]))
    assert (answer.status, answer.body, answer.headers["retry-after"]) == (202, b"taken", "3")
    (request,) = receiver.received
    assert (request.path, request.body) == ("/hook?x=1", b"{}")
    assert request.headers["host"] == f"{NAME}:{receiver.server_port}"
    assert request.headers["webhook-id"] == "msg_1"


def test_a_name_that_changes_its_mind_after_the_check_is_refused() -> None:
    """Public when the endpoint was made, loopback when it is connected to: DNS rebinding."""

    async def post() -> None:
        async with Poster(Policy(http=True), resolve=answering(["8.8.8.8"], ["127.0.0.1"])) as poster:
            await poster.check(f"http://{NAME}/")
            await poster.post(f"http://{NAME}/", b"{}", {})

    with pytest.raises(RefusedError, match=r"127\.0\.0\.1 is not a public address"):
        asyncio.run(post())


def test_what_is_connected_to_is_what_was_checked() -> None:
    """The name is resolved once a request: there is no second answer that could be another one."""
    asked = []

    async def resolve(host: str, port: int) -> list[str]:
        asked.append((host, port))
        return ["127.0.0.1"] if len(asked) == 1 else ["127.0.0.2"]

    with Receiver() as receiver:
        assert posted(named(receiver), resolve=resolve).status == 200
    assert asked == [(NAME, receiver.server_port)]


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "2130706433", "127.1", "0x7f.1"])
def test_nothing_arrives_at_this_machine_unless_that_is_allowed(host: str) -> None:
    with Receiver() as receiver:
        elsewhere = replace(LOOPBACK, private=(ipaddress.ip_network("10.0.0.0/8"),))
        for policy in (Policy(http=True), elsewhere):
            for url in (f"http://{host}:{receiver.server_port}/", f"http://{host}/"):
                with pytest.raises(RefusedError):
                    posted(url, policy)
    assert receiver.received == []


def test_one_bad_address_among_good_ones_is_refused() -> None:
    with pytest.raises(RefusedError, match=r"10\.0\.0\.1"):
        posted(f"http://{NAME}/", Policy(http=True), answering(["8.8.8.8", "10.0.0.1"]))


def test_another_address_is_tried_where_the_first_is_dead() -> None:
    with Receiver() as receiver:
        assert posted(named(receiver), resolve=answering(["127.0.0.9", "127.0.0.1"])).status == 200


def test_a_redirect_is_not_followed() -> None:
    with Receiver() as secret, Receiver(reply(307, location="http://169.254.169.254/latest/meta-data/")) as receiver:
        assert posted(receiver.url).status == 307
        receiver.answers = [reply(308, location=secret.url)]
        assert posted(receiver.url).status == 308
    assert secret.received == []


def test_of_a_long_answer_only_the_beginning_is_read() -> None:
    with Receiver(huge) as receiver:
        assert posted(receiver.url).body == b"x" * 4096


@pytest.mark.parametrize("slow", [held, dribbled])
def test_a_slow_answer_is_given_up(slow: Callable[[threading.Event], Callable[..., None]]) -> None:
    done = threading.Event()
    with Receiver(slow(done)) as receiver:
        with pytest.raises(TimeoutError):
            posted(receiver.url, replace(LOOPBACK, total_s=0.3))
        done.set()


def test_a_receiver_that_takes_no_connection_is_given_up() -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full:
        port = full.getsockname()[1]
        waiting = [socket.socket() for _ in range(4)]
        for each in waiting:
            each.setblocking(False)
            each.connect_ex(("127.0.0.1", port))
        with pytest.raises(TimeoutError):
            posted(f"http://127.0.0.1:{port}/", replace(LOOPBACK, connect_s=0.2))
        for each in waiting:
            each.close()


def test_nothing_there_and_no_http_are_told_apart_from_a_refusal() -> None:
    with Receiver() as gone:
        url = gone.url
    with pytest.raises(OSError, match="connection"):
        posted(url)

    def babble(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        connection.recv(4096)
        connection.sendall(b"220 mail.example.test ESMTP\r\n")
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(4096):  # to close with something unread would be a reset
            pass
        connection.close()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=babble, args=(listener,), daemon=True).start()
        with pytest.raises(OSError, match=r"disconnected|status line"):
            posted(f"http://127.0.0.1:{listener.getsockname()[1]}/")


def test_a_name_that_nobody_knows_is_no_refusal() -> None:
    async def resolve(_host: str, _port: int) -> list[str]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    with pytest.raises(socket.gaierror):
        posted(f"https://{NAME}/", Policy(), resolve)

    async def check() -> None:
        async with Poster(Policy(), resolve=resolve) as poster:
            await poster.check(f"https://{NAME}/")

    asyncio.run(check())


# TLS keeps the name


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate of `NAME` with its key, signed by itself."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("no openssl to make a certificate with")
    path = tmp_path_factory.mktemp("tls") / "both.pem"
    names = ["-subj", f"/CN={NAME}", "-addext", f"subjectAltName=DNS:{NAME}"]
    made = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
    subprocess.run(
        [openssl, *made, *names, "-keyout", path, "-out", path.with_suffix(".crt")], check=True, capture_output=True
    )
    path.write_bytes(path.read_bytes() + path.with_suffix(".crt").read_bytes())
    return path


@contextmanager
def encrypted(certificate: Path) -> Iterator[tuple[Receiver, list[str | None]]]:
    """A receiver that is reached by TLS, and the names that it was asked for."""
    asked: list[str | None] = []
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    context.sni_callback = lambda _socket, name, _context: asked.append(name)
    receiver = Receiver()
    receiver.socket = context.wrap_socket(receiver.socket, server_side=True)
    with receiver:
        yield receiver, asked


def trusting(certificate: Path) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(certificate.with_suffix(".crt")))


def test_tls_checks_the_name_although_the_address_is_connected_to(certificate: Path) -> None:
    with encrypted(certificate) as (receiver, asked):
        url = f"https://{NAME}:{receiver.server_port}/"
        policy = replace(LOOPBACK, http=False)
        assert posted(url, policy, answering(["127.0.0.1"]), trusting(certificate)).status == 200
    assert asked == [NAME]
    assert receiver.received[0].headers["host"] == f"{NAME}:{receiver.server_port}"


def test_a_certificate_of_another_name_or_of_nobody_known_is_not_taken(certificate: Path) -> None:
    with encrypted(certificate) as (receiver, _):
        other = f"https://other.example.test:{receiver.server_port}/"
        with pytest.raises(OSError, match="certificate verify failed"):
            posted(other, LOOPBACK, answering(["127.0.0.1"]), trusting(certificate))
        with pytest.raises(OSError, match="certificate verify failed"):
            posted(f"https://{NAME}:{receiver.server_port}/", LOOPBACK, answering(["127.0.0.1"]))
    assert receiver.received == []


# An egress proxy


class Proxy(threading.Thread):
    """A proxy for one CONNECT, which it lets through to an address of its own choice, or refuses."""

    def __init__(self, target: int | None) -> None:
        super().__init__(daemon=True)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        self.asked = ""
        self._target = target

    def run(self) -> None:
        connection, _ = self.listener.accept()
        self.asked = connection.recv(4096).decode().splitlines()[0]
        if self._target is None:
            connection.sendall(b"HTTP/1.1 407 Rejected\r\ncontent-length: 0\r\n\r\n")
            connection.close()
            return
        connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        there = socket.create_connection(("127.0.0.1", self._target))
        back = threading.Thread(target=self._copy, args=(there, connection), daemon=True)
        back.start()
        self._copy(connection, there)
        back.join()
        connection.close()
        there.close()

    @staticmethod
    def _copy(source: socket.socket, sink: socket.socket) -> None:
        try:
            while data := source.recv(4096):
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            pass


def test_a_proxy_resolves_and_judges_in_our_place(certificate: Path) -> None:
    with encrypted(certificate) as (receiver, asked):
        proxy = Proxy(receiver.server_port)
        proxy.start()
        answer = posted(f"https://{NAME}/", Policy(proxy=proxy.url), trusted=trusting(certificate))
        proxy.join(10)
        proxy.listener.close()
    assert answer.status == 200
    assert proxy.asked == f"CONNECT {NAME}:443 HTTP/1.1"
    assert asked == [NAME]


def test_what_a_proxy_refuses_is_not_sent() -> None:
    proxy = Proxy(None)
    proxy.start()
    with pytest.raises(OSError, match="407 Rejected"):
        posted(f"https://{NAME}/", Policy(proxy=proxy.url))
    proxy.join(10)
    proxy.listener.close()


def test_a_proxy_is_not_asked_for_what_is_refused_by_its_looks() -> None:
    with pytest.raises(RefusedError):
        posted("https://127.0.0.1/", Policy(proxy="http://127.0.0.1:1"))


def test_a_name_that_the_resolver_cannot_ask_for_is_refused() -> None:
    async def unaskable(_host: str, _port: int) -> list[str]:
        return [str("a..example".encode("idna"))]

    with pytest.raises(RefusedError, match="is no name of a host"):
        posted(f"http://{NAME}/hook", resolve=unaskable)

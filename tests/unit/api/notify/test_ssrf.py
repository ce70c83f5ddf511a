import ipaddress

import pytest

from trimtab.api.notify.ssrf import Policy, RefusedError, check_address, check_addresses, host_of, parsed, port_of

OPEN = Policy(http=True, private=(ipaddress.ip_network("10.1.0.0/16"),))


@pytest.mark.parametrize(
    "url",
    [
        "https://example.com/",
        "https://example.com/a/b?c=d",
        "https://EXAMPLE.com./x",
        "https://münchen.example/x",
        "https://my_host.example.com/",
        "https://8.8.8.8/",
        "https://[2606:4700::1111]/",
        "https://example.com:443/",
    ],
)
def test_public_addresses_are_taken(url: str) -> None:
    assert port_of(parsed(url, Policy())) == 443


def test_a_name_is_the_one_that_is_resolved() -> None:
    assert host_of(parsed("https://münchen.example/x", Policy())) == "xn--mnchen-3ya.example"


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("", "must begin with https"),
        ("example.com", "must begin with https"),
        ("ftp://example.com/", "must begin with https"),
        ("https://a..example.com/", "no name of a host"),
        ("https://example.com../", "no name of a host"),
        (f"https://{'a' * 64}.example.com/", "no name of a host"),
        ("file:///etc/passwd", "must begin with https"),
        ("gopher://example.com/", "must begin with https"),
        ("http://example.com/", "not encrypted"),
        ("https://user:password@example.com/", "user name"),
        ("https://user@example.com/", "user name"),
        ("https://example.com/#secret", "fragment"),
        ("https://example.com#@127.0.0.1/", "fragment"),
        ("https://example.com:8443/", "port 8443"),
        ("https://example.com:80/", "port 80"),
        ("https://example.com:0/", "port 0"),
        ("https:///path", "no name of a host"),
        ("https://example.com\\@127.0.0.1/", "user name"),
        ("https://exa mple.com/", "no name of a host"),
        ("https://example%2ecom/", "no name of a host"),
        ("https://xn--/", "no name of a host"),
        ("https://[fe80::1%25eth0]/", "no name of a host"),
        ("https://127.0.0.1/", "not a public address"),
        ("https://[::1]/", "not a public address"),
        ("https://[::ffff:127.0.0.1]/", "not a public address"),
        ("https://2130706433/", "number"),
        ("https://0x7f000001/", "number"),
        ("https://0177.0.0.1/", "no URL"),
        ("https://0x7f.1/", "number"),
        ("https://127.1/", "number"),
        ("https://127.0.0.1./", "not a public address"),
        ("https://127。0。0。1/", "not a public address"),
        ("https://169.254.169.254/latest/meta-data/", "credentials"),
        ("https://metadata.google.internal/computeMetadata/v1/", "credentials"),
        ("https://METADATA.google.internal./", "credentials"),
        ("https://" + "a" * 2050, "longer than"),
    ],
)
def test_what_must_not_be_reached_is_refused_with_its_reason(url: str, why: str) -> None:
    with pytest.raises(RefusedError, match=why):
        parsed(url, Policy())


@pytest.mark.parametrize(
    "address",
    [
        "0.0.0.0",
        "10.0.0.1",
        "100.64.0.1",
        "127.0.0.1",
        "127.255.255.254",
        "169.254.1.1",
        "172.16.0.1",
        "192.0.2.1",
        "192.168.1.1",
        "198.18.0.1",
        "224.0.0.1",
        "239.1.1.1",
        "240.0.0.1",
        "255.255.255.255",
        "::",
        "::1",
        "::7f00:1",
        "::ffff:10.0.0.1",
        "64:ff9b::7f00:1",
        "64:ff9b::a00:1",
        "64:ff9b:1::7f00:1",
        "2002:7f00:1::",
        "2002:a00:1::1",
        "2001:0:4136:e378:8000:63bf:3fff:fdd2",
        "2001:db8::1",
        "fc00::1",
        "fd12::1",
        "fe80::1",
        "fec0::1",
        "ff02::1",
        "ff0e::1",
        "100::1",
    ],
)
def test_addresses_that_are_not_public_are_refused(address: str) -> None:
    with pytest.raises(RefusedError, match="not a public address"):
        check_address(ipaddress.ip_address(address), Policy())


@pytest.mark.parametrize(
    "address", ["8.8.8.8", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808", "2002:808:808::"]
)
def test_public_addresses_may_be_reached(address: str) -> None:
    check_address(ipaddress.ip_address(address), Policy())


@pytest.mark.parametrize("address", ["10.1.2.3", "::ffff:10.1.2.3", "64:ff9b::a01:203"])
def test_an_allowed_network_may_be_reached_however_it_is_written(address: str) -> None:
    check_address(ipaddress.ip_address(address), OPEN)


@pytest.mark.parametrize("address", ["169.254.169.254", "::ffff:169.254.169.254", "fd00:ec2::254", "100.100.100.200"])
def test_whoever_hands_out_credentials_is_never_reached(address: str) -> None:
    everything = Policy(private=(ipaddress.ip_network("0.0.0.0/0"), ipaddress.ip_network("::/0")))
    with pytest.raises(RefusedError, match="credentials"):
        check_address(ipaddress.ip_address(address), everything)


def test_one_address_that_may_not_be_reached_is_enough() -> None:
    check_addresses("name", 443, ["8.8.8.8", "8.8.4.4"], Policy())
    with pytest.raises(RefusedError, match=r"127\.0\.0\.1 is not"):
        check_addresses("name", 443, ["8.8.8.8", "127.0.0.1"], Policy())
    with pytest.raises(RefusedError, match="no address"):
        check_addresses("name", 443, [], Policy())


def test_in_an_intranet_receivers_listen_where_they_like_and_elsewhere_they_do_not() -> None:
    assert port_of(parsed("http://alerts.corp:9093/x", OPEN)) == 9093
    check_addresses("alerts.corp", 9093, ["10.1.2.3"], OPEN)
    with pytest.raises(RefusedError, match="port 9093"):
        check_addresses("example.com", 9093, ["8.8.8.8"], OPEN)
    with pytest.raises(RefusedError, match="port 9093"):
        check_addresses("example.com", 9093, ["10.1.2.3", "8.8.8.8"], OPEN)

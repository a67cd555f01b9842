"""Who may ask: names of this machine, tokens, origins."""

from email.message import Message

import pytest

from qkv.explore.entrance import Entrance, names_this_machine


def headers(**values: str) -> Message:
    message = Message()
    for name, value in values.items():
        message[name] = value
    return message


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:1", "127.0.0.1", "127.8.9.10:80", "[::1]", "[::1]:8765", "user@localhost"]
)
def test_names_of_this_machine(host: str) -> None:
    assert names_this_machine(host)
    assert Entrance().turned("GET", headers(Host=host)) is None


@pytest.mark.parametrize(
    "host", ["", "evil.example", "localhost.", "localhost.evil.example", "127.0.0.1.evil.example", "[::1", "10.0.0.1"]
)
def test_other_names(host: str) -> None:
    turned = Entrance().turned("GET", headers(Host=host))
    assert turned is not None and turned.code == "host"


def test_no_host_at_all() -> None:
    turned = Entrance().turned("GET", headers())
    assert turned is not None and turned.code == "host"


def test_an_origin_counts_for_a_post_alone() -> None:
    given = headers(Host="localhost:1", Origin="http://localhost:2")
    assert Entrance().turned("GET", given) is None
    turned = Entrance().turned("POST", given)
    assert turned is not None and turned.code == "origin"
    assert Entrance().turned("POST", headers(Host="localhost:1", Origin="http://localhost:1")) is None
    assert Entrance().turned("POST", headers(Host="localhost:1")) is None


def test_the_token_stands_in_for_the_name() -> None:
    entrance = Entrance("abc", "qkv-1")
    assert entrance.turned("GET", headers(Host="lab.example", Cookie="a=b; qkv-1=abc")) is None
    assert entrance.turned("GET", headers(Host="lab.example", Authorization="bearer abc")) is None
    for wrong in (
        headers(Host="localhost"),
        headers(Host="localhost", Cookie="qkv-2=abc"),
        headers(Host="localhost", Cookie="qkv-1=abcd"),
        headers(Host="localhost", Authorization="Bearer"),
        headers(Host="localhost", Authorization="Basic abc"),
        headers(Host="localhost", Authorization="Bearer \udc80"),
    ):
        turned = entrance.turned("GET", wrong)
        assert turned is not None and turned.code == "token"


def test_an_address_that_brings_the_token() -> None:
    entrance = Entrance("abc")
    assert entrance.introduces("GET", {"token": ["abc"]})
    assert not entrance.introduces("POST", {"token": ["abc"]})
    assert not entrance.introduces("GET", {"token": ["abd"]})
    assert not entrance.introduces("GET", {})
    assert not Entrance().introduces("GET", {"token": [""]})

"""Access control: names of this machine, tokens, cookies, origins."""

import pytest
from starlette.types import Scope

from qkv.serve.app import Access, RefusedError, names_this_machine


def scope(method: str = "GET", target: str = "/", query: str = "", **headers: str | list[str]) -> Scope:
    lines = [
        (name.replace("_", "-").lower().encode(), value.encode("latin-1"))
        for name, given in headers.items()
        for value in ([given] if isinstance(given, str) else given)
    ]
    return {
        "type": "http",
        "method": method,
        "path": target,
        "raw_path": target.encode(),
        "query_string": query.encode(),
        "headers": lines,
    }


def refusal(access: Access, asked: Scope) -> str | None:
    """Its code; None for a request that is let in."""
    try:
        access.check(asked)
    except RefusedError as error:
        return error.code if error.close and str(error) else "incomplete"
    return None


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:1", "127.0.0.1", "127.8.9.10:80", "[::1]", "[::1]:8765", "user@localhost"]
)
def test_names_of_this_machine(host: str) -> None:
    assert names_this_machine(host)
    assert refusal(Access(), scope(Host=host)) is None


@pytest.mark.parametrize(
    "host", ["", "evil.example", "localhost.", "localhost.evil.example", "127.0.0.1.evil.example", "[::1", "10.0.0.1"]
)
def test_other_names(host: str) -> None:
    assert refusal(Access(), scope(Host=host)) == "host"


def test_one_host_and_no_more() -> None:
    assert refusal(Access(), scope()) == "host"
    for hosts in (["localhost", "evil.example"], ["evil.example", "localhost"], ["localhost", "localhost"]):
        assert refusal(Access(), scope(Host=hosts)) == "host"
        assert refusal(Access("abc", "qkv-1"), scope(Host=hosts, Cookie="qkv-1=abc")) == "host"


def test_an_absolute_address_names_the_same_host() -> None:
    assert refusal(Access(), scope(target="http://localhost:1/", Host="localhost:1")) is None
    assert refusal(Access(), scope(target="HTTP://LOCALHOST:1/", Host="localhost:1")) is None
    for target in (
        "http://evil.example/",
        "http://localhost:2/",
        "http://localhost:1@evil.example/",
        "http://[/",
        "//evil",
    ):
        asked = scope(target=target, Host="localhost:1")
        assert refusal(Access(), asked) == (None if target.startswith("/") else "host")
    for target in ("*", "", "localhost:1", "evil.example:443", "file:///etc/passwd"):
        assert refusal(Access(), scope(target=target, Host="localhost:1")) == "host"
    assert refusal(Access(), scope(target="http://evil.example/", Host="evil.example")) == "host"


def test_an_origin_counts_for_a_post_alone() -> None:
    given = {"Host": "localhost:1", "Origin": "http://localhost:2"}
    assert refusal(Access(), scope(**given)) is None
    assert refusal(Access(), scope("POST", **given)) == "origin"
    assert refusal(Access(), scope("POST", Host="localhost:1", Origin="http://localhost:1")) is None
    assert refusal(Access(), scope("POST", Host="localhost:1")) is None
    both = ["http://localhost:1", "http://evil.example"]
    assert refusal(Access(), scope("POST", Host="localhost:1", Origin=both)) == "origin"


@pytest.mark.parametrize("site", ["cross-site", "same-site", "Cross-Site", ""])
def test_a_post_of_another_site_without_an_origin(site: str) -> None:
    assert refusal(Access(), scope("POST", Host="localhost:1", Sec_Fetch_Site=site)) == "origin"
    own = "http://localhost:1"
    assert refusal(Access(), scope("POST", Host="localhost:1", Sec_Fetch_Site=site, Origin=own)) == "origin"


def test_a_post_of_another_page_that_sends_a_referer_alone() -> None:
    assert refusal(Access(), scope("POST", Host="localhost:1", Referer="http://evil.example/a?b")) == "origin"
    assert refusal(Access(), scope("POST", Host="localhost:1", Referer="http://localhost:1/a?b")) is None


@pytest.mark.parametrize("site", ["same-origin", "none"])
def test_a_post_of_our_own_page(site: str) -> None:
    given = {"Host": "localhost:1", "Sec_Fetch_Site": site, "Origin": "http://localhost:1"}
    assert refusal(Access(), scope("POST", **given)) is None


def test_the_token_stands_in_for_the_name() -> None:
    access = Access("abc", "qkv-1")
    assert refusal(access, scope(Host="lab.example", Cookie="a=b; qkv-1=abc")) is None
    assert refusal(access, scope(Host="lab.example", Authorization="bearer abc")) is None
    for wrong in (
        scope(Host="localhost"),
        scope(Host="localhost", Cookie="qkv-2=abc"),
        scope(Host="localhost", Cookie="qkv-1=abcd"),
        scope(Host="localhost", Cookie="a=qkv-1=abc"),
        scope(Host="localhost", Authorization="Bearer"),
        scope(Host="localhost", Authorization="Basic abc"),
        scope(Host="localhost", Authorization="Bearer \x80"),
    ):
        assert refusal(access, wrong) == "token"


@pytest.mark.parametrize(
    "other", ['a="unclosed', "a b=c", "é=ü", '{"json": [1]}', "=", "a=b=c", "name[]=1", ";;", "qkv-1=old", "x" * 5000]
)
def test_a_cookie_beside_another_program_s(other: str) -> None:
    access = Access("abc", "qkv-1")
    for line in (f"{other}; qkv-1=abc", f"qkv-1=abc; {other}", f"{other};qkv-1 = abc;{other}"):
        assert refusal(access, scope(Host="lab.example", Cookie=line)) is None
    assert refusal(access, scope(Host="lab.example", Cookie=[other, "qkv-1=abc"])) is None


def test_an_address_that_brings_the_token() -> None:
    access = Access("abc")
    assert access.is_introduced(scope(query="token=abc"))
    assert not access.is_introduced(scope("POST", query="token=abc"))
    assert not access.is_introduced(scope(query="token=abd"))
    assert not access.is_introduced(scope())
    assert not Access().is_introduced(scope(query="token="))

"""Who may ask the server, told by the headers of a request.

On loopback, without a token: the Host must name this machine. A page from elsewhere can point a name of its own at
127.0.0.1 (DNS rebinding), and its browser would then let it read what we answer; but the Host would be that name.

With a token, which is due wherever others can reach us: it comes once as ?token=… and becomes a cookie that no script
reads and no other site sends, or it comes from a program as `Authorization: Bearer …`. Host may be any name then,
since the cookie belongs to the name it was given to.

A POST that says where it comes from (every browser does) must come from the page itself, in both cases.
"""

import ipaddress
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from email.message import Message
from http import HTTPStatus
from http.cookies import CookieError, SimpleCookie
from typing import NamedTuple
from urllib.parse import urlsplit

ASK = "token"
"""The name of the token in an address."""


class Turned(NamedTuple):
    """Away, and why."""

    status: HTTPStatus
    code: str
    message: str


@dataclass(frozen=True)
class Entrance:
    token: str | None = None
    cookie: str = "qkv"  # its name; servers on two ports of one host have two tokens, and need two names

    def turned(self, method: str, headers: Message) -> Turned | None:
        """None: come in."""
        host = _header(headers, "Host")
        if self.token is None and not names_this_machine(host):
            return Turned(HTTPStatus.MISDIRECTED_REQUEST, "host", f"This page is not called '{host:.80}'.")
        if self.token is not None and not any(map(self.is_token, (self._from_cookie(headers), _bearer(headers)))):
            message = "The token is missing or wrong. Open the link that `qkv look` printed."
            return Turned(HTTPStatus.UNAUTHORIZED, "token", message)
        origin = _header(headers, "Origin")
        if method == "POST" and "Origin" in headers and not _is_same(origin, host):
            return Turned(HTTPStatus.FORBIDDEN, "origin", f"'{origin:.80}' is another page: it may not ask.")
        return None

    def introduces(self, method: str, query: Mapping[str, Sequence[str]]) -> bool:
        """Whether an address brings the token, which `set_cookie` then keeps."""
        return method == "GET" and self.token is not None and any(map(self.is_token, query.get(ASK, ())))

    def set_cookie(self) -> str:
        return f"{self.cookie}={self.token}; HttpOnly; SameSite=Strict; Path=/"

    def is_token(self, given: str) -> bool:
        """In the same time for every wrong one."""
        assert self.token is not None
        return secrets.compare_digest(given.encode(errors="replace"), self.token.encode(errors="replace"))

    def _from_cookie(self, headers: Message) -> str:
        try:
            found = SimpleCookie(_header(headers, "Cookie")).get(self.cookie)
        except CookieError:
            return ""
        return found.value if found is not None else ""


def is_loopback(host: str) -> bool:
    """
    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("0.0.0.0"), is_loopback("::1")
    (True, True, False, True)
    """
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def names_this_machine(host: str) -> bool:
    """Any port will do: somebody may have forwarded another one to us.

    >>> names_this_machine("127.0.0.1:8765"), names_this_machine("[::1]:80"), names_this_machine("localhost.evil.org")
    (True, True, False)
    """
    try:
        return is_loopback(urlsplit(f"//{host}").hostname or "")
    except ValueError:
        return False


def _is_same(origin: str, host: str) -> bool:
    try:
        return urlsplit(origin).netloc.lower() == host.lower() and host != ""
    except ValueError:
        return False


def _bearer(headers: Message) -> str:
    scheme, _, given = _header(headers, "Authorization").partition(" ")
    return given.strip() if scheme.lower() == "bearer" else ""


def _header(headers: Message, name: str) -> str:
    return str(headers.get(name, ""))  # what is no ASCII comes as an object of its own

"""Access control: which requests are answered, decided from their headers.

Without a token (loopback only) the Host must name this machine. Another site can point its own name at 127.0.0.1 (DNS
rebinding), and the browser would then let it read our responses; but Host would be that name.

With a token (required if others can reach the server) Host may be any name. The token is sent once as ?token=… and
becomes a cookie that no script can read and no other site sends, or it is sent as `Authorization: Bearer …`.

In both cases there is exactly one Host, an absolute address names the same host, and a POST from a browser comes from
our own page: Origin, Sec-Fetch-Site and Referer must agree if present. Programs send none of them.

Not here: encryption. Over an untrusted network use ssh -L.
"""

import ipaddress
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from urllib.parse import parse_qs, urlsplit

from starlette.datastructures import Headers
from starlette.types import Scope

TOKEN_FIELD = "token"
"""Name of the token in an address."""
ALLOWED_METHODS = ("GET", "HEAD", "POST")


class RefusedError(Exception):
    """A request that is not answered: HTTP status, code for programs, sentence for people, and the values in it."""

    def __init__(
        self, status: int, code: str, message: str, about: Mapping[str, str | int] | None = None, *, close: bool = False
    ) -> None:
        super().__init__(message)
        self.status, self.code, self.about = status, code, dict(about or {})
        self.close = close  # also close the connection; needed if the body of the request is not read


@dataclass(frozen=True)
class Access:
    token: str | None = None
    cookie: str = "qkv"  # name; servers on two ports of one host have two tokens and need two names

    def check(self, scope: Scope) -> None:
        """Raise RefusedError unless the request may be answered."""
        method, headers = scope["method"], Headers(scope=scope)
        if method not in ALLOWED_METHODS:
            raise RefusedError(HTTPStatus.NOT_IMPLEMENTED, "http", f"Unsupported method '{method:.20}'.", close=True)
        host = _host(scope, headers)
        if self.token is None and not names_this_machine(host):
            raise _wrong_host(host)
        if self.token is not None and not self._has_token(headers):
            message = "The token is missing or wrong. Open the link that was printed at the start."
            raise RefusedError(HTTPStatus.UNAUTHORIZED, "token", message, close=True)
        if method == "POST" and (other := _other_page(host, headers)) is not None:
            message = f"Requests from another page, '{other:.80}', are refused."
            raise RefusedError(HTTPStatus.FORBIDDEN, "origin", message, close=True)

    def is_introduced(self, scope: Scope) -> bool:
        """Whether the address carries the token, to be stored by `set_cookie`."""
        if scope["method"] != "GET" or self.token is None:
            return False
        given = parse_qs(scope["query_string"].decode("latin-1")).get(TOKEN_FIELD, [])
        return any(map(self._is_token, given))

    def set_cookie(self) -> str:
        return f"{self.cookie}={self.token}; HttpOnly; SameSite=Strict; Path=/"

    def _has_token(self, headers: Headers) -> bool:
        cookies = (value for name, value in _cookies(headers) if name == self.cookie)
        return any(map(self._is_token, (*cookies, *_bearers(headers))))

    def _is_token(self, given: str) -> bool:
        """Takes the same time for every wrong token."""
        assert self.token is not None
        return secrets.compare_digest(given.encode(errors="replace"), self.token.encode(errors="replace"))


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
    """Whether a Host header names loopback. Any port is accepted, since another one may be forwarded to ours.

    >>> names_this_machine("127.0.0.1:8765"), names_this_machine("[::1]:80"), names_this_machine("localhost.evil.org")
    (True, True, False)
    """
    try:
        return is_loopback(urlsplit(f"//{host}").hostname or "")
    except ValueError:
        return False


def _host(scope: Scope, headers: Headers) -> str:
    """The one host that the request names."""
    hosts = headers.getlist("host")
    if len(hosts) != 1:
        raise _wrong_host(", ".join(hosts))
    target = scope["path"]
    if not target.startswith("/") and (named := _authority(target)) != hosts[0].lower():
        raise _wrong_host(target if named is None else named)
    return hosts[0]


def _wrong_host(host: str) -> RefusedError:
    message = f"This server is not called '{host:.80}'."
    return RefusedError(HTTPStatus.MISDIRECTED_REQUEST, "host", message, close=True)


def _other_page(host: str, headers: Headers) -> str | None:
    """The page of another origin that sent the request, as far as the headers say so."""
    for origin in headers.getlist("origin"):
        if host == "" or _authority(origin) != host.lower():
            return origin
    for site in headers.getlist("sec-fetch-site"):
        if site.strip().lower() not in ("same-origin", "none"):  # none: typed by the user
            return site
    for page in headers.getlist("referer"):
        if _authority(page) != host.lower():
            return page
    return None


def _authority(address: str) -> str | None:
    """Host and port of an address in lower case; None if it has none."""
    try:
        return urlsplit(address).netloc.lower() or None
    except ValueError:
        return None


def _cookies(headers: Headers) -> Iterator[tuple[str, str]]:
    """Parsed by hand: `SimpleCookie` drops all cookies if one of another program is malformed."""
    for line in headers.getlist("cookie"):
        for cookie in line.split(";"):
            name, _, value = cookie.partition("=")
            yield name.strip(), value.strip()


def _bearers(headers: Headers) -> Iterator[str]:
    for line in headers.getlist("authorization"):
        scheme, _, given = line.partition(" ")
        if scheme.lower() == "bearer":
            yield given.strip()

"""The settings of the web port, and their options."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from functools import partial

from psoup.addresses import is_loopback, parse_address
from psoup.server.identity.settings import CERTIFICATES, IdentitySettings

DEFAULT_ADDRESS = "127.0.0.1:7180"


@dataclass(frozen=True, slots=True)
class WebSettings:
    """The address of the web port; the names beside those of the certificate that it answers to;
    the sites whose pages may use it; whether it has the console."""

    host: str = "127.0.0.1"
    port: int = 0
    hosts: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()
    console: bool = True

    def check(self, identity: IdentitySettings) -> None:
        """Raise ValueError if other machines reach the port, and the server lacks what it needs for
        that."""
        identity.check_host(self.host)
        if identity.auth == (CERTIFICATES,) and not is_loopback(self.host):
            raise ValueError(
                "the web port does not see client certificates: beside --auth certificates it "
                "needs --auth keys or --auth jwt, or an address of this machine"
            )


def add_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("web (docs/reference/http.md)")
    group.add_argument(
        "--web",
        type=partial(parse_address, example=DEFAULT_ADDRESS),
        metavar="HOST:PORT",
        help="listen for HTTP there too, such as 127.0.0.1:7180; needs psoup[web]",
    )
    group.add_argument(
        "--web-host",
        action="append",
        default=[],
        metavar="NAME",
        help="a name of the web port beside those of the certificate; may be repeated",
    )
    group.add_argument(
        "--web-origin",
        action="append",
        default=[],
        type=_origin,
        metavar="ORIGIN",
        help="a site whose pages may use the web port, as https://app.example; may be repeated",
    )
    group.add_argument(
        "--no-console", action="store_true", help="leave the console out of the web port"
    )


def read_options(options: argparse.Namespace) -> WebSettings | None:
    """Return the settings of the options that `add_options` has added; None without a web port."""
    if options.web is None:
        return None
    host, port = options.web
    hosts, origins = tuple(options.web_host), tuple(options.web_origin)
    return WebSettings(host, port, hosts, origins, console=not options.no_console)


def _origin(text: str) -> str:
    scheme, _, host = text.partition("://")
    if scheme not in ("http", "https") or not host or set(host) & set("/*?#@ "):
        raise argparse.ArgumentTypeError(f"{text!r}: write an origin, as https://app.example")
    return text

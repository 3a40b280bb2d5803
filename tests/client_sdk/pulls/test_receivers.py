"""Which addresses changes are posted to, whatever a name resolves to."""

from __future__ import annotations

import socket
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest

from client_sdk.pulls import BadPull, Receivers, load_pulls
from client_sdk.pulls._http_changes import HttpChanges
from client_sdk.pulls._receivers import RefusedAddress

PUBLIC = "8.8.8.8", "2606:4700::1111", "::ffff:8.8.8.8"
PRIVATE = (
    *("10.1.2.3", "172.16.0.1", "192.168.1.1", "127.0.0.1", "100.64.0.1", "0.0.0.0"),
    *("::1", "fd00::1", "::ffff:10.1.2.3", "::ffff:127.0.0.1"),
)
LINK_LOCAL = "169.254.169.254", "fe80::1", "::ffff:169.254.169.254"


def permitted(receivers: Receivers, addresses: tuple[str, ...]) -> list[str]:
    return [text for text in addresses if receivers.permits(ip_address(text))]


def test_addresses_that_are_permitted() -> None:
    every = (*PUBLIC, *PRIVATE, *LINK_LOCAL)
    operators = permitted(Receivers(), every)
    assert operators == [a for a in every if a not in (*LINK_LOCAL, "0.0.0.0")]
    assert permitted(Receivers.only(()), every) == list(PUBLIC)
    named = Receivers.only(["10.0.0.0/8", "169.254.169.254"])
    more = ["10.1.2.3", "::ffff:10.1.2.3", "169.254.169.254", "::ffff:169.254.169.254"]
    assert permitted(named, every) == [a for a in every if a in (*PUBLIC, *more)]


@pytest.mark.parametrize("url", ["http://127.0.0.1:9/x", "https://[::1]/", "http://169.254.1.1/"])
def test_a_url_with_a_refused_address_is_no_receiver(url: str) -> None:
    with pytest.raises(BadPull, match=r"--allow"):
        HttpChanges(url, receivers=Receivers.only(()))


def test_a_name_is_checked_at_every_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """The name has a public address first and one of this machine later, as in DNS rebinding."""
    places = [["8.8.8.8"], ["127.0.0.1"], ["10.0.0.1", "::1"]]
    connected = list[Any]()

    def resolve(host: str, port: int, **named: Any) -> list[Any]:
        kinds = socket.SOCK_STREAM, 6, ""
        return [
            (socket.AF_INET6 if ":" in place else socket.AF_INET, *kinds, (place, port))
            for place in places.pop(0)
        ]

    class Connection:
        def __init__(self, *arguments: Any) -> None:
            pass

        def settimeout(self, seconds: float) -> None:
            pass

        def connect(self, place: Any) -> None:
            connected.append(place)

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    monkeypatch.setattr(socket, "socket", Connection)
    receivers = Receivers.only(())
    receivers.connect("hooks.example", 80, 1.0)
    for address in ("127.0.0.1", "::1"):
        with pytest.raises(RefusedAddress, match=f"hooks.example is {address}"):
            receivers.connect("hooks.example", 80, 1.0)
    assert connected == [("8.8.8.8", 80)]


def write(folder: Path, more: str, mode: int = 0o600) -> Path:
    file = folder / "pulls.toml"
    target = 'to = "a.csv"\nkey = "a"\nchanges_to = "http://127.0.0.1:9/x"\n'
    file.write_text(f"[pulls.a]\n{target}{more}")
    file.chmod(mode)
    return file


def test_a_file_that_others_may_write_reaches_public_addresses_only(tmp_path: Path) -> None:
    def receivers(more: str = "", mode: int = 0o600) -> Receivers:
        return load_pulls(write(tmp_path, more, mode))[0].receivers

    assert receivers() == Receivers()
    assert receivers('allow = ["127.0.0.0/8"]\n') == Receivers.only(["127.0.0.0/8"])
    assert receivers(mode=0o620) == receivers(mode=0o602) == Receivers.only(())
    with pytest.raises(BadPull, match=r"allow: .* chmod go-w"):
        receivers('allow = ["127.0.0.0/8"]\n', 0o622)
    with pytest.raises(BadPull, match="write a network"):
        receivers('allow = ["example.org"]\n')
    with pytest.raises(BadPull, match="must be a list"):
        receivers('allow = "10.0.0.0/8"\n')

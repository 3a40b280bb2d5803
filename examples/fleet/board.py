"""The whole demo: vehicles that report their places, two phones, and what a page shows of both."""

from __future__ import annotations

import contextlib
import random
import threading
from pathlib import Path
from typing import Any

from client_sdk import Client, Conflict, PsoupError
from fleet.phone import STATES, Phone
from fleet.roads import HEIGHT_METRES, MIDDLE_METRES, WIDTH_METRES, Town, Vehicle

STREAMS = (
    "CREATE STREAM positions (vehicle TEXT, x DOUBLE, y DOUBLE) RETAIN 1 HOUR",
    "CREATE STREAM jobs (id BIGINT, title TEXT, state TEXT, editor TEXT) KEY (id) RETAIN 1 DAY",
)
TITLES = ("Flowers to 12 Mill Lane", "Piano, two people", "Bread for the school", "Return: a lamp")
VEHICLES = 40
REPORT_SECONDS = 1.0
_SEED = 2003


class Board:
    """Reports of vehicles from a thread, and two phones, over the store at `address`."""

    def __init__(self, address: str, folder: Path, console: str = "") -> None:
        dice = random.Random(_SEED)
        self.town = Town.build(dice)
        self.vehicles = [
            Vehicle(f"Van {number + 1}", self.town, dice) for number in range(VEHICLES)
        ]
        self.phones = {
            "Ann": Phone("Ann", address, folder / "ann.db", 0.0, MIDDLE_METRES),
            "Ben": Phone("Ben", address, folder / "ben.db", MIDDLE_METRES, WIDTH_METRES),
        }
        self._address, self._console = address, console
        self._leave = threading.Event()
        self._thread = threading.Thread(target=self._report, name="vehicles", daemon=True)
        self._store: dict[str, Any] = {"reports": 0, "epoch": 0, "behind_rows": 0, "problem": ""}
        self._positions: list[tuple[str, float, float]] = []

    def __enter__(self) -> Board:
        with Client(self._address) as client:
            for stream in STREAMS:
                with contextlib.suppress(Conflict):
                    client.define(stream)
            rows = [
                {"id": number + 1, "title": title, "state": STATES[0], "editor": "office"}
                for number, title in enumerate(TITLES)
            ]
            client.publish("jobs", rows)
        self._thread.start()
        for phone in self.phones.values():
            phone.start()
        return self

    def __exit__(self, *_: object) -> None:
        for phone in self.phones.values():
            phone.stop()
        self._leave.set()
        self._thread.join()

    def _report(self) -> None:
        """Let the vehicles drive, and publish where they are, until the end."""
        with Client(self._address, timeout=5) as client:
            publisher = client.publisher("vehicles")
            while not self._leave.wait(REPORT_SECONDS):
                for vehicle in self.vehicles:
                    vehicle.drive(REPORT_SECONDS)
                places = [(vehicle.name, *vehicle.position()) for vehicle in self.vehicles]
                rows = [{"vehicle": name, "x": x, "y": y} for name, x, y in places]
                try:
                    publisher.publish("positions", rows)
                    status = client.status()
                except PsoupError as error:
                    self._store = self._store | {"problem": str(error).splitlines()[0]}
                    continue
                self._positions = places
                self._store = {
                    "reports": self._store["reports"] + len(rows),
                    "epoch": status.epoch,
                    "behind_rows": status.behind_rows,
                    "problem": "",
                }

    # ---- for a page

    def map(self) -> dict[str, Any]:
        return {
            "width": WIDTH_METRES,
            "height": HEIGHT_METRES,
            "middle": MIDDLE_METRES,
            "roads": self.town.lines(),
            "console": self._console,
        }

    def state(self) -> dict[str, Any]:
        phones = [phone.snapshot for phone in self.phones.values() if phone.snapshot]
        return {"store": self._store, "vehicles": self._positions, "phones": phones}

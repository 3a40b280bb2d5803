"""Scrapes of a real process, read as Prometheus reads them."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

_SECONDS = 60.0


def fetch(address: str, path: str) -> tuple[int, str]:
    """Return the status and the text of a page."""
    try:
        with urllib.request.urlopen(f"http://{address}{path}", timeout=_SECONDS) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


class Scrape:
    """The samples of one scrape."""

    def __init__(self, address: str) -> None:
        status, self.text = fetch(address, "/metrics")
        assert status == 200, self.text
        self.families = list(text_string_to_metric_families(self.text))

    def value(self, name: str, **labels: str) -> float | None:
        """Return the sum of the samples with these labels; None if there are none."""
        values = [
            sample.value
            for family in self.families
            for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        ]
        return sum(values) if values else None


def scrape_until(address: str, name: str, value: float, **labels: str) -> Scrape:
    """Scrape until a metric has a value: a page is made at most once a second."""
    deadline = time.monotonic() + _SECONDS
    while True:
        scrape = Scrape(address)
        if scrape.value(name, **labels) == value:
            return scrape
        assert time.monotonic() < deadline, f"{name} {labels} is {scrape.value(name, **labels)}"
        time.sleep(0.2)


def readiness(address: str, query: str = "") -> tuple[int, Any]:
    status, text = fetch(address, f"/readyz{query}")
    return status, json.loads(text)

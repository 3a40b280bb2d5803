"""Copies of calendar windows over days on which clocks change: each is the naive answer at its NOW,
and later, as long as no new row comes."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from datastem.instants import DAY, MINUTE, to_micros
from querystem.language.tokens.literals import read_timestamp
from tests.server.test_sync_machine import Recharge
from tests.support.server.sync_world import STREAMS, Asked, Question, machine_settings

_UNITS = ("TODAY", "YESTERDAY", "THIS HOUR", "LAST HOUR", "LAST 5 HOURS", "LAST 2 DAYS")
_LONG_UNITS = (
    "THIS WEEK",
    "LAST 2 WEEKS",
    "LAST WEEK SUNDAY",
    "THIS MONTH",
    "LAST 3 MONTHS",
    "LAST 10 DAYS",
    "THIS QUARTER",
    "LAST QUARTER",
    "THIS YEAR",
    "LAST YEAR",
)
_ZONES = (
    "",
    " AT TIME ZONE 'Europe/Madrid'",
    " AT TIME ZONE 'Australia/Lord_Howe'",
    " AT TIME ZONE 'Asia/Kolkata'",
    " AT TIME ZONE 'Pacific/Apia'",
    " AT TIME ZONE 'America/Sao_Paulo'",
    " AT TIME ZONE 'Asia/Kathmandu'",
)
_ZONED = (
    "extract(hour FROM ts AT TIME ZONE 'Europe/Madrid') < 12",
    "CAST(ts AT TIME ZONE 'Pacific/Apia' AS DATE) <> CAST(ts AS DATE)",
    "date_trunc('hour', ts, 'Asia/Kolkata') = date_trunc('hour', ts, 'Australia/Lord_Howe')",
)
_SELECTS = (
    "SELECT a, CAST(ts AT TIME ZONE 'Europe/Madrid' AS TEXT) AS shown FROM {} WHERE {}",
    "SELECT date_trunc('day', ts, 'Europe/Madrid') AS day, count(*) AS n, sum(a) AS total FROM {}"
    " WHERE {} GROUP BY date_trunc('day', ts, 'Europe/Madrid')",
)
WINDOWS = [f"DURING {unit}{zone}" for unit in _UNITS for zone in _ZONES]


class Calendar(Recharge):
    units: tuple[str, ...] = _UNITS
    # Madrid's clock is set back at 01:00 UTC on 25 October 2026, Lord Howe's went ahead on the 3rd.
    start, pace = to_micros(read_timestamp("2026-10-24 18:00")), 20 * MINUTE
    # With much AHEAD, since the world's clock jumps.
    streams = tuple(
        sql.replace(" AHEAD 1 HOUR", "")
        .replace("60 SECONDS", "76 HOURS")
        .replace("30 SECONDS", "30 HOURS")
        .replace("ORDERED BY at", "ORDERED BY at AHEAD 30 DAYS")
        for sql in STREAMS
    )

    def ask(self, question: Question, *, computes: bool = False) -> Asked:
        window = self.window()
        brought = self.window() if question.other and self.chance.random() < 0.9 else ""
        if self.chance.random() < 0.3:
            where = f"({question.where}) AND {self.chance.choice(_ZONED)}"
            question = replace(question, where=where)
        if self.chance.random() < 0.2:
            question = replace(question, select=self.chance.choice(_SELECTS))
        return super().ask(replace(question, window=window, other=brought), computes=computes)

    def window(self) -> str:
        return f"DURING {self.chance.choice(self.units)}{self.chance.choice(_ZONES)}"


class Apia(Calendar):
    """Over the day that Apia left out: its clock went from the end of 29 December to the 31st."""

    start = to_micros(read_timestamp("2011-12-30 02:00"))


class LordHowe(Calendar):
    """Over a change by half an hour, at 15:30 UTC."""

    start, pace = to_micros(read_timestamp("2026-10-03 14:00")), 5 * MINUTE


class SaoPaulo(Calendar):
    """Over a day that began at 01:00: the clock went ahead at midnight, 03:00 UTC."""

    start = to_micros(read_timestamp("2018-11-03 20:00"))


class Years(Calendar):
    """Weeks to years, over the changes of all clocks."""

    units = _LONG_UNITS
    start, pace = to_micros(read_timestamp("2017-12-20 11:00")), 4 * DAY
    streams = tuple(
        sql.replace("76 HOURS", "740 DAYS")
        .replace("RETAIN 30 HOURS", "RETAIN 740 DAYS")
        .replace("AHEAD 30 DAYS", "AHEAD 900 DAYS")
        for sql in Calendar.streams
    )


settings = partial(machine_settings, steps=25)

TestCalendar = Calendar.TestCase
TestCalendar.settings = settings(examples=6)
TestApia = Apia.TestCase
TestApia.settings = settings(examples=3)
TestLordHowe = LordHowe.TestCase
TestLordHowe.settings = settings(examples=3)
TestSaoPaulo = SaoPaulo.TestCase
TestSaoPaulo.settings = settings(examples=2)
TestYears = Years.TestCase
TestYears.settings = settings(examples=4)

"""Alerts, runbook, dashboard and documentation name metrics and headings that exist."""

from __future__ import annotations

import json
import re
from pathlib import Path

from tests.support.incidents import RULES, commands_under, expression_of

ROOT = Path(__file__).parents[2]
RUNBOOK = (ROOT / "docs/runbook.md").read_text()
HEADINGS = re.findall("^## (.+)$", RUNBOOK, re.M)
MONITOR = (ROOT / "docs/how-to/monitor.md").read_text()
DASHBOARD = json.loads((ROOT / "deploy/grafana/psoup.json").read_text())
# Metrics that a histogram has beside its name.
SUFFIX = re.compile("_(bucket|count|sum)$")


def documented() -> set[str]:
    return set(re.findall(r"`(psoup_\w+)`", MONITOR))


def queries() -> list[str]:
    return [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]


def metrics_in(text: str) -> set[str]:
    return {SUFFIX.sub("", name) for name in re.findall(r"\bpsoup_\w+", text)}


def test_each_alert_has_a_heading_and_each_heading_an_alert() -> None:
    anchors = re.findall(r"runbook: docs/runbook.md#(\S+)", RULES)
    assert anchors == [title.lower().replace(" ", "-") for title in HEADINGS]
    assert len(anchors) == 14


def test_each_heading_says_what_to_look_at_and_what_to_do() -> None:
    for section in RUNBOOK.split("\n## ")[1:]:
        assert "**Users**:" in section and "**Do**:" in section and "**Don't**" in section, section
    assert {heading: len(commands_under(heading)) for heading in HEADINGS} == dict.fromkeys(
        HEADINGS, 3
    )


def test_each_heading_has_an_incident() -> None:
    tests = Path(__file__).parent.glob("test_*incidents.py")
    looks = {name for test in tests for name in re.findall(r'look\("(.+)"\)', test.read_text())}
    assert looks == set(HEADINGS)


def test_every_metric_that_is_used_is_documented() -> None:
    for text in (RULES, RUNBOOK, *queries()):
        assert metrics_in(text) <= documented(), metrics_in(text) - documented()


def test_alerts_and_panels_separate_stores() -> None:
    """Sources and pulls name no store, and a process that is down says nothing."""
    for alert in re.findall(r"- alert: (\w+)", RULES):
        expression = expression_of(alert)
        apart = re.findall(r"by \(store\b.*?\) group_left \(store\) psoup_store_info", expression)
        assert apart or alert == "PsoupDown" or "(psoup_source_" in expression, expression
    for query in queries():
        if not re.search("psoup_(source|pull)_", query):
            assert 'psoup_store_info{store=~"$store"}' in query
    assert "store" in {variable["name"] for variable in DASHBOARD["templating"]["list"]}


def test_every_alert_is_documented_and_tested() -> None:
    alerts = re.findall(r"- alert: (\w+)", RULES)
    assert re.findall(r"^\| `(Psoup\w+)` \|", MONITOR, re.M) == alerts
    tested = (ROOT / "deploy/prometheus/rules_test.yml").read_text()
    assert all(f"alertname: {alert}\n        exp_alerts" in tested for alert in alerts)

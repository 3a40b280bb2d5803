"""A real Prometheus over a real server and a real engine: rules, dashboard, metrics."""

from __future__ import annotations

import subprocess
from contextlib import ExitStack
from pathlib import Path

import pytest

from client_sdk import Client
from tests.monitoring.test_alerts import ROOT, documented, queries
from tests.support.monitoring import Scrape
from tests.support.prometheus import Prometheus, find_program, running_prometheus
from tests.support.system.processes import Process, RunningStore

pytestmark = [pytest.mark.long, pytest.mark.process]

PSOUP = ("-m", "psoup.cli", "--target")
PULL_OPTIONS = ("--every", "1s", "--metrics", "127.0.0.1:0")
FOLDER = ROOT / "deploy" / "prometheus"


def promtool(*arguments: str, text: str | None = None) -> str:
    done = subprocess.run(
        [find_program("promtool"), *arguments],
        cwd=FOLDER,
        input=text,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_rules_are_right_and_fire() -> None:
    promtool("check", "config", "prometheus.yml")
    promtool("check", "rules", "rules.yml")
    promtool("test", "rules", "rules_test.yml")


def test_metrics_and_dashboard(tmp_path: Path) -> None:
    with RunningStore(tmp_path) as store, ExitStack() as stack:
        target = store.start_server("--metrics", "127.0.0.1:0")
        engine = store.start_engine("--metrics", "127.0.0.1:0")
        with Client(target) as client:
            client.define("CREATE STREAM s (a BIGINT)")
            client.register("SELECT a FROM s WHERE a > 5", key="k")
        sources = tmp_path / "sources.toml"
        sources.write_text('[sources.f]\nfiles = "drop/*.csv"\nstream = "s"\n')
        source = Process(
            [*PSOUP, target, "source", "run", str(sources), "--metrics", "127.0.0.1:0"],
            tmp_path / "source.log",
        )
        stack.callback(source.kill)
        pull = Process(
            [*PSOUP, target, "pull", "k", "--to", str(tmp_path / "k.csv"), *PULL_OPTIONS],
            tmp_path / "pull.log",
        )
        stack.callback(pull.kill)
        jobs = {
            "psoup-server": store.servers[0].wait_for(r"metrics ready on (\S+)")[1],
            "psoup-engine": engine.wait_for(r"metrics ready on (\S+)")[1],
            "psoup-source": source.wait_for(r"metrics ready on (\S+)")[1],
            "psoup-pull": pull.wait_for(r"metrics ready on (\S+)")[1],
        }
        with (
            running_prometheus(tmp_path, jobs, FOLDER / "rules.yml") as prometheus,
            Client(target) as client,
        ):
            client.publish("s", [{"a": n} for n in range(100)])
            store.wait_until_matched(client)
            assert len(list(client.invoke("k"))) == 94
            prometheus.wait_for("psoup_epoch_number > 0")
            prometheus.wait_for("psoup_step_rows_sum == 100")
            prometheus.wait_for("psoup_files > 0")
            prometheus.wait_for('psoup_source_up{source="f"} == 1')
            prometheus.wait_for('psoup_source_lag_seconds{source="f"} == 0')
            prometheus.wait_for('psoup_pull_age_seconds{pull="k"} < 5')
            check_metrics(jobs)
            check_queries(prometheus)


def check_metrics(jobs: dict[str, str]) -> None:
    """Assert that the processes have the documented metrics and no others, in good form."""
    names = set()
    for address in jobs.values():
        scrape = Scrape(address)
        promtool("check", "metrics", text=scrape.text)
        for family in scrape.families:
            if family.name.startswith("psoup_"):
                names.add(f"{family.name}_total" if family.type == "counter" else family.name)
    # A server without TLS has no certificate.
    assert documented() - names == {"psoup_certificate_expiry_timestamp_seconds"}
    assert names <= documented()


def check_queries(prometheus: Prometheus) -> None:
    """Assert that Prometheus has loaded all alerts, none of which fires, and runs every query."""
    (group,) = prometheus.get("rules")["groups"]
    assert len(group["rules"]) == 11
    for rule in group["rules"]:
        assert rule["health"] in ("ok", "unknown"), rule
    (store,) = {series["metric"]["store"] for series in prometheus.query("psoup_store_info")}
    for query in queries():
        query = query.replace("$__rate_interval", "1m")
        series = prometheus.query(query.replace("$store", store))
        if "$store" in query:
            # A rate needs two scrapes and some work.
            assert series or "rate(" in query, query
            series = prometheus.query(query.replace("$store", "another"))
            # Only sources and pulls have no store.
            assert {s["metric"].get("job") for s in series} <= {"psoup-source", "psoup-pull"}

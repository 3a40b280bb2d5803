"""PSoup in two minutes: register, go away, come back, and the answer is there.

Starts a store in a temporary folder and lets three clients register and leave. Publishes rows in
the background, answers a client before Spark is up, waits for Spark, and lets all clients return.
Every answer is compared with a plain loop over the rows. A fourth client keeps a copy that works
offline. Everything is removed at the end. Exit status 1 means that an answer was wrong.

`--page` shows something to look at instead: vehicles on a map, and two phones to unplug.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table

from client_sdk import Answer, Client
from fleet import page_demo
from local_store import running_store
from readings import CAR, LAPTOP, PHONE, STREAM, Question, Reading, Window, readings
from recharge import recharge

ROWS = 40_000
FIRST = 10_000
BATCH = 500
PAUSE = 0.1
ENGINE_TIMEOUT_SECONDS = 300.0
SHOWN_ROWS = 4
NEXT = """What to do next:

  scripts/demo --page            look at it: vans on a map, and two phones to unplug
  scripts/psoup serve my-store   keep a store running: a server and an engine over one folder
  docs/tutorial.md               the same in your own hands, with a phone that goes offline
  scripts/psoup --help           publish, register, invoke, copy from a shell
  examples/demo.py               this demo, in Python"""

console = Console(highlight=False)


class Sensors:
    """Publishes `rows` from a thread, in numbered batches; `sent` says how far it is."""

    def __init__(self, address: str, name: str, rows: Sequence[Reading]) -> None:
        self.sent = 0
        self._address, self._name, self._rows = address, name, rows
        self._failure: Exception | None = None
        self._leave = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name)

    def __enter__(self) -> Sensors:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._leave.set()
        self._thread.join()

    def wait(self, seconds: float) -> bool:
        """Whether all rows are out. Raises what the thread failed with."""
        self._thread.join(seconds)
        if self._failure:
            raise self._failure
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            with Client(self._address) as client:
                self._publish(client)
        except Exception as failure:
            self._failure = failure

    def _publish(self, client: Client) -> None:
        publisher = client.publisher(self._name)
        for first in range(0, len(self._rows), BATCH):
            batch = [row._asdict() for row in self._rows[first : first + BATCH]]
            publisher.publish("traffic", batch)
            self.sent += len(batch)
            if self._leave.wait(PAUSE):
                return


def publish(address: str, name: str, rows: Sequence[Reading]) -> None:
    """Publish all rows in the background, and show the state of the engine."""
    columns = BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}")
    with (
        Client(address) as client,
        Progress(TextColumn("  publishing"), *columns, console=console) as bar,
        Sensors(address, name, rows) as sensors,
    ):
        task = bar.add_task("", total=len(rows))
        done = False
        while not done:
            done = sensors.wait(0.25)
            bar.update(task, completed=sensors.sent, description=engine(client))


def engine(client: Client) -> str:
    """Return the state of the engine in a few words."""
    status = client.status()
    if not status.epoch:
        return "Spark is starting"
    return f"Spark has made epoch {status.epoch}, {status.behind_rows:,} rows behind"


def register(address: str, question: Question) -> bytes:
    """Registers as a client does before it goes away, which keeps only the handle."""
    with Client(address, owner=question.client) as client:
        handle = client.register(question.sql, key="demo").handle
    console.print(f"  {question.client} registers and disconnects:\n[dim]{question.sql}[/]")
    return handle


def wait_for_engine(address: str) -> None:
    """Wait until the engine has matched every row with every query, and show its progress.

    Answers would be right without it: the server computes what the engine has not matched.
    """
    began = time.monotonic()
    columns = BarColumn(), TextColumn("{task.description}")
    with (
        Client(address) as client,
        Progress(TextColumn("  matching  "), *columns, console=console) as bar,
    ):
        task = bar.add_task("", total=ROWS)
        while (waited := time.monotonic() - began) < ENGINE_TIMEOUT_SECONDS:
            status = client.status()
            if status.epoch and not status.behind_rows and not status.backfill_rows:
                done = f"Spark has made epoch {status.epoch}; all rows are matched"
                bar.update(task, completed=ROWS, description=done)
                return
            matched = ROWS - min(ROWS, status.behind_rows) if status.epoch else 0
            bar.update(task, completed=matched, description=f"{engine(client)} ({waited:.0f} s)")
            time.sleep(0.25)
    console.print("  the engine is not done yet; the server computes what is missing")


def ask(
    address: str, question: Question, handle: bytes, window: Window, rows: Sequence[Reading]
) -> bool:
    """Come back, invoke and show the answer; return whether it equals the naive one over `rows`."""
    with Client(address, owner=question.client) as client:
        client.status()
        began = time.perf_counter()
        answer = client.invoke(handle, window=None if window is question.window else window.sql)
        took = time.perf_counter() - began
    now = max(row.at for row in rows)
    right = answer.now == now and got(answer) == question.naive(rows, window, now)
    show(f"{question.client}, {window.sql}", answer, took)
    console.print(f"  {'equals' if right else '[bold red]DIFFERS FROM[/]'} the naive evaluation\n")
    return right


def got(answer: Answer) -> list[Reading]:
    return [Reading(**row) for row in answer.rows]


def show(title: str, answer: Answer, took: float) -> None:
    table = Table(*Reading._fields, title=title, title_justify="left", min_width=60)
    rows = got(answer)
    for row in rows[-SHOWN_ROWS:]:
        table.add_row(str(row.lane), str(row.station), f"{row.speed:.2f}", f"{row.at:%H:%M:%S.%f}")
    if len(rows) > SHOWN_ROWS:
        table.caption = f"the last {SHOWN_ROWS} rows"
    console.print(table)
    console.print(
        f"  {answer.row_count:,} rows in {took * 1000:.1f} ms · {source(answer)} · "
        f"{answer.computed_rows:,} rows computed on the spot"
    )


def source(answer: Answer) -> str:
    """Return where the matches of the answer come from."""
    if not answer.epoch:
        return "without Spark"
    return f"matched by Spark up to epoch {answer.epoch}"


def story(address: str, folder: Path) -> bool:
    rows = readings(ROWS)
    with Client(address) as client:
        client.define(STREAM)
    console.print("[bold]1[/] A stream of traffic readings, and two clients before its first row")
    handles = {question: register(address, question) for question in (PHONE, CAR)}

    console.print("\n[bold]2[/] Rows come in; only the sensors are connected")
    publish(address, "sensors-1", rows[:FIRST])

    console.print("\n[bold]3[/] A third client registers late, and has its answer at once")
    handles[LAPTOP] = register(address, LAPTOP)
    right = [ask(address, LAPTOP, handles[LAPTOP], LAPTOP.other, rows[:FIRST])]

    console.print("[bold]4[/] More rows, and Spark matches all of them with all queries")
    publish(address, "sensors-2", rows[FIRST:])
    wait_for_engine(address)

    console.print("\n[bold]5[/] All three come back, and ask with their own window and another one")
    for question, handle in handles.items():
        for window in (question.window, question.other):
            right.append(ask(address, question, handle, window, rows))
    console.print(f"{sum(right)} of {len(right)} answers equal the naive evaluation.\n")

    console.print(
        "[bold]6[/] A fourth client keeps a copy, goes offline, and comes back for the changes"
    )
    return recharge(address, folder, console) and all(right)


def main() -> int:
    options = argparse.ArgumentParser(
        prog="scripts/demo", description="The product in two minutes."
    )
    options.add_argument("--page", action="store_true", help="serve a page to look at instead")
    options.add_argument(
        "--port", type=int, default=page_demo.DEFAULT_PORT, help="of the page; 0 is any free one"
    )
    options.add_argument("--no-open", action="store_true", help="don't open a browser")
    chosen = options.parse_args()
    # A shell starts programs behind `&` deaf to Ctrl-C.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    if chosen.page:
        return page_demo.run(chosen.port, not chosen.no_open)
    try:
        with tempfile.TemporaryDirectory(prefix="psoup-demo-") as folder:
            console.print("Starting a store in a temporary folder; Spark takes 10 to 20 s longer\n")
            with running_store(Path(folder)) as address:
                right = story(address, Path(folder))
                console.print("Stopping the store and removing its folder")
    except KeyboardInterrupt:
        console.print("\nInterrupted; the store is stopped and its folder removed")
        return 130
    console.print(NEXT)
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())

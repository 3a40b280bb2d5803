"""The command run on a change: what it gets, what its failure means, when it is run again."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from client_sdk import Hook, HookFailed, OutputBusy, pull_once
from client_sdk.pulls import _deliver
from client_sdk.pulls._deliver import run_hook
from client_sdk.pulls._receipt import Receipt, ReceiptFile
from client_sdk.pulls._sinks.files import CsvSink
from tests.client_sdk.pulls.conftest import Place
from tests.conftest import ROOT

FACTS = "$PSOUP_PULL $PSOUP_FORMAT $PSOUP_ROWS $PSOUP_RECEIVED $PSOUP_NOW"
TELL = f'echo "{FACTS}" >> "$PSOUP_OUTPUT.told"'


def reported(place: Place) -> list[str]:
    path = place.folder / "dear.csv.told"
    return path.read_text().splitlines() if path.exists() else []


@pytest.mark.process
def test_it_hears_of_every_change_and_of_nothing_else(place: Place) -> None:
    pull = place.pull(hook=Hook(TELL))
    place.trade(150)
    report = pull_once(place.client, pull)
    assert report.hook is not None and report.hook.error is None
    assert pull_once(place.client, replace(pull, always=True)).hook is None
    pull.to.unlink()
    assert pull_once(place.client, pull).hook is None
    place.trade(160)
    pull_once(place.client, pull)
    assert reported(place) == [
        "dear csv 1 1 2025-03-03T09:00:00+00:00",
        "dear csv 2 1 2025-03-03T09:00:00+00:00",
    ]


@pytest.mark.process
def test_a_failure_is_reported_and_with_must_succeed_it_is_the_pull_s(place: Place) -> None:
    place.trade(150)
    lenient = place.pull(hook=Hook("exit 3"))
    report = pull_once(place.client, lenient)
    assert report.ok and report.hook is not None and "ended with 3" in str(report.hook.error)
    assert pull_once(place.client, lenient).hook is None

    place.trade(160)
    strict = replace(lenient, hook=Hook("exit 3", must_succeed=True))
    with pytest.raises(HookFailed, match="ended with 3"):
        pull_once(place.client, strict)
    mended = replace(strict, hook=Hook(TELL, must_succeed=True))
    assert not pull_once(place.client, mended).changed
    assert reported(place) == ["dear csv 2 0 2025-03-03T09:00:00+00:00"]


@pytest.mark.process
def test_a_change_it_did_not_hear_of_is_told_by_the_next_pull(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.trade(150)
    pull = place.pull(hook=Hook(TELL))

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(_deliver, "run_hook", interrupted)
        with pytest.raises(KeyboardInterrupt):
            pull_once(place.client, pull)
    report = pull_once(place.client, pull)
    assert (report.changed, report.written, len(reported(place))) == (False, False, 1)


@pytest.mark.process
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize(("of", "verb"), [(CsvSink, "write"), (ReceiptFile, "save")])
def test_cut_off_anywhere_the_next_pull_makes_it_good(
    place: Place, monkeypatch: pytest.MonkeyPatch, of: type, verb: str, after: bool
) -> None:
    """Before or after any step that leaves something behind."""
    pull = place.pull(hook=Hook(TELL))
    place.trade(150)
    pull_once(place.client, pull)
    place.trade(160)
    made = getattr(of, verb)

    def cut(*arguments: object) -> None:
        if after:
            made(*arguments)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(of, verb, cut)
        with pytest.raises(KeyboardInterrupt):
            pull_once(place.client, pull)
    assert len(pull.to.read_text().splitlines()) in (2, 3)
    pull_once(place.client, pull)
    assert pull.to.read_text() == '"symbol","price"\n"IBM",150\n"IBM",160\n'
    assert reported(place)[-1].startswith("dear csv 2 ") and len(reported(place)) == 2
    assert not pull_once(place.client, pull).written and len(reported(place)) == 2


def test_past_its_limit_it_is_ended_with_all_it_started(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    command = f"echo $$ > {pids}; sleep 600 & echo $! >> {pids}; trap '' TERM; wait; sleep 600"
    run = run_hook(Hook(command, limit=timedelta(seconds=1)), {})
    assert isinstance(run.error, HookFailed) and "longer than 1s" in str(run.error)
    for pid in map(int, pids.read_text().split()):
        assert not Path(f"/proc/{pid}").exists() or _is_zombie(pid)


def _is_zombie(pid: int) -> bool:
    """It has ended, and its parent has not noticed yet."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"


def test_its_ending_by_a_signal_is_reported(tmp_path: Path) -> None:
    run = run_hook(Hook("kill -9 $$"), {})
    assert "killed by signal 9" in str(run.error)
    missing = run_hook(Hook("true", folder=tmp_path / "none"), {})
    assert "could not be started" in str(missing.error)


# ---- the memory beside an output


def test_a_memory_is_kept_and_one_that_was_cut_is_forgotten(tmp_path: Path) -> None:
    path = tmp_path / "answers.csv.pull"
    memory = Receipt("csv 12", [[1, 2, 3]], "abc", False, "k", "00", "ff")
    with ReceiptFile(path) as file:
        assert file.load() == Receipt()
        file.save(memory)
        assert file.load() == memory
        file.save(Receipt())
        assert file.load() == Receipt()
        file.save(memory)
    for spoiled in (path.read_bytes()[:-5], b"", b"[]", b'{"format": 2}', b'{"format": 1, "x": 1}'):
        path.write_bytes(spoiled)
        with ReceiptFile(path) as file:
            assert file.load() == Receipt()


@pytest.mark.process
def test_one_process_has_it_at_a_time_and_a_killed_one_gives_it_back(tmp_path: Path) -> None:
    path = tmp_path / "answers.csv.pull"
    holder = (
        "import sys, time; from pathlib import Path\n"
        "from client_sdk.pulls._receipt import ReceiptFile\n"
        "with ReceiptFile(Path(sys.argv[1])): print('held', flush=True); time.sleep(600)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", holder, str(path)], cwd=ROOT, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None and process.stdout.readline() == b"held\n"
        with pytest.raises(OutputBusy, match=r"answers\.csv\.pull"), ReceiptFile(path):
            pass
        os.kill(process.pid, 9)
    with ReceiptFile(path) as file:
        assert file.load() == Receipt()


@pytest.mark.process
def test_it_does_not_get_the_token_of_the_pull(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PSOUP_TOKEN", "a secret")
    monkeypatch.setenv("PSOUP_TOKEN_FILE", "a file")
    place.trade(150)
    hook = Hook('echo "${PSOUP_TOKEN-none} $PSOUP_TOKEN_FILE" >> "$PSOUP_OUTPUT.told"')
    pull_once(place.client, place.pull(hook=hook))
    assert reported(place) == ["none a file"]

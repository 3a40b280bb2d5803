"""Streams, registrations and answers from the command line."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner
from google.protobuf.timestamp_pb2 import Timestamp

from client_sdk import Client, ConnectionFailed, ErrorDetail, MockTransport, QueryProblem, answer
from psoup.cli import cli
from psoup.cli.connection import Connection
from psoup.v1 import psoup_pb2 as pb
from tests.cli.conftest import TRADES, Run
from tests.support.client_sdk.contract import trade


@pytest.fixture
def trades(run: Run, client: Client) -> None:
    run("stream", "create", TRADES)
    client.publish("trades", [trade("IBM", 99.5, 0), trade("[DEC]", None, 5), trade("", 101.0, 9)])


def test_a_stream_lives_and_dies(run: Run, tmp_path: Path) -> None:
    (tmp_path / "trades.sql").write_text(TRADES)
    created = run("stream", "create", "--file", str(tmp_path / "trades.sql"))
    assert "kept for ever" in created.stderr
    assert "trades" in run("stream", "list").stdout
    assert "DOUBLE" in run("stream", "show", "trades").stdout
    run("stream", "drop", "trades", "--yes")
    assert "no streams yet" in run("stream", "list").stderr
    assert "no stream trades" in run("stream", "show", "trades", code=1).stderr


def test_text_and_file_together_are_wrong_usage(run: Run, tmp_path: Path) -> None:
    (tmp_path / "a.sql").write_text(TRADES)
    run("stream", "create", TRADES, "--file", str(tmp_path / "a.sql"), code=2)
    run("stream", "create", code=2)


@pytest.mark.usefixtures("trades")
def test_an_answer_is_found_by_handle_and_by_key(run: Run) -> None:
    registered = run(
        "register", "--key", "dear", "SELECT symbol, price FROM trades WHERE price > 100"
    )
    handle = registered.stdout.strip()
    assert len(handle) == 32
    assert "101.0" in run("invoke", handle).stdout
    result = run("invoke", "dear")
    assert "101.0" in result.stdout
    assert "1 row at 2026-01-05 09:09:00" in result.stderr
    assert run("register", "--key", "dear", made_sql()).stdout.strip() == handle
    assert handle in run("list").stdout
    second = "SELECT symbol FROM trades WHERE price > 1000"
    assert "another query" in run("register", "--key", "dear", second, code=1).stderr
    replaced = run("register", "--key", "dear", "--replace", second)
    assert replaced.stdout.strip() == handle and "replaced" in replaced.stderr
    assert "--key" in run("register", "--replace", second, code=2).stderr
    run("unregister", "dear")
    assert "no registration with client key 'dear'" in run("invoke", "dear", code=1).stderr
    assert "unknown handle" in run("invoke", handle, code=1).stderr


def made_sql() -> str:
    return "SELECT symbol, price FROM trades WHERE price > 100"


@pytest.mark.usefixtures("trades")
def test_a_key_belongs_to_its_owner(run: Run) -> None:
    run("--owner", "ann", "register", "--key", "mine", "SELECT symbol FROM trades")
    run("invoke", "mine", code=1)
    run("--owner", "ann", "invoke", "mine")
    assert "ann" not in run("list").stdout
    assert "ann" in run("list", "--all").stdout
    assert json.loads(run("list", "--all", "--json").stdout)["owner"] == "ann"


@pytest.mark.usefixtures("trades")
def test_parameters_are_typed(run: Run, client: Client) -> None:
    sql = "SELECT symbol FROM trades WHERE symbol = :s AND price < :p"
    handle = run("register", sql, "--param", "s=IBM", "--param", "p:double=100").stdout.strip()
    assert client.registration(handle).parameters == {"s": "IBM", "p": 100.0}
    assert [row["symbol"] for row in client.invoke(handle)] == ["IBM"]
    assert "is not bigint" in run("register", sql, "--param", "s:bigint=x", code=2).stderr


@pytest.mark.usefixtures("trades")
def test_many_registrations_from_a_file(run: Run, tmp_path: Path) -> None:
    table = tmp_path / "watch.csv"
    table.write_text("s,client_key\nIBM,a\n[DEC],b\n")
    sql = "SELECT size FROM trades WHERE symbol = :s"
    assert len(run("register-many", sql, str(table)).stdout.split()) == 2
    assert "0 new, 2 registered" in run("register-many", sql, str(table)).stderr
    wider = sql.replace("symbol = ", "symbol >= ")
    result = run("register-many", "--replace", wider, str(table)).stderr
    assert "new, " in result and "replaced, 0 registered" in result
    assert json.loads(run("invoke", "b", "--format", "json").stdout)["rows"] == [{"size": 1}]


@pytest.mark.usefixtures("trades")
def test_an_answer_in_every_format(run: Run, tmp_path: Path) -> None:
    run("register", "--key", "all", "SELECT * FROM trades")
    table = run("invoke", "all", "--limit", "2")
    assert "[DEC]" in table.stdout
    assert "NULL" in table.stdout
    assert "1 more" in table.stderr
    document = json.loads(run("invoke", "all", "--format", "json").stdout)
    assert (document["row_count"], len(document["rows"])) == (3, 3)
    assert document["rows"][0]["at"] == "2026-01-05T09:00:00+00:00"
    now = f"3 rows at {document['now'].replace('T', ' ')}"
    result = run("invoke", "all", "--format", "jsonl")
    assert now in table.stderr and now in result.stderr
    lines = result.stdout.splitlines()
    assert [json.loads(line)["symbol"] for line in lines] == ["IBM", "[DEC]", ""]
    result = run("ask", "SELECT * FROM trades", "--format", "csv")
    rows = list(csv.reader(result.stdout.splitlines()))
    assert rows[0] == ["at", "symbol", "price", "size"]
    assert rows[2][2] == "" and now in result.stderr
    path = tmp_path / "answer.arrow"
    assert now in run("invoke", "all", "--format", "arrow", "--output", str(path)).stderr
    assert pa.ipc.open_file(path).read_all().num_rows == 3
    run("invoke", "all", "--format", "arrow", code=2)


@pytest.mark.usefixtures("trades")
def test_another_window_and_an_earlier_instant(run: Run) -> None:
    run("register", "--key", "all", "SELECT size FROM trades")
    window = ["--window", "BEGIN NOW - 5 MINUTES END NOW"]
    assert len(run("invoke", "all", "--format", "jsonl", *window).stdout.splitlines()) == 2
    then = ["--as-of", "2026-01-05T09:00"]
    assert len(run("invoke", "all", "--format", "jsonl", *then).stdout.splitlines()) == 1
    run("invoke", "all", "--as-of", "yesterday", code=2)
    run("invoke", "all", "--known", "today", code=2)


@pytest.mark.usefixtures("trades")
def test_a_query_is_asked_without_registering_it(run: Run, tmp_path: Path) -> None:
    sql = "SELECT symbol, price FROM trades WHERE symbol = :s"
    result = run("ask", sql, "--param", "s=IBM")
    assert "99.5" in result.stdout
    assert "1 row at 2026-01-05 09:09:00" in result.stderr
    (tmp_path / "query.sql").write_text("SELECT size FROM trades")
    lines = ["--format", "jsonl", "--as-of", "2026-01-05T09:00"]
    assert len(run("ask", "--file", str(tmp_path / "query.sql"), *lines).stdout.splitlines()) == 1
    run("ask", sql, "--format", "arrow", code=2)
    run("ask", code=2)
    assert "prise" in run("ask", "SELECT prise FROM trades", code=1).stderr
    assert "no registrations yet" in run("list").stderr


@pytest.mark.usefixtures("trades")
def test_a_registration_is_explained(run: Run) -> None:
    run("register", "--key", "dear", "SELECT symbol FROM trades WHERE price > 100")
    output = run("explain", "dear").stdout
    for part in (
        "predicate",
        "WHERE price > 100",
        "a comparison per row and constant",
        "3 rows considered",
        "encode",
    ):
        assert part in output
    explanation = json.loads(run("explain", "dear", "--json").stdout)
    assert (explanation["run"]["answer_rows"], explanation["epoch"]) == (1, 0)
    run("explain", "nothing", code=1)


def test_the_refresh_point_is_shown() -> None:
    requests: list[pb.InvokeRequest] = []
    point = pb.AnswerHeader().refreshed_at
    point.FromSeconds(0)

    def reply(request: pb.InvokeRequest) -> object:
        requests.append(request)
        return answer({"a": "BIGINT"}, refreshed_at=point)

    connection = Connection(transport=MockTransport({"Invoke": reply, "Ask": reply}))
    for command in (["invoke", "00" * 16, "--unrefreshed"], ["ask", "SELECT 1"]):
        messages = CliRunner().invoke(cli, command, obj=connection).stderr
        assert "refreshed at 1970-01-01 00:00:00" in messages
    assert [request.unrefreshed for request in requests] == [True, False]


def test_streams_that_lag_are_told_of() -> None:
    requests: list[pb.InvokeRequest] = []
    header = pb.AnswerHeader()
    header.latest.FromSeconds(60)
    header.complete_until.FromSeconds(0)

    def reply(request: pb.InvokeRequest) -> object:
        requests.append(request)
        return answer({"a": "BIGINT"}, latest=header.latest, complete_until=header.complete_until)

    connection = Connection(transport=MockTransport({"Invoke": reply, "Ask": reply}))
    for command in (["invoke", "00" * 16, "--latest"], ["ask", "SELECT 1"]):
        messages = CliRunner().invoke(cli, command, obj=connection).stderr
        assert "complete until 1970-01-01 00:00:00+00:00; one stream has reached" in messages
    assert [request.latest for request in requests] == [True, False]
    command = ["ask", "SELECT 1", "--latest", "--as-of", "2025-01-01"]
    assert "give --latest or --as-of" in CliRunner().invoke(cli, command, obj=connection).stderr


def test_a_registration_over_several_streams_is_listed() -> None:
    legs = [
        pb.RegistrationLeg(stream=stream, matched_rows=matched, stream_rows=100)
        for stream, matched in [("trades", 100), ("names", 0), ("trades", 50)]
    ]
    registration = pb.Registration(handle=bytes(16), client_key="mine", sql="SELECT 1", legs=legs)
    page = pb.ListRegistrationsResponse(registrations=[registration])
    connection = Connection(transport=MockTransport({"ListRegistrations": lambda _: page}))
    output = CliRunner().invoke(cli, ["list"], obj=connection).stdout
    assert "trades, names  50%" in output


@pytest.mark.usefixtures("trades")
def test_a_bad_query_is_underlined(run: Run) -> None:
    messages = run("register", "SELECT symbol FROM trades WHERE prise > 1", code=1).stderr
    lines = messages.splitlines()
    place = next(index for index, line in enumerate(lines) if "^" in line)
    assert lines[place].index("^") == lines[place - 1].index("prise")
    assert "psoup stream show" in messages


def test_an_excerpt_in_the_message_is_not_shown_again() -> None:
    message = "no column prize\n  SELECT prize\n         ^^^^^\nhint: did you mean price?"
    excerpt = "SELECT prize\n       ^^^^^"
    detail = ErrorDetail(line=1, column=8, excerpt=excerpt, hint="did you mean price?")
    problem = QueryProblem(message, detail=detail)
    connection = Connection(transport=MockTransport({"Define": [problem]}))
    messages = CliRunner().invoke(cli, ["stream", "create", "x"], obj=connection).stderr
    assert (messages.count("^^^^^"), messages.count("did you mean")) == (1, 1)


def status(epoch: int, behind: int = 0, engine: pb.EngineStatus | None = None) -> Connection:
    reply = pb.StatusResponse(
        store_id="abc", version="1", epoch=epoch, behind_rows=behind, engine=engine
    )
    return Connection(transport=MockTransport({"Status": lambda request: reply}))


def test_status_for_people_and_programs() -> None:
    output = CliRunner().invoke(cli, ["status"], obj=status(0)).stdout
    assert "store abc" in output
    assert "has never run" in output
    assert "1,234 rows" in CliRunner().invoke(cli, ["status"], obj=status(0, 1234)).stdout
    assert "1,234 rows" in CliRunner().invoke(cli, ["status"], obj=status(3, 1234)).stdout
    found = json.loads(CliRunner().invoke(cli, ["status", "--json"], obj=status(3)).stdout)
    assert found["epoch"] == 3


def test_status_says_which_rows_are_lost_where_it_is_told() -> None:
    told = pb.Hole(tenant="main", stream="s", first_row_id=3, row_count=2, file="log/f")
    holes = [told, pb.Hole(tenant="main", stream="t")]
    reply = pb.StatusResponse(store_id="abc", holes=holes)
    connection = Connection(transport=MockTransport({"Status": lambda request: reply}))
    output = CliRunner().invoke(cli, ["status"], obj=connection).stderr
    assert "LOST: rows 3 to 4 of stream s of main: log/f is damaged or gone" in output
    assert "LOST: rows of stream t of main: their file is damaged or gone" in output


@pytest.mark.parametrize(
    ("epoch", "engine", "output", "hidden"),
    [
        (3, None, "up to date", "running"),
        (0, pb.EngineStatus(), "has never run", "none is running"),
        (3, pb.EngineStatus(), "none is running: answers are computed on the spot", "up to date"),
        (3, pb.EngineStatus(running=True, host="far", pid=7), "up to date", "none is running"),
        (3, pb.EngineStatus(running=True, host="far", pid=7), "process 7 on far", "none is"),
        (
            3,
            pb.EngineStatus(host="far", pid=7, seen_at=Timestamp(seconds=60)),
            "none is running since 1970-01-01 00:01:00+00:00 (process 7 on far)",
            "up to date",
        ),
    ],
)
def test_status_says_whether_an_engine_lives(
    epoch: int, engine: pb.EngineStatus | None, output: str, hidden: str
) -> None:
    engine_lines = CliRunner().invoke(cli, ["status"], obj=status(epoch, engine=engine)).stdout
    engine_lines = " ".join(re.sub(r"[│┃|]", " ", engine_lines).split())
    assert output in engine_lines and hidden not in engine_lines


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConnectionFailed("No answer"), 3),
        (ConnectionFailed("stopping", detail=ErrorDetail(reason="STOPPING")), 1),
        (KeyboardInterrupt(), 130),
    ],
)
def test_exit_codes(error: BaseException, code: int) -> None:
    def fail(request: object) -> None:
        raise error

    connection = Connection(transport=MockTransport({"Define": fail}))
    result = CliRunner().invoke(cli, ["stream", "create", "x"], obj=connection)
    assert result.exit_code == code


def test_wrong_usage_is_two(run: Run) -> None:
    run("invoke", code=2)
    run("nonsense", code=2)


@pytest.mark.parametrize("command", sorted(cli.commands))
def test_every_command_explains_itself(run: Run, command: str) -> None:
    if command not in ("server", "engine"):
        assert "Usage:" in run(command, "--help").stdout


@pytest.mark.parametrize("command", [["stream", "create"], ["register"], ["ask"]])
def test_a_file_for_sql_is_told_how_to_give_it(
    run: Run, tmp_path: Path, command: list[str]
) -> None:
    missing = run(*command, "nofile.sql", code=2).stderr
    assert "nofile.sql is not SQL, and there is no such file" in missing
    assert "--file FILE" in missing
    assert "there is no such file" in run(*command, "queries/dear", code=2).stderr
    path = tmp_path / "trades"
    path.write_text(TRADES)
    assert f"write --file {path}" in run(*command, str(path), code=2).stderr


def test_registrations_are_chosen_by_stream_and_text() -> None:
    requests: list[pb.ListRegistrationsRequest] = []

    def listing(request: pb.ListRegistrationsRequest) -> pb.ListRegistrationsResponse:
        requests.append(request)
        return pb.ListRegistrationsResponse()

    connection = Connection(transport=MockTransport({"ListRegistrations": listing}))
    command = ["list", "--all", "--stream", "trades", "--contains", "price"]
    result = CliRunner().invoke(cli, command, obj=connection)
    assert (requests[0].stream, requests[0].contains) == ("trades", "price")
    assert "no such registrations" in result.output


def test_status_and_streams_say_what_they_cost() -> None:
    work = pb.RegistrationWork(handle=b"x" * 16, owner="ann", client_key="dear", work=2_500_000)
    leap = pb.NowLeap(owner="ann", publisher="till")
    times = [
        pb.StreamTime(tenant="main", stream="visits", late_rows=3, last_leap=leap),
        pb.StreamTime(tenant="main", stream="meters", late_rows=1),
    ]
    status = pb.StatusResponse(store_id="s", top_registrations=[work], stream_times=times)
    stats = pb.StreamStats(log_bytes=1234, behind_rows=5, late_rows=7, last_leap=leap)
    replies = {
        "Status": lambda _: status,
        "DescribeStream": lambda _: pb.Stream(name="trades", stats=stats),
    }
    connection = Connection(transport=MockTransport(replies))
    shown = CliRunner().invoke(cli, ["status"], obj=connection).output
    assert re.search(r"dear +ann +2\.5", shown)
    assert "stream visits of main: publisher till of ann took now ahead of the clock" in shown
    assert "; 3 rows came after now had passed their ts" in shown
    assert "stream meters of main: 1 row came after now" in shown
    shown = CliRunner().invoke(cli, ["stream", "show", "trades"], obj=connection).output
    assert "log 1,234" in shown and "5 rows not yet in an epoch" in shown
    assert "7 rows came after now" in shown and "publisher till of ann took now" in shown

"""psoup explain of a query over several streams, as it looks."""

from __future__ import annotations

from click.testing import CliRunner
from google.protobuf.duration_pb2 import Duration

from client_sdk import MockTransport
from psoup.cli import cli
from psoup.cli.connection import Connection
from psoup.v1 import psoup_pb2 as pb

GOLDEN = """\
several streams
refresh     always fresh
engine      epoch 7
one invoke  1,030 rows considered, 30 computed on the spot, 12 in the answer (960 bytes)

select symbol, name · STR
└─ join trades.symbol = names.symbol AND trades#2.price < trades.price · STR
   │  begins with 2 names
   │  then 1 trades, by equal join keys: 30 × 1,000 rows, 40 pairs compared, 40 joined
   │  then 3 trades, by sorted values: 40 × 5 rows, 200 pairs compared, 12 joined
   ├─ 1  stream trades WINDOW(RANGE 1 HOUR) WHERE price > 100.0 · WKS · 1,000 rows
   ├─ 2  stream names WINDOW(UNBOUNDED) · STR · 30 rows
   └─ union all · WK
      ├─ select price · WKS
      │  └─ 3  stream trades WINDOW(RANGE 1 HOUR) · WKS
      └─ select price · WKS
         └─ 4  stream trades WINDOW(RANGE 2 HOURS) · WKS

1  trades · RANGE 1 HOUR
registrations     2 with this predicate
other predicates  9 over the stream
matched           970 of 1,000 rows (97 %)
stored            800 matches in 1 block: 1,600 bytes, 2 pieces, 1 file
rows              1,000 considered, 1,000 match in the window

factor         shared by  matched by
price > 100.0  1 other    index of price: one binary search per row, for all 12 constants together

2  names · UNBOUNDED
registrations     1 with this predicate
other predicates  0 over the stream
matched           0 of 30 rows (0 %)
stored            0 matches in 0 blocks: 0 bytes, 0 pieces, 0 files
keyed stream      30 current rows in the window, one for each stream key
rows              30 considered, 30 match in the window

3  trades · RANGE 1 HOUR
registrations     1 with this predicate
other predicates  9 over the stream
matched           0 of 1,000 rows (0 %)
stored            0 matches in 0 blocks: 0 bytes, 0 pieces, 0 files
rows              0 considered

4  trades · RANGE 2 HOURS
registrations     1 with this predicate
other predicates  9 over the stream
matched           0 of 1,000 rows (0 %)
stored            0 matches in 0 blocks: 0 bytes, 0 pieces, 0 files
rows              0 considered

one invoke  ms    %
join        3.00  75
encode      1.00  25
in all      4.00  100
"""

EXPLAINED = pb.Explanation(
    epoch=7,
    run=pb.ExplainedRun(
        considered_rows=1030,
        computed_rows=30,
        answer_rows=12,
        answer_bytes=960,
        stages=[
            pb.Stage(name="join", duration=Duration(nanos=3_000_000)),
            pb.Stage(name="encode", duration=Duration(nanos=1_000_000)),
        ],
    ),
    legs=[
        pb.ExplainedLeg(
            stream="trades",
            window="RANGE 1 HOUR",
            registration_count=2,
            factors=[
                pb.Factor(
                    text="price > 100.0",
                    access=pb.ACCESS_SEARCHED,
                    operand="price",
                    constant_count=12,
                    shared_by=1,
                )
            ],
            other_predicates=9,
            compared_predicates=9,
            stored=pb.StoredMatches(
                file_count=1, piece_count=2, block_count=1, byte_count=1600, row_count=800
            ),
            matched_rows=970,
            stream_rows=1000,
            considered_rows=1000,
            row_count=1000,
        ),
        pb.ExplainedLeg(
            stream="names",
            window="UNBOUNDED",
            registration_count=1,
            stream_rows=30,
            considered_rows=30,
            row_count=30,
            current_rows=30,
        ),
        *[
            pb.ExplainedLeg(
                stream="trades",
                window=window,
                registration_count=1,
                other_predicates=9,
                compared_predicates=9,
                stream_rows=1000,
            )
            for window in ("RANGE 1 HOUR", "RANGE 2 HOURS")
        ],
    ],
)


def operator(
    name: str, detail: str, pattern: pb.UpdatePattern, *inputs: pb.ExplainedOperator, leg: int = -1
) -> pb.ExplainedOperator:
    place = None if leg < 0 else leg
    return pb.ExplainedOperator(name=name, detail=detail, pattern=pattern, inputs=inputs, leg=place)


def test_several_streams_are_drawn_as_a_tree() -> None:
    wks, strict = pb.UPDATE_PATTERN_WKS, pb.UPDATE_PATTERN_STR
    recent = "trades WINDOW(RANGE 1 HOUR)"
    join = operator(
        "join",
        "trades.symbol = names.symbol AND trades#2.price < trades.price",
        strict,
        operator("stream", f"{recent} WHERE price > 100.0", wks, leg=0),
        operator("stream", "names WINDOW(UNBOUNDED)", strict, leg=1),
        operator(
            "union all",
            "",
            pb.UPDATE_PATTERN_WK,
            operator("select", "price", wks, operator("stream", recent, wks, leg=2)),
            operator(
                "select",
                "price",
                wks,
                operator("stream", "trades WINDOW(RANGE 2 HOURS)", wks, leg=3),
            ),
        ),
    )
    join.first_input = 1
    join.steps.add(
        input=0,
        method=pb.JOIN_METHOD_EQUALITY,
        joined_rows=30,
        input_rows=1000,
        candidate_pairs=40,
        kept_pairs=40,
    )
    join.steps.add(
        input=2,
        method=pb.JOIN_METHOD_RANGE,
        joined_rows=40,
        input_rows=5,
        candidate_pairs=200,
        kept_pairs=12,
    )
    message = pb.Explanation()
    message.CopyFrom(EXPLAINED)
    message.operator.CopyFrom(operator("select", "symbol, name", strict, join))
    connection = Connection(transport=MockTransport({"Explain": lambda _: message}))
    explanation = CliRunner().invoke(cli, ["explain", "00" * 16], obj=connection)
    assert [line.rstrip() for line in explanation.stdout.splitlines()] == GOLDEN.splitlines()


def test_a_refresh_inside_is_told() -> None:
    wks = pb.UPDATE_PATTERN_WKS
    message = pb.Explanation()
    message.CopyFrom(EXPLAINED)
    inner = operator("refresh", "ON alarms", wks, operator("stream", "trades", wks, leg=0))
    message.operator.CopyFrom(operator("select", "symbol", wks, inner))
    connection = Connection(transport=MockTransport({"Explain": lambda _: message}))
    explanation = CliRunner().invoke(cli, ["explain", "00" * 16], obj=connection)
    assert "only inside the query" in explanation.stdout


def test_a_text_is_explained_instead_of_a_registration() -> None:
    requests: list[pb.ExplainRequest] = []

    def explain(request: pb.ExplainRequest) -> pb.Explanation:
        requests.append(request)
        return EXPLAINED

    connection = Connection(transport=MockTransport({"Explain": explain}))

    def run(*arguments: str) -> int:
        return CliRunner().invoke(cli, ["explain", *arguments], obj=connection).exit_code

    text = "SELECT a FROM s WHERE a > :least"
    assert run("--sql", text, "--param", "least=9") == 0
    assert (requests[0].sql, requests[0].parameters["least"].bigint) == (text, 9)
    assert not requests[0].handle
    for wrong in ([], ["dear", "--sql", text], ["--sql", text, "--window", "ROWS 1"]):
        assert run(*wrong) == 2
    assert run("00" * 16, "--param", "least=9") == 2 and len(requests) == 1

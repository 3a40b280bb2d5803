"""The forms of an answer's rows: JSON, lines of JSON, CSV and Arrow."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
import pyarrow.csv

from datastem.schema import Column
from psoup.errors import BadRequest
from psoup.formats.csv_safe import formula_safe
from psoup.formats.json_rows import rows_as_json
from psoup.server.call import RowsForm
from psoup.server.wire.arrow import AnswerPart, arrow_pieces
from psoup.web.exchange import ARROW, CSV, JSON, NDJSON, Request
from querystem.pace import spending

CONTENT_TYPES = {"json": JSON, "ndjson": NDJSON, "csv": CSV, "arrow": ARROW}
_BY_CONTENT_TYPE = {
    **{content_type: name for name, content_type in CONTENT_TYPES.items()},
    "application/*": "json",
    "text/*": "csv",
    "*/*": "json",
}
# Units (`querystem.pace`) of a value that becomes text.
_VALUE_UNITS = 200
# Texts are about so many times larger than the Arrow that they are made from.
_TEXT_FACTOR = 3

_Rows = Sequence[pa.RecordBatch]
_Write = Callable[[pa.RecordBatch], bytes]


@dataclass(frozen=True, slots=True)
class Form:
    """The form that a request asks for."""

    name: str
    bigint_text: bool = False

    @property
    def content_type(self) -> str:
        content_type = CONTENT_TYPES[self.name]
        return f"{content_type}; charset=utf-8" if self.name == "csv" else content_type

    def of_rows(self, max_rows: int | None) -> RowsForm:
        """Return how a server encodes rows in this form."""
        match self.name:
            case "arrow":
                return RowsForm(_arrow, max_rows, is_quick=True)
            case "csv":
                return RowsForm(_csv, max_rows)
        separator = ",\n" if self.name == "json" else "\n"
        write = partial(rows_as_json, separator=separator, bigint_text=self.bigint_text)
        return RowsForm(partial(_texts, write), max_rows)


def form_of(request: Request) -> Form:
    """Return the form that `?format=`, or else `Accept`, asks for. Raise BadRequest."""
    parameters = request.parameters
    name = parameters.choice("format", CONTENT_TYPES) or _accepted(request.headers.get("accept"))
    bigint = parameters.choice("bigint", ("text", "number"))
    return Form(name, bigint_text=bigint == "text")


def _accepted(accept: str | None) -> str:
    """Return the form that a header `Accept` prefers."""
    if not accept:
        return "json"
    ranges = []
    for text in accept.split(","):
        content_type, *attributes = (part.strip().lower() for part in text.split(";"))
        weights = [part[2:] for part in attributes if part.startswith("q=")]
        try:
            weight = float(weights[0]) if weights else 1.0
        except ValueError:
            weight = 0.0
        if weight > 0 and content_type in _BY_CONTENT_TYPE:
            ranges.append((weight, not content_type.endswith("*"), content_type))
    if not ranges:
        raise BadRequest(
            "no form of an answer that this resource has is accepted",
            reason="NOT_ACCEPTABLE",
            field="Accept",
            expected=", ".join(CONTENT_TYPES.values()),
            got=accept[:60],
        )
    # The first of the heaviest, and of these one that is named rather than a range.
    best = max(ranges, key=lambda entry: entry[:2])
    return _BY_CONTENT_TYPE[best[2]]


# ---- encoders, called where the answer is computed


def _arrow(
    batches: _Rows, columns: Sequence[Column], limit: int, answer_part: AnswerPart
) -> Iterator[bytes]:
    return arrow_pieces(batches, limit, answer_part)


def _texts(
    write: _Write, batches: _Rows, columns: Sequence[Column], limit: int, answer_part: AnswerPart
) -> Iterator[bytes]:
    """Yield texts of rows, some at a time; none for no rows."""
    for batch in batches:
        for rows in _slices(batch, limit):
            spending()(rows.num_rows * rows.num_columns * _VALUE_UNITS)
            yield write(rows)


def _csv(
    batches: _Rows, columns: Sequence[Column], limit: int, answer_part: AnswerPart
) -> Iterator[bytes]:
    if answer_part.first:
        yield _csv_text(batches[0].slice(0, 0), header=True)
    yield from _texts(_csv_text, batches, columns, limit, answer_part)


def _csv_text(rows: pa.RecordBatch, header: bool = False) -> bytes:
    sink = io.BytesIO()
    options = pyarrow.csv.WriteOptions(include_header=header)
    # Anyone who publishes can write a text that a spreadsheet would compute.
    pyarrow.csv.write_csv(formula_safe(rows), sink, options)
    return sink.getvalue()


def _slices(rows: pa.RecordBatch, limit: int) -> Iterator[pa.RecordBatch]:
    """Yield slices whose texts have about `limit` bytes."""
    count = max(1, -(-int(rows.nbytes) * _TEXT_FACTOR // limit))
    step = max(1, -(-rows.num_rows // count))
    for start in range(0, rows.num_rows, step):
        yield rows.slice(start, step)

"""The two tables of docs/reference/language.md that show what REFRESH answers, batch by batch."""

from __future__ import annotations

from tests.support.docs.markdown import table

EVERY = "SELECT at FROM alarms REFRESH EVERY 2 SECONDS"
ON = "SELECT at FROM alarms REFRESH ON alarms WHERE level > 0"


def refreshes(page: str) -> list[tuple[str, str, str, str]]:
    """Return the query, the rows as they came, its answer and the second it is as of."""
    heads = {
        EVERY: "rows, by second, as they came",
        ON: "rows, by second, with those that refresh",
    }
    return [
        (sql, rows, answer, point)
        for sql, head in heads.items()
        for rows, answer, point in table(page, head, "answer", "as of")
    ]


def batches_of(rows: str) -> list[list[tuple[int, int]]]:
    """Return the second of each row, and its level: 1 if it is marked."""
    return [
        [(int(row.strip(" !")), int("!" in row)) for row in batch.split(",")]
        for batch in rows.split(";")
    ]

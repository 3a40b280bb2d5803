"""Bodies with rows of a stream, in the forms that the web port takes. `accept` checks the rest."""

from __future__ import annotations

from collections.abc import Mapping

from psoup.server.admission import TYPED_FACTOR
from psoup.server.call import BatchForm
from psoup.web.bodies.csv_body import read_csv
from psoup.web.bodies.json_body import read_json, read_ndjson
from psoup.web.exchange import ARROW, CSV, JSON, NDJSON

# Arrow is what a call brings anyway.
BATCH_FORMS: Mapping[str, BatchForm | None] = {
    JSON: BatchForm(read_json, TYPED_FACTOR),
    NDJSON: BatchForm(read_ndjson, TYPED_FACTOR),
    CSV: BatchForm(read_csv, TYPED_FACTOR),
    ARROW: None,
}

"""Queries over joins of real rows: ours, and DuckDB's text over what is shown at {now}."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from tests.support.real import streams
from tests.support.real.streams import RealStream


@dataclass(frozen=True)
class RealJoin:
    """Streams, and queries over them.

    DuckDB's texts may name all rows that a keyed stream ever had, as `sensors_rows`. The first
    query is the one that is copied through a server. NOW is that of the first stream,
    which the other streams either have reached or don't hold back. `middle` is an earlier instant.
    """

    streams: Sequence[Callable[[Path], RealStream]]
    queries: Mapping[str, str]
    middle: datetime

    def read(self, data: Path) -> list[RealStream]:
        return [read(data) for read in self.streams]


TRAFFIC = RealJoin(
    (streams.traffic, streams.sensors),
    {
        # Slow readings with the place they were taken at: equality, and a window of one side.
        "SELECT t.ts, t.station, t.speed_mph, s.road FROM traffic WINDOW(RANGE 1 HOUR) AS t, "
        "sensors AS s WHERE t.station = s.station AND t.speed_mph < 25": (
            "SELECT t.ts, t.station, t.speed_mph, s.road FROM traffic t, sensors s "
            "WHERE t.station = s.station AND t.speed_mph < 25 AND t.ts > {now} - INTERVAL 1 HOUR "
            "ORDER BY greatest(t.ts, s.seen), t.row_id, s.row_id"
        ),
        "SELECT s.road, avg(t.speed_mph) AS mean, count(*) AS n, count(DISTINCT t.station) AS at "
        "FROM traffic WINDOW(RANGE 10 MINUTES) AS t JOIN sensors AS s ON t.station = s.station "
        "WHERE t.speed_mph > 0 GROUP BY s.road HAVING count(*) > 5 ORDER BY mean, road LIMIT 8": (
            "SELECT s.road, avg(t.speed_mph) AS mean, count(*), count(DISTINCT t.station) "
            "FROM traffic t, sensors s WHERE t.station = s.station AND t.speed_mph > 0 "
            "AND t.ts > {now} - INTERVAL 10 MINUTE GROUP BY s.road HAVING count(*) > 5 "
            "ORDER BY mean, road LIMIT 8"
        ),
        "SELECT DISTINCT s.road, date_trunc('hour', t.ts) AS hour FROM traffic AS t, sensors AS s "
        "WHERE t.station = s.station AND t.speed_mph BETWEEN 1 AND 15 ORDER BY hour DESC, road": (
            "SELECT DISTINCT s.road, date_trunc('hour', t.ts) AS hour FROM traffic t, sensors s "
            "WHERE t.station = s.station AND t.speed_mph BETWEEN 1 AND 15 ORDER BY hour DESC, road"
        ),
        # The newest reading of each station that lies in a corner of the map.
        "SELECT t.station, t.speed_mph, s.latitude, s.longitude "
        "FROM traffic WINDOW(PARTITION BY station ROWS 1) AS t JOIN sensors AS s USING (station) "
        "WHERE s.latitude > 34.15 AND s.longitude < -118.3": (
            "SELECT t.station, t.speed_mph, s.latitude, s.longitude FROM (SELECT * FROM traffic "
            "QUALIFY row_number() OVER (PARTITION BY station ORDER BY ts DESC, row_id DESC) = 1) t "
            "JOIN sensors s USING (station) WHERE s.latitude > 34.15 AND s.longitude < -118.3 "
            "ORDER BY greatest(t.ts, s.seen), t.row_id, s.row_id"
        ),
        # The road that a station was at when it was read, not the one it is at now.
        "SELECT s.road, count(*) AS n, avg(t.speed_mph) AS mean "
        "FROM traffic AS t, sensors AS OF t.ts AS s WHERE t.station = s.station GROUP BY s.road": (
            "SELECT s.road, count(*), avg(t.speed_mph) FROM traffic t ASOF JOIN sensors_rows s "
            "ON t.station = s.station AND t.ts >= s.seen WHERE s._op <> 'delete' "
            "GROUP BY s.road ORDER BY s.road"
        ),
        "SELECT t.ts, t.station, s.latitude FROM traffic WINDOW(RANGE 8 HOURS) AS t "
        "LEFT JOIN sensors AS OF t.ts AS s ON t.station = s.station AND s.road < 4 "
        "WHERE t.speed_mph < 5": (
            "SELECT t.ts, t.station, CASE WHEN s.road < 4 AND s._op <> 'delete' THEN s.latitude "
            "END FROM traffic t ASOF LEFT JOIN sensors_rows s "
            "ON t.station = s.station AND t.ts >= s.seen "
            "WHERE t.speed_mph < 5 AND t.ts > {now} - INTERVAL 8 HOUR ORDER BY t.ts, t.row_id"
        ),
        # Neighbours by their coordinates, a band of each; and what both read at the same time.
        "SELECT a.station, b.station AS other, count(*) AS n, avg(y.speed_mph - x.speed_mph) gap "
        "FROM sensors AS a, sensors AS b, traffic WINDOW(RANGE 30 MINUTES) AS x, "
        "traffic WINDOW(RANGE 30 MINUTES) AS y WHERE a.station < b.station "
        "AND b.latitude BETWEEN a.latitude - 0.002 AND a.latitude + 0.002 "
        "AND b.longitude BETWEEN a.longitude - 0.002 AND a.longitude + 0.002 "
        "AND x.station = a.station AND y.station = b.station AND x.ts = y.ts "
        "GROUP BY a.station, b.station ORDER BY gap DESC, 1, 2 LIMIT 10": (
            "SELECT a.station, b.station, count(*), avg(y.speed_mph - x.speed_mph) AS gap "
            "FROM sensors a, sensors b, traffic x, traffic y WHERE a.station < b.station "
            "AND b.latitude BETWEEN a.latitude - 0.002 AND a.latitude + 0.002 "
            "AND b.longitude BETWEEN a.longitude - 0.002 AND a.longitude + 0.002 "
            "AND x.station = a.station AND y.station = b.station AND x.ts = y.ts "
            "AND x.ts > {now} - INTERVAL 30 MINUTE GROUP BY a.station, b.station "
            "ORDER BY gap DESC, 1, 2 LIMIT 10"
        ),
    },
    datetime(2012, 3, 1, 12, 7, tzinfo=UTC),
)

TRADES = RealJoin(
    (streams.trades,),
    {
        # After a large trade, the trades of the share within a second at about its price.
        "SELECT a.symbol, a.ts, b.ts AS later, a.price, b.price AS other "
        "FROM trades AS a, trades AS b WHERE a.symbol = b.symbol AND a.size >= 2000 "
        "AND b.ts > a.ts AND b.ts <= a.ts + INTERVAL '1' SECOND "
        "AND b.price BETWEEN a.price - 0.01 AND a.price + 0.01 RANGE 8 HOURS": (
            "SELECT a.symbol, a.ts, b.ts, a.price, b.price FROM trades a, trades b "
            "WHERE a.symbol = b.symbol AND a.size >= 2000 "
            "AND b.ts > a.ts AND b.ts <= a.ts + INTERVAL 1 SECOND "
            "AND b.price BETWEEN a.price - 0.01 AND a.price + 0.01 "
            "AND least(a.ts, b.ts) > {now} - INTERVAL 8 HOUR "
            "ORDER BY greatest(a.ts, b.ts), a.row_id, b.row_id"
        ),
        # The two shares beside each other: one ts, large trades of both.
        "SELECT a.price, b.price AS other, a.size + b.size AS size FROM trades AS a JOIN trades "
        "AS b ON a.ts = b.ts WHERE a.symbol = 'IBM' AND b.symbol = 'AIG' "
        "ORDER BY size DESC, a.row_id, b.row_id LIMIT 20": (
            "SELECT a.price, b.price, a.size + b.size AS size FROM trades a JOIN trades b "
            "ON a.ts = b.ts WHERE a.symbol = 'IBM' AND b.symbol = 'AIG' "
            "ORDER BY size DESC, a.row_id, b.row_id LIMIT 20"
        ),
        "SELECT a.exchange, b.exchange AS next, count(*) AS n, max(b.price - a.price) AS up "
        "FROM trades AS a, trades AS b WHERE a.symbol = b.symbol AND a.size >= 1000 "
        "AND b.size >= 1000 AND b.ts - a.ts < INTERVAL '2' SECOND AND b.ts > a.ts "
        "GROUP BY a.exchange, b.exchange HAVING count(*) > 1 ORDER BY n DESC, 1, 2 RANGE 8 HOURS": (
            "SELECT a.exchange, b.exchange, count(*) AS n, max(b.price - a.price) "
            "FROM trades a, trades b WHERE a.symbol = b.symbol AND a.size >= 1000 "
            "AND b.size >= 1000 AND b.ts - a.ts < INTERVAL 2 SECOND AND b.ts > a.ts "
            "AND least(a.ts, b.ts) > {now} - INTERVAL 8 HOUR "
            "GROUP BY a.exchange, b.exchange HAVING count(*) > 1 ORDER BY n DESC, 1, 2"
        ),
        # Windows of two lengths over one stream: the last trades beside the last hours.
        "SELECT DISTINCT a.symbol, a.exchange FROM trades WINDOW(ROWS 50) AS a, "
        "trades WINDOW(RANGE 6 HOURS) AS b WHERE a.symbol = b.symbol AND b.price > a.price + 0.3 "
        "AND a.exchange = b.exchange ORDER BY 2, 1": (
            "SELECT DISTINCT a.symbol, a.exchange FROM "
            "(SELECT * FROM trades ORDER BY ts DESC, row_id DESC LIMIT 50) a, trades b "
            "WHERE a.symbol = b.symbol AND b.price > a.price + 0.3 AND a.exchange = b.exchange "
            "AND b.ts > {now} - INTERVAL 6 HOUR ORDER BY 2, 1"
        ),
        # The trades of each share at the highest price of the last hours, and the largest of any
        # exchange.
        "SELECT a.symbol, a.exchange, a.price FROM trades WINDOW(RANGE 8 HOURS) AS a "
        "WHERE a.price >= (SELECT max(b.price) FROM trades WINDOW(RANGE 8 HOURS) AS b "
        "WHERE b.symbol = a.symbol)": (
            "WITH seen AS (SELECT * FROM trades WHERE ts > {now} - INTERVAL 8 HOUR) "
            "SELECT symbol, exchange, price FROM seen a WHERE price >= "
            "(SELECT max(b.price) FROM seen b WHERE b.symbol = a.symbol) ORDER BY ts, row_id"
        ),
        "SELECT DISTINCT a.exchange, a.size FROM trades AS a WHERE a.symbol = 'IBM' AND a.size >= "
        "ALL (SELECT b.size FROM trades AS b WHERE b.exchange = a.exchange AND b.symbol = 'IBM' "
        "AND b.size >= 1000) AND a.size >= 1000 ORDER BY 2 DESC, 1": (
            "SELECT exchange, max(size) AS most FROM trades WHERE symbol = 'IBM' AND size >= 1000 "
            "GROUP BY exchange ORDER BY most DESC, exchange"
        ),
        "SELECT x.symbol, x.price, y.price AS high FROM "
        "(SELECT symbol, price, ts FROM trades WHERE size >= 5000) AS x, "
        "(SELECT symbol, price, ts FROM trades WHERE size >= 10000) AS y "
        "WHERE x.symbol = y.symbol AND y.price > x.price + 1": (
            "SELECT x.symbol, x.price, y.price FROM trades x, trades y WHERE x.size >= 5000 "
            "AND y.size >= 10000 AND x.symbol = y.symbol AND y.price > x.price + 1 "
            "ORDER BY greatest(x.ts, y.ts), x.row_id, y.row_id"
        ),
    },
    datetime(2013, 10, 7, 12, tzinfo=UTC),
)

PARKING = RealJoin(
    (streams.parking, streams.changes, streams.lots),
    {
        # What is free now, with the car park's name: both sides show their current rows.
        "SELECT l.city_name, l.place_name, p.free_places, l.num_all FROM parking AS p "
        "JOIN lots AS l USING (place_id) WHERE p.free_places < 20 AND l.num_all > 100 "
        "ORDER BY city_name, place_name, place_id": (
            "SELECT l.city_name, l.place_name, p.free_places, l.num_all FROM parking p "
            "JOIN lots l USING (place_id) WHERE p.free_places < 20 AND l.num_all > 100 "
            "ORDER BY city_name, place_name, place_id"
        ),
        "SELECT l.city_name, sum(p.free_places) AS free, sum(l.num_all) AS places, count(*) AS n "
        "FROM parking AS p, lots AS l WHERE p.place_id = l.place_id GROUP BY l.city_name "
        "ORDER BY free DESC, city_name LIMIT 12": (
            "SELECT l.city_name, sum(p.free_places)::BIGINT AS free, sum(l.num_all)::BIGINT, "
            "count(*) FROM parking p, lots l WHERE p.place_id = l.place_id GROUP BY l.city_name "
            "ORDER BY free DESC, city_name LIMIT 12"
        ),
        # More free places than the lot has, by its own table; NULL sizes never match.
        "SELECT DISTINCT l.city_name, l.place_id FROM changes WINDOW(RANGE 6 HOURS) AS c, "
        "lots AS l WHERE c.place_id = l.place_id AND c.free_places > l.num_all ORDER BY 1, 2": (
            "SELECT DISTINCT l.city_name, l.place_id FROM changes c, lots l "
            "WHERE c.place_id = l.place_id AND c.free_places > l.num_all "
            "AND c.ts > {now} - INTERVAL 6 HOUR ORDER BY 1, 2"
        ),
        # How a lot's free places were spread in the last hour around what is free now: a band.
        "SELECT p.place_id, count(*) AS n, min(c.free_places) AS least FROM parking AS p, "
        "changes WINDOW(RANGE 1 HOUR) AS c WHERE p.place_id = c.place_id "
        "AND c.free_places BETWEEN p.free_places - 3 AND p.free_places + 3 "
        "GROUP BY p.place_id HAVING count(*) > 2 ORDER BY n DESC, place_id LIMIT 25": (
            "SELECT p.place_id, count(*) AS n, min(c.free_places) FROM parking p, changes c "
            "WHERE p.place_id = c.place_id AND c.ts > {now} - INTERVAL 1 HOUR "
            "AND c.free_places BETWEEN p.free_places - 3 AND p.free_places + 3 "
            "GROUP BY p.place_id HAVING count(*) > 2 ORDER BY n DESC, p.place_id LIMIT 25"
        ),
        # Lots without a report in the last hours, with their last report, if any.
        "SELECT l.place_id, l.num_all, p.free_places FROM lots AS l LEFT JOIN parking AS p "
        "ON p.place_id = l.place_id AND p.free_places > 0 WHERE NOT EXISTS (SELECT c.row_id FROM "
        "changes AS c WHERE c.place_id = l.place_id AND c.free_places <> 0 RANGE 5 HOURS) "
        "ORDER BY place_id": (
            "SELECT l.place_id, l.num_all, p.free_places FROM lots l LEFT JOIN parking p "
            "ON p.place_id = l.place_id AND p.free_places > 0 WHERE NOT EXISTS (FROM changes c "
            "WHERE c.place_id = l.place_id AND c.free_places <> 0 "
            "AND c.ts > {now} - INTERVAL 5 HOUR) ORDER BY l.place_id"
        ),
        "SELECT place_id FROM parking WHERE free_places < 5 "
        "EXCEPT SELECT place_id FROM lots WHERE num_all < 200": (
            "SELECT place_id FROM parking WHERE free_places < 5 "
            "EXCEPT SELECT place_id FROM lots WHERE num_all < 200 ORDER BY 1"
        ),
        # Updated in the last quarter of an hour and still so, in the order of the updates.
        "SELECT p.ts, p.place_id, l.city_name FROM parking WINDOW(RANGE 15 MINUTES) AS p, lots l "
        "WHERE p.place_id = l.place_id AND l.city_name <> 'Basel' ORDER BY p.ts, p.row_id": (
            "SELECT p.ts, p.place_id, l.city_name FROM parking p, lots l "
            "WHERE p.place_id = l.place_id AND l.city_name <> 'Basel' "
            "AND p.ts > {now} - INTERVAL 15 MINUTE ORDER BY p.ts, p.row_id"
        ),
    },
    datetime(2020, 7, 6, 12, tzinfo=UTC),
)

JOINS = {"traffic": TRAFFIC, "trades": TRADES, "parking": PARKING}

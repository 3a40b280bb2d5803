"""What real rows are asked: ours, and the same for DuckDB over `known`, the rows up to {now}."""

from __future__ import annotations

TRAFFIC = "CREATE STREAM traffic (ts TIMESTAMP, station BIGINT, speed_mph DOUBLE) ORDERED BY ts"
TICKS = (
    "CREATE STREAM trades (ts TIMESTAMP, symbol TEXT, price DOUBLE, size BIGINT, exchange TEXT, "
    "sale_condition TEXT, suspicious BIGINT) ORDERED BY ts"
)
CLIMATE = (
    "CREATE STREAM climate (ts TIMESTAMP, temperature DOUBLE, humidity DOUBLE, light DOUBLE, "
    "co2 DOUBLE, humidity_ratio DOUBLE, occupancy BIGINT) ORDERED BY ts"
)

# A window, and the condition over ts it is at the instant now.
TRAFFIC_WINDOWS = {
    "BEGIN '2012-03-01 07:00' END '2012-03-01 09:00'": (
        "ts BETWEEN '2012-03-01 07:00' AND '2012-03-01 09:00'"
    ),
    "BEGIN '2012-03-01 18:00' END NOW": "ts >= '2012-03-01 18:00'",
    "BEGIN NOW - 2 HOURS END NOW - 30 MINUTES": (
        "ts BETWEEN {now} - INTERVAL 2 HOUR AND {now} - INTERVAL 30 MINUTE"
    ),
    "RANGE 1 HOUR": "ts > {now} - INTERVAL 1 HOUR",
    "UNBOUNDED": "TRUE",
}
TRAFFIC_CONDITIONS = [
    "speed_mph > 65 AND station BETWEEN 767000 AND 768000",
    "speed_mph < 20",
    "station IN (773869, 767541, 717447) AND NOT speed_mph BETWEEN 30 AND 60",
    "station = 773869 OR speed_mph >= 70",
    "speed_mph = 0",
]
TRAFFIC_QUERIES = {
    # The average per station over the last ten minutes, worst ten first.
    "SELECT station, avg(speed_mph) AS mean, count(*) AS n FROM traffic WHERE speed_mph > 0 "
    "GROUP BY station ORDER BY mean, station LIMIT 10 RANGE 10 MINUTES": (
        "SELECT station, avg(speed_mph) AS mean, count(*) FROM known "
        "WHERE speed_mph > 0 AND ts > {now} - INTERVAL 10 MINUTE "
        "GROUP BY station ORDER BY mean, station LIMIT 10"
    ),
    # The newest reading of each.
    "SELECT station, speed_mph, ts FROM traffic ROWS 1 PARTITION BY station": (
        "SELECT station, speed_mph, ts FROM known QUALIFY row_number() OVER "
        "(PARTITION BY station ORDER BY ts DESC, row_id DESC) = 1 ORDER BY ts, row_id"
    ),
    "SELECT date_trunc('hour', ts) AS hour, avg(speed_mph) AS mean, stddev(speed_mph) AS spread "
    "FROM traffic GROUP BY hour HAVING min(speed_mph) < 5 ORDER BY hour DESC": (
        "SELECT date_trunc('hour', ts) AS hour, avg(speed_mph), stddev(speed_mph) "
        "FROM known GROUP BY hour HAVING min(speed_mph) < 5 ORDER BY hour DESC"
    ),
    "SELECT count(*) AS n, min(ts) AS first, sum(station) AS total FROM traffic "
    "RANGE 1 HOUR SLIDE 15 MINUTES": (
        "SELECT count(*), min(ts), sum(station)::BIGINT FROM known "
        "WHERE ts <= time_bucket(INTERVAL 15 MINUTE, {now}) "
        "AND ts > time_bucket(INTERVAL 15 MINUTE, {now}) - INTERVAL 1 HOUR"
    ),
    "SELECT row_id, station FROM traffic ORDER BY station, row_id LIMIT 50 OFFSET 10 "
    "ROWS 1000 SLIDE 300": (
        "SELECT row_id, station FROM (SELECT *, row_number() OVER (ORDER BY ts, row_id) AS place, "
        "count(*) OVER () // 300 * 300 AS counted FROM known) "
        "WHERE place BETWEEN counted - 999 AND counted ORDER BY station, row_id LIMIT 50 OFFSET 10"
    ),
}
TICKS_WINDOWS = {
    "BEGIN '2013-10-07 09:30' END '2013-10-07 09:45'": (
        "ts BETWEEN '2013-10-07 09:30' AND '2013-10-07 09:45'"
    ),
    "BEGIN '2013-10-07 16:00:00.000' END NOW": "ts >= '2013-10-07 16:00'",
    "BEGIN NOW - 4 HOURS END NOW - 3 HOURS": (
        "ts BETWEEN {now} - INTERVAL 4 HOUR AND {now} - INTERVAL 3 HOUR"
    ),
    "RANGE 5 HOURS": "ts > {now} - INTERVAL 5 HOUR",
    "UNBOUNDED": "TRUE",
}
TICKS_CONDITIONS = [
    "symbol = 'IBM' AND price > 182.5",
    "symbol = 'IBM' AND (price > 183 OR size >= 10000)",
    "symbol = 'SPY' AND price >= 167.2 AND price < 167.25 AND size > 1000",
    "symbol IN ('AIG', 'BAC') AND exchange = 'D' AND size BETWEEN 5000 AND 20000",
    "suspicious = 1",
    "symbol <> 'SPY' AND sale_condition LIKE '2000%' AND NOT size = 100",
]
TICKS_QUERIES = {
    "SELECT symbol, count(*) AS n, min(price) AS low, max(price) AS high, sum(size) AS volume, "
    "first(price) AS opened, last(price) AS closed FROM trades WHERE suspicious = 0 "
    "GROUP BY symbol RANGE 6 HOURS": (
        "SELECT symbol, count(*), min(price), max(price), sum(size)::BIGINT, "
        "first(price ORDER BY ts, row_id), last(price ORDER BY ts, row_id) FROM known "
        "WHERE suspicious = 0 AND ts > {now} - INTERVAL 6 HOUR GROUP BY symbol ORDER BY symbol"
    ),
    "SELECT date_trunc('hour', ts) AS hour, symbol, count(DISTINCT exchange) AS places, "
    "sum(price * size) / sum(size) AS vwap FROM trades GROUP BY hour, symbol "
    "HAVING count(*) > 1000 ORDER BY places DESC, hour, symbol LIMIT 20": (
        "SELECT date_trunc('hour', ts) AS hour, symbol, count(DISTINCT exchange) AS places, "
        "sum(price * size) / sum(size) FROM known GROUP BY hour, symbol "
        "HAVING count(*) > 1000 ORDER BY places DESC, hour, symbol LIMIT 20"
    ),
    "SELECT symbol, price, size FROM trades WHERE price < 100 ORDER BY size DESC, row_id LIMIT 10 "
    "BEGIN '2013-10-07 09:30' END '2013-10-07 11:00'": (
        "SELECT symbol, price, size FROM known WHERE price < 100 "
        "AND ts BETWEEN '2013-10-07 09:30' AND '2013-10-07 11:00' "
        "ORDER BY size DESC, row_id LIMIT 10"
    ),
    "SELECT row_id, symbol, exchange FROM trades WHERE size > 100 "
    "ROWS 5 PARTITION BY symbol, exchange": (
        "SELECT row_id, symbol, exchange FROM (SELECT * FROM known QUALIFY row_number() OVER "
        "(PARTITION BY symbol, exchange ORDER BY ts DESC, row_id DESC) <= 5) "
        "WHERE size > 100 ORDER BY ts, row_id"
    ),
    "SELECT DISTINCT exchange, sale_condition FROM trades WHERE symbol = 'IBM' ORDER BY 2, 1": (
        "SELECT DISTINCT exchange, sale_condition FROM known WHERE symbol = 'IBM' ORDER BY 2, 1"
    ),
    "SELECT count(*) AS n, max(price) AS high FROM trades BEGIN ROW 65000 END ROW 140000": (
        "SELECT count(*), max(price) FROM known WHERE row_id BETWEEN 65000 AND 140000"
    ),
}
CLIMATE_QUERIES = {
    "SELECT occupancy, count(*) AS n, avg(temperature) AS warm, max(co2) AS worst FROM climate "
    "GROUP BY occupancy ORDER BY warm DESC RANGE 1 DAY": (
        "SELECT occupancy, count(*), avg(temperature) AS warm, max(co2) FROM known "
        "WHERE ts > {now} - INTERVAL 1 DAY GROUP BY occupancy ORDER BY warm DESC"
    ),
    "SELECT extract(hour FROM ts) AS hour, avg(co2) AS mean FROM climate WHERE light > 0 "
    "GROUP BY hour HAVING count(*) >= 30 ORDER BY mean DESC, hour LIMIT 5": (
        "SELECT extract(hour FROM ts) AS hour, avg(co2) AS mean FROM known WHERE light > 0 "
        "GROUP BY hour HAVING count(*) >= 30 ORDER BY mean DESC, hour LIMIT 5"
    ),
    "SELECT ts, temperature, occupancy FROM climate ROWS 3 PARTITION BY occupancy": (
        "SELECT ts, temperature, occupancy FROM known QUALIFY row_number() OVER "
        "(PARTITION BY occupancy ORDER BY ts DESC, row_id DESC) <= 3 ORDER BY ts, row_id"
    ),
    "SELECT DISTINCT round(temperature) AS degrees FROM climate WHERE co2 > 1000 OR light > 500 "
    "ORDER BY degrees": (
        "SELECT DISTINCT round(temperature) AS degrees FROM known "
        "WHERE co2 > 1000 OR light > 500 ORDER BY degrees"
    ),
    "SELECT last(humidity) AS humidity, stddev(humidity) AS spread FROM climate ROWS 60": (
        "SELECT last(humidity ORDER BY ts, row_id), stddev(humidity) FROM (SELECT * FROM known "
        "ORDER BY ts DESC, row_id DESC LIMIT 60)"
    ),
}

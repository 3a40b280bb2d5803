"""The publisher of the demo in compose.yml: a row of each of a few sensors every second.

python publisher.py HOST:PORT
"""

from __future__ import annotations

import random
import sys
import time

from client_sdk import Client, PsoupError

STREAM = "CREATE STREAM readings (sensor TEXT, celsius DOUBLE) RETAIN 1 DAY"
HOT = "SELECT sensor, max(celsius) AS celsius FROM readings GROUP BY sensor RANGE 1 MINUTE"
SENSORS = ("kitchen", "cellar", "roof")
_INTERVAL_SECONDS = 1.0


def main() -> None:
    with Client(sys.argv[1]) as client:
        try:
            client.define(STREAM)
        except PsoupError as error:
            if error.reason != "STREAM_EXISTS":
                raise
        client.register(HOT, key="hot")
        celsius = dict.fromkeys(SENSORS, 20.0)
        while True:
            for sensor in SENSORS:
                celsius[sensor] = round(celsius[sensor] + random.uniform(-0.5, 0.5), 1)
            rows = [{"sensor": name, "celsius": value} for name, value in celsius.items()]
            client.publish("readings", rows)
            client.invoke("hot").to_arrow()
            time.sleep(_INTERVAL_SECONDS)


if __name__ == "__main__":
    main()

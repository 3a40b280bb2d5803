"""My shares and their names: a join of two streams, kept by a client that goes offline.

    python examples/shares.py localhost:7181 shares.db

Trades come in all the time, names once in a while. The client keeps the join of both: each sync
brings what changed, a new name the rows that show it too. Without a connection it shows what it
has.
"""

from __future__ import annotations

import contextlib
import sys

from client_sdk import Client, Conflict, ConnectionFailed, Copies, Retry

STREAMS = [
    "CREATE STREAM trades (symbol TEXT, price DOUBLE) RETAIN 7 DAYS",
    "CREATE STREAM names (symbol TEXT, name TEXT) KEY (symbol)",
]
MINE = """
    SELECT n.name, t.price
    FROM trades t WINDOW(RANGE 1 HOUR) JOIN names n ON t.symbol = n.symbol
    WHERE t.symbol IN ('IBM', 'SUN')
    ORDER BY t.price"""


def main(target: str, path: str) -> int:
    with Client(target, retry=Retry(attempts=2), timeout=5) as client, Copies(path) as copies:
        copies.keep("shares", MINE)
        try:
            publish_some(client)
            print(f"rows of the first sync: {copies.sync(client)['shares'].rows}")
            client.publish("names", [{"symbol": "SUN", "name": "Oracle"}])
            print(f"rows with a new name: {copies.sync(client)['shares'].rows}")
        except ConnectionFailed as problem:
            print(f"offline: {problem.message.splitlines()[0]}")
        show(copies)
    return 0


def publish_some(client: Client) -> None:
    """Publishes rows, so that there is something to see."""
    for stream in STREAMS:
        with contextlib.suppress(Conflict):
            client.define(stream)
    names = {"IBM": "Big Blue", "SUN": "Sun Microsystems", "SAP": "SAP"}
    client.publish("names", [{"symbol": row, "name": name} for row, name in names.items()])
    prices = [("IBM", 184.25), ("SAP", 190.5), ("SUN", 5.5), ("IBM", 183.0)]
    client.publish("trades", [{"symbol": symbol, "price": price} for symbol, price in prices])


def show(copies: Copies) -> None:
    if not copies["shares"].synced:
        return print("nothing has come yet")
    for row in copies["shares"].rows():
        print(f"  {row['name']}: {row['price']}")
    (best,) = copies.query("SELECT name, max(price) AS price FROM shares")
    print(f"the dearest: {best['name']}")


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:3]))

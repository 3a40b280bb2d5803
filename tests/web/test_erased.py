"""Server-sent events of what was erased, and of joins whose rows change: a page that was away goes
on from its last event, and has the answer."""

from __future__ import annotations

import json

from tests.support.web import WebServer
from tests.web.test_changes import Page, opened, publish, until

THINGS = "CREATE STREAM things (id BIGINT, name TEXT) KEY (id)"
NAME = "Annabella-Zyx"


def things(*names: str) -> list[dict[str, object]]:
    return [{"id": number, "name": name} for number, name in enumerate(names)]


def follow(web: WebServer, tenant: str, key: str, page: Page) -> None:
    """Go on from the last event, until the page has the answer."""
    headers = {"last-event-id": page.token} if page.token else None
    with opened(web, key, headers, tenant=tenant) as stream:
        until(page, stream, web, tenant, key)


def test_pages_that_were_away_lose_erased_rows(web: WebServer, tenant: str) -> None:
    web.define(THINGS, tenant=tenant)
    web.register("rows", "SELECT id, name FROM things", tenant=tenant)
    web.register("counts", "SELECT name, COUNT(*) AS n FROM things GROUP BY name", tenant=tenant)
    publish(web, tenant, things("Bob", NAME, "Cy"))
    pages = {"rows": Page(), "counts": Page()}
    for key, page in pages.items():
        follow(web, tenant, key, page)
        assert NAME in str(page.rows)
    web.define("ERASE FROM things WHERE id = 1", tenant=tenant)
    publish(web, tenant, [{"id": 4, "name": "Di"}])
    for key, page in pages.items():
        follow(web, tenant, key, page)
        assert len(page.rows) == 3 and NAME not in str(page.rows)


def test_an_open_page_loses_erased_rows(web: WebServer, tenant: str) -> None:
    web.define(THINGS, tenant=tenant)
    web.register("rows", "SELECT id, name FROM things", tenant=tenant)
    publish(web, tenant, things("Bob", NAME, "Cy"))
    page = Page()
    with opened(web, "rows", tenant=tenant) as stream:
        until(page, stream, web, tenant, "rows")
        web.define("ERASE FROM things WHERE id = 1", tenant=tenant)
        until(page, stream, web, tenant, "rows")
    assert NAME not in str(page.rows)


def test_a_renamed_customer_is_an_update_of_each_order(web: WebServer, tenant: str) -> None:
    """The row that takes the place of another has its key, so that a page knows it is the same."""
    web.define(THINGS, tenant=tenant)
    web.define("CREATE STREAM orders (id BIGINT, thing BIGINT) KEY (id)", tenant=tenant)
    sql = "SELECT o.id, t.name FROM orders o JOIN things t ON o.thing = t.id"
    web.register("named", sql, tenant=tenant)
    publish(web, tenant, things("a lamp", "a chair"))
    orders = [{"id": number, "thing": number % 2} for number in range(4)]
    body = json.dumps(orders)
    reply = web.send("POST", "/v1/streams/orders/rows", body, "application/json", tenant=tenant)
    assert reply.status == 200, reply
    page = Page()
    with opened(web, "named", tenant=tenant) as stream:
        until(page, stream, web, tenant, "named")
        keys = {row["key"]: row["row"][0] for row in page.rows.values()}
        assert len(keys) == 4 and None not in keys
        publish(web, tenant, [{"id": 0, "name": "two lamps"}])
        events = []
        for event in stream:
            events.append(event)
            page.take(event)
            if event.name == "end" and "two lamps" in str(page.rows):
                break
    ended = [id_ for event in events if event.name == "gone" for id_ in event.data["ended"]]
    changed = [event.data for event in events if event.name == "row"]
    assert len(ended) == 2 and sorted(row["row"][0] for row in changed) == [0, 2]
    assert all(keys[row["key"]] == row["row"][0] for row in changed)

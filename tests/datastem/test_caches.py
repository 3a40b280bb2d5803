"""The LRU cache: a budget of bytes, the least recently used leave first."""

from __future__ import annotations

from collections import OrderedDict

from hypothesis import given
from hypothesis import strategies as st

from datastem.caches import LruCache

KEYS = st.integers(0, 6)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("get"), KEYS, st.just(0)),
        st.tuples(st.just("put"), KEYS, st.integers(1, 40)),
    ),
    max_size=60,
)


@given(STEPS)
def test_oracle_the_cache_is_a_list_by_last_use(steps: list[tuple[str, int, int]]) -> None:
    cache: LruCache[int, tuple[int, int]] = LruCache(100, overhead=5)
    naive: OrderedDict[int, tuple[int, int]] = OrderedDict()
    for number, (verb, key, size) in enumerate(steps):
        if verb == "get":
            assert cache.get(key) == naive.get(key)
            if key in naive:
                naive.move_to_end(key)
        else:
            cache.put(key, (number, size), size)
            naive.pop(key, None)
            naive[key] = number, size
            while len(naive) > 1 and sum(size + 5 for _, size in naive.values()) > 100:
                naive.popitem(last=False)
        assert cache.values() == list(naive.values())
        assert cache.used == sum(size + 5 for _, size in naive.values())


def test_a_value_larger_than_the_budget_is_held_alone() -> None:
    cache: LruCache[str, str] = LruCache(10)
    cache.put("small", "a", 1)
    cache.put("large", "b", 50)
    assert (cache.get("small"), cache.get("large"), len(cache)) == (None, "b", 1)


def test_a_value_is_made_once() -> None:
    cache: LruCache[str, int] = LruCache(10)
    calls: list[int] = []

    def make() -> int:
        calls.append(1)
        return 7

    assert [cache.find("a", make, lambda _: 1) for _ in range(3)] == [7, 7, 7]
    assert calls == [1]


def test_a_change_sees_the_value_before_it() -> None:
    cache: LruCache[str, int] = LruCache(10)
    for _ in range(3):
        cache.change("a", lambda old: (old or 0) + 1, lambda value: value)
    assert (cache.get("a"), cache.used) == (3, 3)

"""The names of what the log tells, by the text of the message before values are filled in.

A name never changes, whatever becomes of the words: programs that read the log look for it.
"""

from __future__ import annotations

from collections.abc import Mapping

EVENTS: Mapping[str, str] = {
    # ---- the server
    "identity: %s": "identity",
    "INSECURE: %s can be reached from other machines, and has no %s: anyone there can read, change "
    "and delete everything": "insecure",
    "%s %s: %s in %.3f s, %.3f s of it queued; tenant %s, owner %s, by %s": "call",
    "some work did not end; it is left": "stop-unfinished",
    "%s ended with %d; restarting it in %g s": "server-restarted",
    "unexpected error %s": "unexpected-error",
    "could not append to the log: %s": "append-failed",
    "could not read the store; trying again": "read-failed",
    "the log was trimmed past version %d; opening the store again": "log-trimmed",
    "could not renew or end leases, retrying: %s": "leases-failed",
    "could not end unused policies, retrying: %s": "policies-failed",
    "could not match rows for watches; waking all of them": "watch-matching-failed",
    "predicate %d can't be built for watches": "watch-predicate-failed",
    "a predicate can't be matched for watches": "watch-predicate-unmatched",
    "no inotify, so the store is polled: %s": "store-polled",
    "%s can't be locked (%s): other machines are not seen": "presence-unlocked",
    # ---- credentials
    "the TLS certificate was read again from %s": "certificate-renewed",
    "the TLS certificate stays as it was: %s": "certificate-unusable",
    "the web port's certificate was read again from %s": "web-certificate-renewed",
    "the web port's certificate stays as it was: %s": "web-certificate-unusable",
    "the keys of %s stay as they were: %s": "issuer-keys-unread",
    "can't check whether %s is still valid": "credential-unchecked",
    "refused %s from %s: %s": "refused",
    "refused %d more calls from %s: %s": "refused-more",
    "refused %d more calls from others": "refused-others",
    "denials wait to be noted in the audit: %s": "denials-waiting",
    # ---- answers
    "a predicate of stream %d can't be compared": "predicate-not-compared",
    "policy %d can't be evaluated; it permits nothing": "policy-failed",
    "%s; its matches are computed here": "matches-computed",
    "%s; all matches are computed here until the engine writes it again": "all-matches-computed",
    "%s; its combinations are joined here": "combinations-joined",
    # ---- the engine
    "starting Spark on %s": "spark-starting",
    "the engine ends: %s": "engine-failed",
    "engine stopped": "engine-stopped",
    "standing by for the engine (process %s on %s)": "engine-standing-by",
    "taking over the store": "engine-takeover",
    "could not write %s: %s": "pulse-failed",
    "start Spark with %s=%s: without it, %s": "spark-setting-missing",
    "Fetching Delta's jars for Spark: about 90 MB, once. "
    "This takes a minute or less.": "jars-fetch",
    "Delta's jars are in %s.": "jars-ready",
    "a step failed; going back to the last epoch to try again": "step-failed",
    "a task failed (%s); trying it again with new indexes": "task-failed",
    "a unit of work failed": "unit-failed",
    "undid what an unfinished step had written": "step-undone",
    "could not read ahead: %s": "read-ahead-failed",
    "deleting %s": "file-deleted",
    "back-fill of %s: %d %%, %d rows left": "backfill",
    "back-fill of %s: all that windows reach; %d other rows left": "backfill-reached",
    "%s; reading all rows instead": "implied-unread",
    "predicates of stream %d can't be compared": "predicates-not-compared",
    "the cached index of stream %d is built again: %s": "index-rebuilt",
    "the index of stream %d can't be cached: %s": "index-not-cached",
    "rows of a keyed stream stay in memory: %s": "key-order-in-memory",
    "composite %d has too many combinations; it is suspended": "join-suspended",
    "composite %d failed %d times": "join-failed",
    "gave up the join of composite %d after %.0f s": "spark-join-given-up",
    "Spark's join of composite %d failed; tasks do it": "spark-join-failed",
    "gave up closures of stream %d": "closures-given-up",
    "could not derive the closures of stream %d": "closures-failed",
    # ---- quarantine
    "workers died twice (%s); looking for the cause": "culprit-search",
    "the search failed": "culprit-search-failed",
    "QUARANTINE: %s: %s": "quarantine",
    # ---- damage
    "damage was found: %s": "damage",
    "LOST: %s": "rows-lost",
    "position %s: %s. LOST: %s": "batch-lost",
    "%s; only the rows in it are lost": "payload-lost",
    "LOST: %s is damaged, and with it %d records of the audit": "audit-lost",
    "%s is damaged; its rows were still in the log": "damaged-rows-in-log",
    "%s is damaged; its rows are matched again": "damaged-matches",
    "the coverage is damaged; all rows are matched again": "damaged-coverage",
    "%s is damaged; the combinations are found again": "damaged-combinations",
    "%s is damaged; the stream's closures are derived again": "damaged-closures",
    "%s is damaged; refresh points that it held are found by rows alone": "damaged-reached",
    "%s is damaged; the table is derived again": "damaged-derived",
    "%s is damaged; the table is written again from memory": "damaged-written-again",
    "%s was restored; its rows are available again": "rows-restored",
    "%s; no epoch names the table, so it is removed": "table-removed",
    "%s; the table is derived again": "table-derived-again",
    "%s; going back to the one before it": "checkpoint-unreadable",
    "%s; it is removed, commits stand for it": "checkpoint-removed",
}

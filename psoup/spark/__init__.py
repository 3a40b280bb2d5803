"""`format("psoup")`: streams and answers of a store as DataFrames, and DataFrames into streams.

    from psoup.spark import PsoupDataSource

    spark.dataSource.register(PsoupDataSource)
    spark.read.format("psoup").option("target", "store:7181").option("key", "dear").load()
    spark.readStream.format("psoup").option("target", "store:7181").option("stream", "s").load()
    frame.write.format("psoup").option("target", "store:7181").option("stream", "trades").save()

It needs pyspark and the client SDK, and nothing of the server.
"""

from __future__ import annotations

from psoup.spark.source import PsoupDataSource

__all__ = ["PsoupDataSource"]

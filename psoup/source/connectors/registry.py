"""The connectors by kind. Each is loaded when a source needs it, with the packages it needs."""

from __future__ import annotations

from psoup.source.connectors.partition import Connector, Context
from psoup.source.errors import BadSettings


def make_connector(context: Context) -> Connector:
    """Return the connector of a source. Raises BadSettings."""
    match context.settings.kind:
        case "files":
            from psoup.source.connectors.folder import FolderConnector

            return FolderConnector(context)
        case "delta":
            from psoup.source.connectors.delta import DeltaConnector

            return DeltaConnector(context)
        case "postgres":
            from psoup.source.connectors.postgres import PostgresConnector

            return PostgresConnector(context)
        case "kafka":
            from psoup.source.connectors.kafka import KafkaConnector

            return KafkaConnector(context)
    raise BadSettings(f"{context.settings.kind} is no kind of source")

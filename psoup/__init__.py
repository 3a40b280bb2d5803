"""PSoup: a result store for clients that are usually not connected."""

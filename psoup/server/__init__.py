"""The gRPC server: appends to the log, follows the tables, answers. No JVM, never pyspark."""

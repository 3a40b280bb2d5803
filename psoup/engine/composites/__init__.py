"""Composites: the joins that registrations share, found ahead of time.

The driver
    keeping       joins the rows of a step, in the step's epoch
    growing       enlarges boxes and admits more predicates, between steps
    passes        what it remembers of predicates that came later
    bulk_join     Spark's join beside the loop, and when its result counts
    join_costs    whether Arrow or Spark joins old rows, by measurements
    legs          the local predicates of registered joins, kept until they change
    wanting       the predicates over a composite, and what is stored for them
    boxes         units of work and their outcomes, for both
    order         the order in which legs are joined, by measurements
    upkeep        files that retention removes
An executor
    worker        the functions that do units of work (`units`)
    intake        the rows of a step, joined by the tasks that take them in
    lookup        how rows of a leg are found by rows of another
    runs          rows of a leg by their join keys, as stored in `joins/<id>`
    reading       what a task reads of the legs
    rows          the caches of what was read
    admitting     the rows that admitted predicates match
    estimating    how many combinations a new row brings
    combining     the join of rows that arrive with rows that are stored
    spark_join    Spark's join, for what does not fit a worker (its rows: spark.scanning)
"""

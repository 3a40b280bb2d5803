"""Composites: the joins that registrations share, found ahead of time.

The driver
    keeping       rows of a step, in the step's own epoch
    growing       larger boxes and more predicates, between steps
    boxes         what both share: units of work, and what comes of them
    order         which leg is joined next, by what was measured
    upkeep        what retention takes
An executor
    worker        units of work (`units`), done
    keys          the hash of a row's join key
    runs          rows of a leg by that hash, as `joins/<id>` keeps them
    reading       what a task reads of the legs
    rows          what is read is kept under a budget
    admitting     which rows predicates let in
    combining     rows that came, with rows that were there: whoever comes last finds the others
    spark_join    Spark's own join, for what does not fit a worker
"""

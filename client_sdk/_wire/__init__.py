"""Messages of psoup.v1 as Python values: columns, rows, answers, and what a store reports."""

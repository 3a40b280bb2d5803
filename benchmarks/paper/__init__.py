"""The experiments of the PSoup paper (Chandrasekaran and Franklin, 2003, section 5), again.

Three strategies over the same rows and queries: NoMat runs a query when it is invoked, PSoup-P has
its matches and applies the window, PSoup-C has the answer. P is made of the product's own parts;
the other two live only here.
"""

from __future__ import annotations

from benchmarks.paper.experiments import run

__all__ = ["run"]

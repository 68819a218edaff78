"""Random programs, and checking a function against the oracle with a derived error bound."""

from tcdsl.testing.comparison import check, compare, poisoned
from tcdsl.testing.random_programs import programs

__all__ = ["check", "compare", "poisoned", "programs"]

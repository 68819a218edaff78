"""Fallback levels: cheaper plans, for where isl takes too long or something in tcdsl fails.

as usual                               the search, all rewrites
in the kernels that were found         if it was the search that took too long
statement by statement                 loops by the strategies, no fusion
as written, in parallel                loops as written
as written, on one thread
"""

from tcdsl.records import dataclass
from tcdsl.strategies.problem import Scheme


@dataclass(frozen=True, slots=True)
class FallbackLevel:
    """A way to plan a program; *what* says it to the user."""

    what: str
    scheme: Scheme | None = None  # None: as the options say
    is_reached: bool = False  # in the groups that a search had found when its time ran out

    @property
    def is_generous(self) -> bool:
        """Whether isl may take more: there is nothing that asks less of it."""
        return self.scheme in (Scheme.TEXTUAL, Scheme.SERIAL)


OUR_BUG = "this is a bug of tcdsl: TCDSL_DEBUG=1 shows where"
USUAL = FallbackLevel("as usual")
REACHED = FallbackLevel("in the kernels that were found by then", is_reached=True)
SERIAL = FallbackLevel("as written, on one thread", Scheme.SERIAL)
FALLBACK_LEVELS = (
    USUAL,
    FallbackLevel("statement by statement, without fusion", Scheme.PLAIN),
    FallbackLevel("as written, with parallel outer loops", Scheme.TEXTUAL),
    SERIAL,
)

"""`Work`: what a search may take, counted in work and not in time, so that an answer
does not depend on the load of the machine.

Every step adds what it takes on an idle core, reckoned from counts (nonzeros, simplex
iterations, nodes) that are the same on any machine. Wall time is the last resort.
"""

import math
import time
from typing import Final

PER_CHECK: Final = 2e-6
"""s of HiGHS's integer programs by check of its limits and nonzero, to say when they
end: up to 8e-6 at the root, 1e-6 to 1.5e-6 after hundreds of branches."""
_PER_ITERATION, _PER_COLUMN, _PER_ENTRY = 2.5e-4, 8e-8, 2e-5
"""s of them by simplex iteration, by iteration and column, and by nonzero, to say what
they took: within a factor of 2 for the same programs."""
PER_NONZERO: Final = 5e-6
"""s of a linear program by nonzero, beyond `PER_PROGRAM`."""
PER_PROGRAM: Final = 3e-3
"""s of a program's setting up."""


class Work:
    """Work up to `limit` (s on an idle core), or until the wall time of the first one
    is over.

    `spent`: so far, with that of its parts.
    """

    def __init__(
        self, limit: float, wall: float = math.inf, whole: "Work | None" = None
    ) -> None:
        self.limit, self.spent = limit, 0.0
        self._whole, self._late = whole, False
        self._ends = time.monotonic() + wall

    def part(self, limit: float) -> "Work":
        """A part that may take so much; it counts for the whole, too."""
        return Work(limit, whole=self)

    def add(self, seconds: float) -> None:
        """Counts work done."""
        self.spent += seconds
        if self._whole is not None:
            self._whole.add(seconds)

    @property
    def wall_left(self) -> float:
        """s of wall time until the end; infinite without one."""
        if self._whole is not None:
            return self._whole.wall_left
        return self._ends - time.monotonic()

    @property
    def left(self) -> float:
        """Work that is left, at least 0; nothing once wall time is over."""
        left = max(0.0, self.limit - self.spent)
        return 0.0 if left and self._over() else left

    @property
    def late(self) -> bool:
        """Whether wall time has ended the search while work was left."""
        return self._late if self._whole is None else self._whole.late

    def _over(self) -> bool:
        """Whether wall time ends the search; the whole remembers it."""
        if self._whole is not None:
            return self._whole._over()
        self._late = self._late or self.wall_left <= 0
        return self._late


def program_work(nonzeros: int) -> float:
    """Work (s) of a linear program from nothing."""
    return PER_PROGRAM + PER_NONZERO * nonzeros


def integer_work(nonzeros: int, columns: int, iterations: int) -> float:
    """Work (s) of an integer program that took so many simplex iterations."""
    each = _PER_ITERATION + _PER_COLUMN * columns
    return PER_PROGRAM + _PER_ENTRY * nonzeros + each * max(0, iterations)


def checks_in(seconds: float, nonzeros: int) -> int:
    """Checks of its limits that HiGHS makes of an integer program in work of so many
    seconds."""
    return max(1, math.ceil(seconds / (PER_CHECK * max(nonzeros, 1))))

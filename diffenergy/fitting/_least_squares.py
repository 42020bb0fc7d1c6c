"""The one optimizer of fits: least squares in units of priors, best point kept."""

import abc
import dataclasses
from collections.abc import Callable

import numpy as np
from jaxtyping import Float
from scipy.optimize import least_squares


@dataclasses.dataclass(frozen=True)
class Minimum:
    """Where a descent ended: unknowns, half the sum of squares, evaluations of the
    residuals, and what the readings and priors say of the unknowns.

    `interrupted`: somebody stopped it; `z` is then the best point so far, and
    `information` that of the priors alone.
    """

    z: Float[np.ndarray, " p"]
    cost: float
    evaluations: int
    information: Float[np.ndarray, "p p"]
    interrupted: bool


class LeastSquares(abc.ABC):
    """Residuals of readings and of priors, with their slopes."""

    width: Float[np.ndarray, " p"]
    """sd of the prior of each unknown."""

    @abc.abstractmethod
    def residuals(self, z: Float[np.ndarray, " p"]) -> Float[np.ndarray, " r"]:
        """Of readings, then of priors."""

    @abc.abstractmethod
    def jacobian(self, z: Float[np.ndarray, " p"]) -> Float[np.ndarray, "r p"]:
        """Slopes of `residuals`."""

    def minimise(
        self,
        begin: Float[np.ndarray, " p"],
        max_steps: int,
        cost_tolerance: float,
        step_tolerance: float,
        progress: Callable[[int, float], None] | None = None,
    ) -> Minimum:
        """Gauss-Newton with a trust region, from `begin` on.

        Tolerances are relative changes of the cost and of the unknowns at which the
        descent ends. `progress` is called with the number of evaluations and the cost.
        An interrupt (Ctrl-C) gives the best point so far.
        """
        best, lowest, evaluations, interrupted = begin, np.inf, 0, False

        def residuals(z: np.ndarray) -> np.ndarray:
            nonlocal best, lowest, evaluations
            residual = self.residuals(z)
            cost = 0.5 * float(residual @ residual)
            if cost < lowest:
                best, lowest = z.copy(), cost
            evaluations += 1
            if progress is not None:
                progress(evaluations, cost)
            return residual

        try:
            result = least_squares(
                residuals,
                begin,
                jac=self.jacobian,  # pyright: ignore[reportArgumentType]
                method="trf",
                x_scale=self.width,
                max_nfev=max_steps,
                ftol=cost_tolerance,
                xtol=step_tolerance,
            )
            information = result.jac.T @ result.jac
        except KeyboardInterrupt:
            interrupted, information = True, np.diag(self.width**-2)
        return Minimum(best, lowest, evaluations, information, interrupted)

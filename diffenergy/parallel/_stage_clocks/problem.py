"""`Problem`: the instructions of a pipeline with the time and energy of each at every
clock, and what a choice of clocks costs."""

import dataclasses
import functools

import numpy as np
from jaxtyping import Float, Int

from ...plans import Instructions, instruction_ends
from .hulls import pareto

KINDS = ("forward", "backward", "weights")
"""Words for the kinds of instructions, in their order."""


@dataclasses.dataclass(frozen=True)
class Problem:
    """The pipeline of a replica's GPUs, alike within a stage.

    Instructions are of types: a virtual stage and a kind. A GPU of stage s takes

        E_s = sum of its instructions (D + P t) + W_s (T - sum t) + F_s

    J of a step of T s: D dynamic energy and P static power of an instruction of t s at
    its clock, W power while it waits, F all beside the pipeline.
    """

    program: Instructions
    type: Int[np.ndarray, " i"]
    """Of every instruction."""
    stage: Int[np.ndarray, " t"]
    """Of every type."""
    kind: Int[np.ndarray, " t"]
    """Place in `KINDS` of every type."""
    clocks: Float[np.ndarray, " c"]
    """Hz, falling; the first one is the usual."""
    time: Float[np.ndarray, "c t"]  # s
    dynamic: Float[np.ndarray, "c t"]  # J
    static: Float[np.ndarray, "c s"]  # W
    wait: Float[np.ndarray, " s"]  # W
    fixed: Float[np.ndarray, " s"]  # J
    after: float
    """s of a step behind its pipeline."""
    stretch: float
    """Step / (pipeline + `after`)."""
    abreast: float
    """GPUs of a stage."""

    @property
    def energy(self) -> Float[np.ndarray, "c t"]:
        """J of a GPU in one instruction."""
        return self.dynamic + self.static[:, self.stage] * self.time

    @property
    def cost(self) -> Float[np.ndarray, "c t"]:
        """The same beyond waiting as long."""
        return self.energy - self.wait[self.stage] * self.time

    @functools.cached_property
    def options(self) -> list[Int[np.ndarray, " k"]]:
        """Clocks of every type worth choosing, the fastest first."""
        cost = self.cost
        return [pareto(self.time[:, t], cost[:, t]) for t in range(len(self.stage))]

    @property
    def cheapest(self) -> Int[np.ndarray, " i"]:
        """Every instruction at the clock of least cost."""
        return np.array([rows[-1] for rows in self.options])[self.type]

    @property
    def stage_of(self) -> Int[np.ndarray, " i"]:
        """Stage of every instruction."""
        return self.stage[self.type]

    @property
    def usual(self) -> Int[np.ndarray, " i"]:
        """Every instruction at the usual clock."""
        return np.zeros(len(self.type), int)

    def durations(self, choice: Int[np.ndarray, "*q i"]) -> Float[np.ndarray, "*q i"]:
        """s of every instruction at its clock."""
        return self.time[choice, self.type]

    def pipeline(self, choice: Int[np.ndarray, "*q i"]) -> Float[np.ndarray, "*q"]:
        """s until the last instruction ends."""
        ends = instruction_ends(self.program, self.durations(choice))
        return np.asarray(ends.max(axis=-1))

    def time_of(self, choice: Int[np.ndarray, " i"]) -> float:
        """s of a step that waits for no others."""
        return self.step_time(float(self.pipeline(choice)))

    def step_time(self, pipeline: float) -> float:
        """s of a step by that of its pipeline."""
        return (pipeline + self.after) * self.stretch

    def deadline(self, step_time: float) -> float:
        """s of the pipeline in a step."""
        return step_time / self.stretch - self.after

    def stage_energy(
        self, choice: Int[np.ndarray, " i"], step_time: float
    ) -> Float[np.ndarray, " s"]:
        """J of a GPU of every stage in a step."""
        over = self.cost[choice, self.type]
        total = np.bincount(self.stage_of, over, len(self.wait))
        return total + self.fixed + self.wait * step_time

    def step_energy(self, choice: Int[np.ndarray, " i"], step_time: float) -> float:
        """J of all GPUs in a step."""
        return self.abreast * float(self.stage_energy(choice, step_time).sum())

    def slowed(self, stage: int, share: float) -> "Problem":
        """With GPUs of a stage that take `share` longer, at the same work."""
        factor = np.where(self.stage == stage, 1 + share, 1.0)
        return dataclasses.replace(self, time=self.time * factor)


def latest(
    program: Instructions, durations: Float[np.ndarray, " i"], deadline: float
) -> Float[np.ndarray, " i"]:
    """When each instruction has to end, s, for all to be done at `deadline`."""
    found = [deadline] * (len(durations) + 1)
    rows = list(zip(program.before.tolist(), program.needs.tolist(), strict=True))
    lasting = durations.tolist()
    for i in range(len(rows) - 1, -1, -1):
        start = found[i] - lasting[i]
        for other in rows[i]:
            if other >= 0:
                found[other] = min(found[other], start)
    return np.array(found[:-1])

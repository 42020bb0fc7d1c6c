"""`StageClocks`: the answer, as the command shows it, its summary and its files."""

import dataclasses
import os
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float, Int

from ...plans import instruction_ends
from ...results import Result, written
from ...units import MHz
from .hulls import ROUNDING
from .problem import KINDS, Problem

Path = str | os.PathLike[str]


@dataclasses.dataclass(frozen=True)
class Replicas:
    """`number` replicas whose pipeline is `problem`, the clock of every instruction
    (a row of its `clocks`) chosen."""

    problem: Problem
    choice: Int[np.ndarray, " i"]
    number: float = 1.0

    def energy(self, step_time: float) -> float:
        """J of all of them in a step."""
        return self.number * self.problem.step_energy(self.choice, step_time)

    def times(
        self, choice: Int[np.ndarray, " i"]
    ) -> tuple[Float[np.ndarray, " i"], Float[np.ndarray, " i"]]:
        """When each instruction starts and ends, s."""
        durations = self.problem.durations(choice)
        end = instruction_ends(self.problem.program, durations)
        return end - durations, end

    @property
    def switches(self) -> Int[np.ndarray, " s"]:
        """Changes of clock of every stage from one step to the next."""
        problem, changes = self.problem, []
        for stage in range(len(problem.wait)):
            clocks = self.choice[problem.stage_of == stage]
            changes.append(int((clocks != np.roll(clocks, 1)).sum()))
        return np.array(changes)


@dataclasses.dataclass(frozen=True, repr=False)
class StageClocks(Result):
    """Clocks for the stages of a pipeline.

    `summary`: the JSON of `diffenergy plan --stage-clocks --json`; `replicas`: what was
    chosen for replicas that are alike (a slow GPU makes one unlike the others), the
    first one shown.
    """

    view: ClassVar[str] = "stage_clocks"
    summary: dict[str, Any]
    replicas: Sequence[Replicas]

    @property
    def notes(self) -> list[str]:
        """What a person should know beside the figures."""
        return self.summary["warnings"]

    @property
    def time(self) -> float:
        """s of a step."""
        return self.summary["best"]["step_time_s"]

    @property
    def energy(self) -> float:
        """J of all GPUs in a step."""
        return self.summary["best"]["energy_j"]

    @property
    def bound(self) -> float:
        """J that no choice of offered clocks goes below."""
        return self.summary["lower_bound_j"]

    def rows(self) -> list[dict[str, Any]]:
        """Every instruction of the first replica, stage by stage in order: stage,
        instruction, virtual stage, micro-batch, clock (MHz), start and time (s), energy
        of a GPU (J)."""
        return instruction_rows(self.replicas[0])

    def to_csv(self, path: Path | None = None) -> str:
        """`stage,instruction,frequency,time,energy` (MHz, s, J of a GPU), the columns
        of Perseus: a row for each passing of a stage in its order, or for all that
        have one clock; also written to `path`, if given."""
        rows = self.rows()
        if self.summary["granularity"] != "instruction":
            rows = list(
                {(x["stage"], x["chunk"], x["instruction"]): x for x in rows}.values()
            )
        lines = [
            f"{x['stage']},{x['instruction']},{x['sm_clock_mhz']:g},"
            f"{x['time_s']!r},{x['energy_j']!r}"
            for x in rows
        ]
        head = "stage,instruction,frequency,time,energy"
        return written("\n".join([head, *lines, ""]), path)

    def to_script(self, path: Path | None = None) -> str:
        """The schedule as Zeus's `PointSolution` reads it: a list for each stage of
        (instruction, MHz) in order; also written to `path`, if given."""
        stages: list[list[tuple[str, int]]] = [[] for _ in self.summary["stages"]]
        for x in self.rows():
            stages[x["stage"]].append((x["instruction"], round(x["sm_clock_mhz"])))
        lines = ",\n".join(f"    {stage!r}" for stage in stages)
        return written(f"[\n{lines},\n]\n", path)


def instruction_rows(replicas: Replicas) -> list[dict[str, Any]]:
    """Every instruction of a replica, stage by stage."""
    problem, choice = replicas.problem, replicas.choice
    start, end = replicas.times(choice)
    energy = problem.energy[choice, problem.type]
    chunk = problem.program.place // len(problem.wait)
    order = np.argsort(problem.stage_of, kind="stable")
    return [
        {
            "stage": int(problem.stage_of[i]),
            "instruction": KINDS[problem.program.kind[i]],
            "chunk": int(chunk[i]),
            "batch": int(problem.program.batch[i]),
            "sm_clock_mhz": float(problem.clocks[choice[i]] / MHz),
            "start_s": float(start[i]),
            "time_s": float(end[i] - start[i]),
            "energy_j": float(energy[i]),
        }
        for i in order
    ]


def stage_rows(
    replicas: Replicas, layers: Sequence[int], step_time: float
) -> list[dict[str, Any]]:
    """Every stage with its instructions: means over those of one kind, beside the usual
    clock."""
    problem, choice = replicas.problem, replicas.choice
    power = problem.stage_energy(choice, step_time) / step_time
    clock = problem.clocks[choice] / MHz
    columns = {
        "time_s": problem.durations(choice),
        "energy_j": problem.energy[choice, problem.type],
        "usual_time_s": problem.durations(problem.usual),
        "usual_energy_j": problem.energy[0, problem.type],
    }
    rows = []
    for stage, (watts, switches) in enumerate(
        zip(power, replicas.switches, strict=True)
    ):
        of_stage = problem.stage_of == stage
        instructions = []
        for kind in np.unique(problem.kind):
            mine = of_stage & (problem.program.kind == kind)
            instructions.append(
                {
                    "instruction": KINDS[kind],
                    "count": int(mine.sum()),
                    "sm_clock_mhz": float(clock[mine].mean()),
                    "sm_clock_min_mhz": float(clock[mine].min()),
                    "sm_clock_max_mhz": float(clock[mine].max()),
                    **{key: float(x[mine].mean()) for key, x in columns.items()},
                }
            )
        rows.append(
            {
                "layers": layers[stage],
                "power_w": float(watts),
                "busy": float(columns["time_s"][of_stage].sum() / step_time),
                "wait_power_w": float(problem.wait[stage]),
                "switches": int(switches),
                "instructions": instructions,
            }
        )
    return rows


def peak_power(replicas: Replicas, members: Float[np.ndarray, "h s"]) -> float:
    """W of the host that draws most at any time of the pipeline."""
    problem, choice = replicas.problem, replicas.choice
    start, end = replicas.times(choice)
    over = problem.cost[choice, problem.type] / (end - start)
    at = np.round(np.r_[start, end] / end.max() / ROUNDING)
    starts = np.r_[np.ones(len(end)), np.zeros(len(end))]
    order = np.lexsort((starts, at))  # what ends before what starts then
    change = members[:, problem.stage_of] * over
    watts = np.cumsum(np.c_[change, -change][:, order], axis=1)
    return float((watts.max(axis=1) + members @ problem.wait).max())

"""`Shared`: the clocks of a training step whose GPUs share a model and all do the same.

Its parts (`STEP_PARTS`) are the stages of a schedule. A step takes T(t) of their times
t (`compose_step`), which grows less than they do where an exchange is hidden, and draws

    E = GPUs (sum of calls x dynamic energy + P_static T)

With the tangent of T at default clocks both are sums over launches: a second of part p
takes s_p = dT/dt_p seconds of the step, and what is left of T, exchanges between hosts,
no clock changes (`NETWORK`). T is of degree 1 in its parts and, but for the contention
of exchanges, convex: the tangent lies below, and so does a bound by it. Schedules that
are answered have the times and energies of the step composed anew.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from ..compiling import call_compiled
from ..corrections import Corrections
from ..estimator import PhaseEstimate, Task
from ..plans import STEP_PARTS, Steps, compose_step, step_energy
from ..requests import BadRequest
from ..results import Infeasible
from ..workload import Loop, loops_of
from ._plan import Objective, Plan, Rules
from ._problem import TIE, Problem, Total, default_total, stage_totals

NETWORK: Final = "network"
"""Stage, and only kernel of it, for what a step takes at any clock."""
_ROUNDS: Final = 6
"""Most times that the limit of a schedule is tightened."""
_LEAST: Final = 1e-9
"""Least slope, of what is hidden wholly: a launch takes some time."""
_ROUNDING: Final = 1e-9
"""Share of a step below which what its parts leave of it is rounding."""
_BEYOND_CLOCKS: Final = 0.6
"""Share of the highest clock below which nobody measured that exchanges stay as fast:
fewer bytes are in flight from the same SMs."""


@dataclasses.dataclass(frozen=True)
class Shared:
    """A training step by its parts, at the tangent of default clocks."""

    steps: Steps
    corrections: Corrections
    calls: Float[np.ndarray, " stage"]
    """How often the step runs each part."""
    slope: Float[np.ndarray, " stage"]
    """s of the step for a second of a part (as the workload has it, run once)."""
    rest: float
    """s of the step at any clock."""
    static: float
    """W of idling and leakage of a GPU, on average over what it runs."""
    share: float
    """s of the step for a second that a GPU runs something."""
    gpus: int
    loops: tuple[Loop, ...]
    rounds: tuple[int, int]

    def problem(
        self,
        plain: Problem,
        static: Float[np.ndarray, "kernel setting"],
        default_static: Float[np.ndarray, " kernel"],
        loops: tuple[Loop, ...],
        stages: bool = False,
    ) -> Problem:
        """Seconds and joules that each launch, or each of the `stages` as a whole, adds
        to the step, from those of one GPU that runs every part once, with W of idling
        and leakage; and `NETWORK`."""
        calls = (np.ones_like(self.calls) if stages else self.calls)[plain.stage]
        often = self.calls[plain.stage]
        slope = self.slope[plain.stage]

        def added(
            time: np.ndarray, energy: np.ndarray, watts: np.ndarray, of: Any
        ) -> tuple[np.ndarray, np.ndarray]:
            runs, apart, number, usual = (
                x[of] for x in (often, slope, calls, default_static)
            )
            with np.errstate(invalid="ignore"):  # where a kernel cannot run
                own = energy - watts * time
                # the mean idling of all that runs is drawn all along the step
                mean = self.static * apart + (watts - usual) * self.share * runs
                joules = runs * own + mean * time
                joules = np.where(np.isfinite(time), self.gpus * joules, np.inf)
            return apart * time / number, joules / number

        time, energy = added(plain.time, plain.energy, static, (slice(None), None))
        usual = added(plain.default_time, plain.default_energy, default_static, ...)
        cap, at = plain.power_cap, self.calls / self.slope
        wait, still = plain.wait_power, np.full(len(self.slope), self.static)
        step = dataclasses.replace(
            plain,
            count=plain.count * calls,
            time=time,
            energy=energy,
            default_time=usual[0],
            default_energy=usual[1],
            loops=loops,
            # what a part draws while it runs, not by the second of the step
            power_cap=self.gpus * (still + at * (cap - wait)),
            host_time=self.slope * plain.host_time,
            wait_power=self.gpus * still,
            rounds=self.rounds,
        )
        return self._with_network(step) if self.rest else step

    def _with_network(self, step: Problem) -> Problem:
        """The step with the time and energy that no clock changes, as a kernel."""
        time, every = np.array([self.rest]), len(step.kernels)
        joules = self.gpus * self.static * time
        number = len(step.settings)
        return dataclasses.replace(
            step,
            kernels=(*step.kernels, NETWORK),
            stages=(*step.stages, NETWORK),
            stage=np.append(step.stage, len(step.stages)),
            count=np.append(step.count, 1.0),
            time=np.vstack([step.time, np.tile(time, number)]),
            energy=np.vstack([step.energy, np.tile(joules, number)]),
            default_time=np.append(step.default_time, time),
            default_energy=np.append(step.default_energy, joules),
            loops=(*step.loops, Loop((every,), 1)),
            power_cap=np.append(step.power_cap, np.inf),
            host_time=np.append(step.host_time, 0.0),
            wait_power=np.append(step.wait_power, 0.0),
        )

    def board_power(
        self, power: Float[np.ndarray, " stage"], default: PhaseEstimate
    ) -> Float[np.ndarray, " part"]:
        """W of a board while it runs each part, from the mean power of the stages of
        `problem`."""
        parts = power[: len(self.slope)] / self.gpus - self.static
        return np.asarray(default.static_power) + parts * self.slope / self.calls

    def time(self, times: Float[np.ndarray, " stage"]) -> float:
        """s of the step from those of its parts."""
        arguments = times, self.steps, self.corrections
        return float(call_compiled(_time, arguments))

    def totals(self, phases: PhaseEstimate) -> Total:
        """s and J (of all GPUs) of the steps of phases with a leading axis."""
        of_parts = phases.time, phases.energy, phases.static_power
        totals = call_compiled(_totals, (*of_parts, self.steps, self.corrections))
        return Total(*map(np.asarray, totals))

    def exact(self, problem: Problem, plan: Plan, wait: float) -> Plan:
        """`plan` with time and energy of the step composed of the times that its parts
        take; a second more or less draws `wait` W. Kernels at one setting are one row,
        wherever they stand in the order."""
        if plan.solver == "default":
            return plan
        plan = _joined(plan)
        stages = stage_totals(problem, plan.spent(problem)).time
        parts = len(self.slope)
        longer = self.time(stages[:parts] / self.slope) - float(stages.sum())
        return dataclasses.replace(
            plan, time=plan.time + longer, energy=plan.energy + wait * longer
        )

    def keep_limit(
        self,
        solve: Callable[[Objective], tuple[Problem, Plan]],
        objective: Objective,
        wait: float,
    ) -> tuple[Problem, Plan]:
        """What `solve` finds whose step, composed anew, keeps the limit of time; if
        none does, what leaves all clocks alone."""
        within = objective
        problem, plan = solve(objective)
        default = default_total(problem)
        for _ in range(_ROUNDS):
            plan = self.exact(problem, plan, wait)
            value = float(objective.value(plan.total))
            plan = dataclasses.replace(plan, value=value, bound=min(plan.bound, value))
            over = plan.time / objective.most_time(default) - 1
            if not over > TIE:
                return problem, plan
            # a little more than the step was late, so that this ends
            slower = (1 + within.max_slowdown / 100) * (1 - 1.01 * over) - 1
            within = within._replace(max_slowdown=100 * slower)
            try:
                problem, plan = solve(within)
            except Infeasible:
                break
        if not objective.keeps(default, default):
            raise Infeasible(
                f"`max_slowdown` is {objective.max_slowdown:g} %, which no schedule of "
                "the step keeps; allow more."
            )
        return problem, _left_alone(problem, plan, objective, default)


def _left_alone(
    problem: Problem, plan: Plan, objective: Objective, default: Total
) -> Plan:
    """The schedule that leaves all clocks alone, with the bound of `plan`."""
    value, energy = float(objective.value(default)), float(default.energy)
    kernels = np.arange(len(problem.kernels))
    return Plan(
        kernels, np.zeros_like(kernels), problem.count, float(default.time), energy,
        value, min(plan.bound, value), min(plan.bound_energy, energy), "default", 0.0,
    )  # fmt: skip


def _joined(plan: Plan) -> Plan:
    """One row a kernel, if each has one setting."""
    kernels, first, of = np.unique(plan.kernel, return_index=True, return_inverse=True)
    setting = plan.setting[first]
    if np.any(setting[of] != plan.setting):
        return plan
    count = np.bincount(of, plan.count)
    return dataclasses.replace(plan, kernel=kernels, setting=setting, count=count)


def _time(times: jax.Array, steps: Steps, c: Corrections) -> jax.Array:
    return compose_step(times, steps, c).time


def _slopes(times: jax.Array, steps: Steps, c: Corrections) -> jax.Array:
    return jax.grad(lambda t: compose_step(t, steps, c).time)(times)


def _totals(
    times: jax.Array,
    energies: jax.Array,
    static: jax.Array,
    steps: Steps,
    c: Corrections,
) -> tuple[jax.Array, jax.Array]:
    def one(time: jax.Array, energy: jax.Array, watts: jax.Array):
        step = compose_step(time, steps, c)
        return step.time, step_energy(
            time, energy - watts * time, watts, step, steps
        ).energy

    return jax.vmap(one)(times, energies, static)


# --- from a task to its step


def check_task(task: Task, rules: Rules, exact: bool) -> None:
    """Raises `BadRequest` for plans of GPUs that differ, and for what a schedule of a
    step cannot be."""
    plan, step = task.plan, task.step
    if plan is None:
        return
    if step is None:
        raise BadRequest(
            f"`plan` is {plan.text} with phase {task.about['phase']}; clocks are known "
            "of one GPU, and of plans in training: give `phase` train, or leave the "
            "plan out.",
            "plan",
        )
    if plan.pp > 1:
        raise BadRequest(
            f"`plan` has pp={plan.pp}, whose stages differ; clocks of kernels are "
            "known of pp=1, those of stages by `plan --stage-clocks`.",
            "plan",
        )
    lookahead = rules.changes.kind == "lookahead"
    for name, wrong, words in (
        ("solver", not exact, "'descent'"),
        ("per_launch", rules.per_launch, "given"),
        ("switching", lookahead, "of kind 'lookahead', which plans every launch"),
    ):
        if wrong:
            raise BadRequest(
                f"`{name}` is {words}, but the clocks of a plan are the same in all "
                "micro-batches; leave it out.",
                name,
            )


def shared_of(
    task: Task,
    default: PhaseEstimate,
    stage: Int[np.ndarray, " kernel"],
    count: Float[np.ndarray, " kernel"],
) -> tuple[Shared, tuple[str, ...]]:
    """The step of a task of pp=1 whose phases are those of `default`, and the names of
    its parts; `stage`, `count`: of its kernels, in order."""
    assert task.step is not None
    steps, c = task.step.steps, task.corrections.serve(task.card)
    at = np.asarray(steps.phase)[0]
    parts = [STEP_PARTS[list(at).index(i)] for i in range(len(task.listings))]
    places = [STEP_PARTS.index(x) for x in parts]
    times, static = jnp.asarray(default.time), jnp.asarray(default.static_power)
    step = compose_step(times, steps, c)
    drawn = step_energy(times, default.energy - static * times, static, step, steps)
    slope = np.maximum(np.asarray(call_compiled(_slopes, (times, steps, c))), _LEAST)
    calls = np.asarray(drawn.calls)[0, places]
    spent = calls * np.asarray(times)
    rest = float(step.time) - float(slope @ np.asarray(times))
    loops, number = _launch_order(parts, stage, count, calls, float(steps.batches))
    shared = Shared(
        steps, c, calls, slope, rest if rest > _ROUNDING * float(step.time) else 0.0,
        float(spent @ np.asarray(static) / spent.sum()), float(step.time) / spent.sum(),
        int(steps.gpus), loops, (number, int(steps.batches)),
    )  # fmt: skip
    return shared, tuple(parts)


def _launch_order(
    parts: Sequence[str],
    stage: Int[np.ndarray, " kernel"],
    count: Float[np.ndarray, " kernel"],
    calls: Float[np.ndarray, " stage"],
    batches: float,
) -> tuple[tuple[Loop, ...], int]:
    """Loops of a micro-batch, forward and backward with their exchanges between their
    kernels, then those of what happens once a step; and how many are the former."""
    rows = {part: np.flatnonzero(stage == i) for i, part in enumerate(parts)}
    often = dict(zip(parts, calls, strict=True))
    body, once = list[Loop](), [x for x in parts if "ward" not in x]
    for number, way in enumerate(("forward", "backward")):
        mine = [x for x in parts if x.partition("_")[0] == way]
        # weights are gathered by each micro-batch once or twice, or once a step
        if often.get("gather", 0.0) > max(number, 0.5) * batches and batches > 1:
            mine.insert(0, "gather")
        if number and often.get("reduce", 0.0) >= batches > 1:
            mine.append("reduce")
        once = [x for x in once if x not in mine]
        body += _loops(mine, rows, count, batches)
    return (*body, *_loops(once, rows, count, 1.0)), len(body)


def _loops(
    parts: Sequence[str],
    rows: Mapping[str, Int[np.ndarray, " row"]],
    count: Float[np.ndarray, " kernel"],
    batches: float,
) -> list[Loop]:
    """Launch order of the kernels of some parts, of which those of passes are counted
    for all micro-batches."""
    kernels, launches = list[int](), list[int]()
    for part in parts:
        each = batches if "ward" in part else 1.0
        kernels += rows[part].tolist()
        launches += [max(round(x / each), 1) for x in count[rows[part]]]
    loops = loops_of(launches) if launches else []
    return [Loop(tuple(kernels[i] for i in x.kernels), x.turns) for x in loops]


def slow_exchanges(problem: Problem, plan: Plan, highest: float) -> list[str]:
    """A warning where exchanges run at clocks at which nobody measured them."""
    clock = problem.settings[plan.setting, 0]
    names = np.array([problem.stages[i] for i in problem.stage[plan.kernel]])
    moved = np.array(["_" in x or x in ("gather", "reduce") for x in names])
    low = clock[moved & (clock < _BEYOND_CLOCKS * highest)]
    if not len(low):
        return []
    return [
        f"exchanges run at {low.min() / 1e6:g} MHz, below {_BEYOND_CLOCKS:.0%} of the "
        "highest clock, where nobody measured that they stay as fast."
    ]

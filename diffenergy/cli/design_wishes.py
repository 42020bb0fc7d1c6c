"""`Wish`: what the flags of `codesign` ask for beside the workload."""

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from . import parse
from .flags import Flags

if TYPE_CHECKING:
    from ..codesign._search.engine import Effort
    from ..codesign._space.axes import Range
    from ..hardware._spec import OperatingPoint
    from ..report.summary import Setting

TILES: Final = "tiles"
_LIMITS: Final = {
    "max_latency": ("time", "s"),
    "max_power": ("power", "W"),
    "max_area": ("area", "mm2"),
    "max_cost": ("cost", ""),
    "max_ttft": ("ttft", "s"),
    "max_tpot": ("tpot", "s"),
}
_POINT: Final = {
    "sm_clock": "sm_clock",
    "mem_clock": "mem_clock",
    "power_limit": "power_cap",
}
"""Flags that say where designs run, and the field that each settles."""
_MOST_STARTS, _MOST_ROUNDS = 256, 10_000
_TUNED: Final = ("time", "energy")


@dataclasses.dataclass(frozen=True)
class Wish:
    """The flags of `codesign` beside those of the workload, as typed."""

    vary: Sequence[str] = ()
    objective: str | None = None
    max_latency: str | None = None
    max_power: str | None = None
    max_area: str | None = None
    max_cost: str | None = None
    max_ttft: str | None = None
    max_tpot: str | None = None
    price: str | None = None
    mix: Sequence[str] = ()
    weight: Sequence[str] = ()
    seed: str | None = None
    starts: str | None = None
    rounds: str | None = None
    tune_tiles: bool = False

    @property
    def goals(self) -> tuple[str, ...]:
        """What is to be small, the first one first."""
        words = (self.objective or "energy").split(",")
        return tuple(word.strip() for word in words)

    def ranges(self) -> tuple[list["Range"], bool]:
        """Fields to vary with their bounds, and whether tiles are varied."""
        from ..codesign._space.axes import Range

        entries = [part for text in self.vary for part in text.split(",")]
        found, tiles = [], 0
        for entry in entries:
            name, equals, bounds = (part.strip() for part in entry.partition("="))
            if not name:
                raise ValueError(
                    f"`--vary` is '{','.join(self.vary)}'; give names, such as "
                    "num_sms,l2_capacity=20e6:100e6,sm_clock."
                )
            if name == TILES and equals:
                raise ValueError(
                    f"`--vary` is '{entry}'; tiles take no bounds, leave them out."
                )
            if name == TILES:
                tiles += 1
                continue
            found.append(Range(name, *_bounds(name, bounds, bool(equals))))
        if tiles > 1:
            raise ValueError("`tiles` is varied twice; name it once.")
        return found, bool(tiles)

    def limits(self) -> dict[str, float]:
        """Limits by metric, SI."""
        return {
            metric: parse.positive(_flag(name), value, unit)
            for name, (metric, unit) in _LIMITS.items()
            if (value := getattr(self, name)) is not None
        }

    def silicon_price(self) -> float:
        """Price of a mm2."""
        uses = "cost" in self.goals or self.max_cost is not None
        if self.price is None and uses:
            flag = "--objective" if "cost" in self.goals else "--max-cost"
            raise ValueError(
                f"`{flag}` asks for a cost, but no price is known; give `--price` of a "
                "mm2."
            )
        if self.price is None:
            return 1.0
        if not uses:
            raise ValueError(
                f"`--price` is '{self.price}', but nothing costs; give `--max-cost`, "
                "or make cost an `--objective`."
            )
        return parse.positive("--price", self.price)

    def effort(self) -> "Effort":
        """How much the search does."""
        from ..codesign._search.engine import Effort

        usual = Effort()
        starts = _count("--starts", self.starts, usual.starts, _MOST_STARTS)
        rounds = _count("--rounds", self.rounds, usual.rounds, _MOST_ROUNDS)
        return Effort(starts, rounds, _seed(self.seed))

    def check(self, flags: Flags):
        """Raises `ValueError` for flags that do not go together."""
        for name in _POINT:
            value = getattr(flags, name)
            if value is not None and "," in value:
                raise ValueError(
                    f"`{_flag(name)}` is a list; give one value, or vary the field."
                )
        if self.tune_tiles:
            self._check_tuning()
            return
        if not self.vary:
            raise ValueError(
                "`--vary` is missing; name what may change, such as num_sms,sm_clock,"
                "tiles."
            )
        varied = {entry.name for entry in self.ranges()[0]}
        for name, field in _POINT.items():
            if getattr(flags, name) is not None and field in varied:
                raise ValueError(
                    f"`{_flag(name)}` is given, but `{field}` is varied; leave one out."
                )
        given = "sm_clock" in varied or flags.sm_clock is not None
        if given and "sm_clock_max" in varied:
            raise ValueError(
                "`sm_clock_max` is varied beside an SM clock; leave one out: designs "
                "run at their own highest clock unless another is asked for."
            )
        self.limits()
        self.silicon_price()

    def _check_tuning(self):
        """What `--tune-tiles` cannot do."""
        for field in dataclasses.fields(self):
            name = field.name
            if name in ("tune_tiles", "objective", "mix"):
                continue
            if getattr(self, name):
                raise ValueError(
                    f"`{_flag(name)}` is given beside `--tune-tiles`, which tunes the "
                    "tiles of one workload on one GPU; leave one out."
                )
        if self.goals[0] not in _TUNED or len(self.goals) > 1:
            raise ValueError(
                f"`--objective` is '{self.objective}'; allowed with `--tune-tiles` are "
                f"{' and '.join(_TUNED)}."
            )


def point_of(flags: Flags, setting: "Setting", locked: bool) -> "OperatingPoint":
    """Where designs run as far as flags say; NaN: where a design does by default.
    `locked`: the memory clock is set or varied."""
    from ..hardware._spec import OperatingPoint

    nan = float("nan")
    given = (flags.sm_clock, flags.mem_clock, flags.power_limit)
    asked = (setting.sm_clock, setting.mem_clock, setting.power_limit)
    sm, mem, cap = (nan if x is None else y for x, y in zip(given, asked, strict=True))
    temperature = nan if setting.temperature is None else setting.temperature
    return OperatingPoint(sm, mem, cap, temperature, float(locked))


def weights_of(texts: Sequence[str], members: int, model: bool) -> list[float]:
    """Weight of every member of the mix: `model`, if there is one, then `members`."""
    count = members + model
    if not texts:
        return [1.0] * count
    if not members:
        raise ValueError(
            f"`--weight` is '{texts[0]}', but there is one workload; give others with "
            '`--workload "MODEL flags"`.'
        )
    values = [parse.positive("--weight", text) for text in texts]
    if len(values) == count:
        return values
    if model and len(values) == members:
        return [1.0, *values]
    raise ValueError(
        f"`--weight` is given {len(values)} times for {members} `--workload`; give one "
        "for each, in their order" + (", MODEL's own before them." if model else ".")
    )


def _bounds(name: str, text: str, given: bool) -> tuple[float | None, float | None]:
    if not given:
        return None, None
    low, colon, high = text.partition(":")
    if not colon:
        raise ValueError(f"`--vary` is '{name}={text}'; give {name}=LOW:HIGH, in SI.")
    flag = f"--vary {name}"
    numbers = [parse.number(flag, x) if x.strip() else None for x in (low, high)]
    return numbers[0], numbers[1]


def _count(flag: str, text: str | None, usual: int, most: int) -> int:
    value = parse.whole(flag, text)
    if value is not None and value > most:
        raise ValueError(f"`{flag}` is {value}; allowed are 1 to {most}.")
    return usual if value is None else value


def _seed(text: str | None) -> int:
    value = 0.0 if text is None else parse.number("--seed", text)
    if value != int(value) or not 0 <= value <= parse.MOST:
        raise ValueError(
            f"`--seed` is '{text}'; allowed is a whole number from 0 to {parse.MOST:,}."
        )
    return int(value)


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")

"""`GpuCard`: a GPU with its names and the sources of its numbers; the bundled GPU files
as they stand, before any check. JAX is imported only where a `GpuSpec` is built."""

import dataclasses
import functools
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

from ..corrections import Generation, generation, known_process
from ..files import read_toml
from ._fields import MMA_KINDS

if TYPE_CHECKING:
    import diffenergy.corrections
    import diffenergy.hardware._spec


FOLDER: Final = Path(__file__).parent.parent / "data" / "gpus"


def gpu_names() -> list[str]:
    """Names of the bundled GPUs, sorted."""
    return [*_names()]


@functools.cache
def _names() -> tuple[str, ...]:
    return tuple(sorted(path.stem for path in FOLDER.glob("*.toml")))


@functools.cache
def bundled(name: str) -> dict[str, Any]:
    """Keys of the file of a bundled GPU."""
    return read_toml(FOLDER / f"{name}.toml", "gpu", "h100-sxm")


@dataclasses.dataclass(frozen=True)
class GpuCard:
    """A GPU with its names and sources; `spec` is the part that is computed with.

    `values` are the numbers as they stand in the file (SI), `corrections` names the
    bundled GPU whose corrections serve this one (None: those of its architecture),
    `machine` the topology that it is sold in, `lane` the B/s of one of its links where
    its generation has others, `links` the GPU whose constants of collectives it has
    ("", 0: those of its generation),
    `mem_clocks` are the memory clocks that can be locked (Hz), `published` the
    vendor's dense peaks with the clock they are quoted at, `provenance` gives source,
    quality and year of every value. `is_assumed`: the caller named a family of boards,
    of which this one was taken.
    """

    name: str
    architecture: str
    mma: str
    memory: str
    process_node: str
    segment: str
    corrections: str | None
    aliases: tuple[str, ...]
    mem_clocks: tuple[float, ...]
    published: Mapping[str, Any]
    physical: Mapping[str, Any]
    provenance: Mapping[str, Any]
    values: Mapping[str, float]
    path: Path | None = None
    is_assumed: bool = dataclasses.field(default=False, compare=False)
    machine: str = ""
    lane: float = 0.0
    links: str = ""

    @property
    def generation(self) -> Generation:
        """Facts that it shares with boards of its architecture."""
        shared = generation(self.architecture, self.mma)
        return shared._replace(lane=self.lane) if self.lane else shared

    @property
    def served_as(self) -> str:
        """Name of the GPU whose fitted constants serve this one."""
        return self.corrections or self.name

    @property
    def tags(self) -> tuple[str, ...]:
        """Levels of the corrections that apply, general ones first; their factors
        multiply. MMA kinds are a chain: each has the factors of those before it;
        systolic arrays stand apart. Chips of several compute dies share a level."""
        return self._tags

    @functools.cached_property
    def _tags(self) -> tuple[str, ...]:
        medium = self.generation.medium(self.values["link_bandwidth"])
        chain = MMA_KINDS[1 : MMA_KINDS.index(self.mma) + 1]
        kinds = chain if chain and self.mma != "systolic" else (self.mma,)
        return (
            f"architecture:{self.architecture}",
            *(f"mma:{kind}" for kind in kinds),
            *(["dies:2"] if self.physical.get("num_dies", 1) > 1 else []),
            f"memory:{self.memory}",
            *([f"link:{medium}"] if medium else []),
            f"node:{known_process(self.process_node)}",
            f"gpu:{self.served_as}",
        )

    def alike(self, other: "GpuCard") -> bool:
        """Whether two GPUs have the same numbers, memory and process."""
        return (self.values, self.tags[:-1]) == (other.values, other.tags[:-1])

    @functools.cached_property
    def spec(self) -> "diffenergy.hardware._spec.GpuSpec":
        """The numbers as a traced record, with the shipped corrections."""
        from ..corrections import read_corrections

        return self.served(read_corrections())

    def rates(self, clock: float, mem_clock: float) -> "diffenergy.hardware.Rates":
        """Peak rates of the units at an SM and a memory clock (Hz), as floats."""
        from ._rates import unit_rates

        return unit_rates(SimpleNamespace(**self.values), clock, mem_clock)

    def served(
        self, file: "diffenergy.corrections.CorrectionsFile"
    ) -> "diffenergy.hardware._spec.GpuSpec":
        """The numbers as a traced record, with the constants of a corrections file;
        the same record for the same file."""
        if self._served.get("file") is not file:
            self._served.update(file=file, spec=self._spec_of(file))
        return self._served["spec"]

    @functools.cached_property
    def _served(self) -> dict[str, Any]:
        """The last file of `served`, and its record."""
        return {}

    def _spec_of(
        self, file: "diffenergy.corrections.CorrectionsFile"
    ) -> "diffenergy.hardware._spec.GpuSpec":
        import jax

        from ._link_costs import link_costs
        from ._spec import GpuSpec

        with jax.ensure_compile_time_eval():  # it is kept: no tracers of a first caller
            return GpuSpec(
                **self.values,  # pyright: ignore[reportArgumentType]
                mma_kind=float(MMA_KINDS.index(self.mma)),
                corrections=file.serve(self),
                links=link_costs(*self._links()),
            )

    def _links(self) -> tuple[tuple[str, str], Generation, float]:
        """Names whose constants of collectives may serve, the generation and the rate
        (B/s) of the links: those of the GPU that serves this one, if any."""
        if self.corrections is None:
            return ("", self.links), self.generation, self.values["link_bandwidth"]
        other = bundled(self.corrections)
        names = (self.corrections, other.get("links", ""))
        of = generation(other["architecture"], other["mma"])
        return names, of, float(other["link_bandwidth"])

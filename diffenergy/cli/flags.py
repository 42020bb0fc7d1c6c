"""`Flags`: the command line of `estimate` as typed."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path


@dataclasses.dataclass(frozen=True)
class Flags:
    """The command line of `estimate` as typed; None where a flag was not given."""

    model: str
    gpu: str | None = None
    workload: str | None = None
    batch: str | None = None
    input_len: str | None = None
    output_len: str | None = None
    phase: str | None = None
    dtype: str | None = None
    kv_dtype: str | None = None
    attention: str | None = None
    stack: str | None = None
    dispatch: str | None = None
    accumulation: str | None = None
    checkpointing: bool = False
    sm_clock: str | None = None
    mem_clock: str | None = None
    power_limit: str | None = None
    temperature: str | None = None
    set_field: Sequence[str] = ()
    corrections: str | None = None
    detail: bool = False
    as_json: bool = False
    out: str | None = None

    @property
    def inputs(self) -> list[str]:
        """Files that this run reads, for `--out` to keep away from."""
        names = [self.model, self.gpu, self.corrections]
        files = [name for name in names if name]
        return [*files, str(Path(self.model) / "config.json")]

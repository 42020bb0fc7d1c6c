"""Keys of the JSON of `import`: type, unit, meaning. What is not known is None."""

from typing import Annotated, NotRequired, TypedDict


class UnknownJson(TypedDict):
    """A kernel of no known class."""

    name: Annotated[str, "as the trace has it"]
    us: Annotated[float, "us", "of all its launches"]


class ImportJson(TypedDict):
    """What a file became; of a graph, which has no times, these are null."""

    source: Annotated[str, "name of the file"]
    kind: Annotated[str, "of file"]
    gpu: Annotated[str | None, "by our name"]
    kernels: Annotated[float, "launches"]
    rows: Annotated[int, "of the listing"]
    busy_us: Annotated[float | None, "us", "union of all streams"]
    sum_us: Annotated[float | None, "us", "of all kernels"]
    classes: Annotated[dict[str, float], "us", "of kernels by class, and copies"]
    class_share: Annotated[float | None, "share of the time whose class is known"]
    shape_share: Annotated[float | None, "share of the time whose shapes are known"]
    unknown: Annotated[list[UnknownJson], "those that take longest"]
    ops: NotRequired[Annotated[dict[str, float], "of a graph: launches by op"]]
    notes: Annotated[list[str], "sentences"]

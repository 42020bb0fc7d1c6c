"""Keys of the JSON of `measure`: type, unit, meaning. What is not known is None."""

from typing import Annotated, Any, TypedDict


class MeasurePlanJson(TypedDict):
    """What would be measured (`--dry-run`)."""

    gpu: Annotated[str, "name"]
    assumed: Annotated[list[str], "what no flag gave"]
    seconds: Annotated[float, "s", "that it takes"]
    done: Annotated[int, "points that the file has"]
    later: Annotated[int, "points beyond those asked for"]
    classes: Annotated[dict[str, int], "points by kind"]
    points: Annotated[
        list[dict[str, Any]], "`class`, fields of the kernel, state, `seconds`"
    ]


class MeasureJson(TypedDict):
    """What was measured."""

    file: Annotated[str, "its path"]
    series: Annotated[str, "path of the readings over time"]
    gpu: Annotated[str, "by our name"]
    device: Annotated[str, "by its own"]
    campaign: Annotated[str, "of these rows"]
    rows: Annotated[int, "of the file"]
    measured: Annotated[int, "points measured now"]
    failed: Annotated[list[dict[str, Any]], "`class`, `kernel` and `reason` of each"]
    remaining: Annotated[int, "points that are left"]
    stopped: Annotated[str | None, "why it ended early"]
    shared_gpu: Annotated[bool, "whether other processes used the GPU"]
    classes: Annotated[dict[str, int], "rows by kind"]

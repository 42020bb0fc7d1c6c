"""Speculative decoding: tokens that a cheap network drafts, and the model verifies in
one pass.

With `accept` the probability that a drafted token is right where all before it were, a
chain of k drafted tokens makes (1 - a^(k + 1)) / (1 - a) tokens a step in the mean
(arXiv 2211.17192, equation 1).
"""

import dataclasses
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from ._request import Request

_DRAFTED: Final = {"mtp": 1, "eagle": 3, "draft": 4}
"""Tokens drafted a step where nothing is said, by kind."""
_KINDS: Final = "mtp, eagle and draft=MODEL"
_MOST: Final = 32


@dataclasses.dataclass(frozen=True)
class Speculation:
    """`kind`: "mtp" (the model's own layer), "eagle" or "draft" (of `model`)."""

    kind: str
    model: str
    accept: float
    drafted: int

    @property
    def tokens(self) -> float:
        """Tokens that a step makes in the mean.

        >>> round(Speculation("mtp", "", 0.8, 3).tokens, 3)
        2.952
        """
        if self.accept == 1:
            return self.drafted + 1.0
        return (1 - self.accept ** (self.drafted + 1)) / (1 - self.accept)


def speculation_of(request: "Request") -> Speculation | None:
    """What a checked request says of speculation; None without any."""
    if request.speculative is None:
        return None
    kind, _, model = request.speculative.partition("=")
    return Speculation(kind, model, request.accept or 0.0, request.draft_tokens or 1)


def checked(values: dict[str, Any]) -> dict[str, Any]:
    """The choices with the default of `draft_tokens`; raises `ValueError` for what
    cannot be."""
    said, accept = values.get("speculative"), values.get("accept")
    if said is None:
        for name in ("accept", "draft_tokens"):
            if values.get(name) is not None:
                raise ValueError(
                    f"`{name}` is given, but nothing drafts tokens; give {_KINDS} as "
                    "`speculative`."
                )
        return values
    kind, _, model = str(said).partition("=")
    if kind not in _DRAFTED or bool(model) != (kind == "draft"):
        raise ValueError(f"`speculative` is {said!r}; allowed are {_KINDS}.")
    if values["phase"] not in ("decode", "generate"):
        raise ValueError(
            f"`speculative` is given, but the phase {values['phase']} makes no tokens; "
            "leave it out or take `--phase generate`."
        )
    if values["stack"] != "serving":
        raise ValueError(
            f"`speculative` is given, but `stack` is '{values['stack']}'; it is known "
            "for serving alone."
        )
    if accept is None:
        raise ValueError(
            "`accept` is missing: give the share of drafted tokens that are right, "
            "0 to 1; it depends on the texts."
        )
    if not isinstance(accept, int | float) or not 0 <= accept <= 1:
        raise ValueError(f"`accept` is {accept!r}; allowed is a number from 0 to 1.")
    drafted = values.get("draft_tokens")
    if drafted is None:
        return values | {"draft_tokens": _DRAFTED[kind]}
    if not isinstance(drafted, int) or not 1 <= drafted <= _MOST:
        raise ValueError(
            f"`draft_tokens` is {drafted!r}; allowed is a whole number from 1 to "
            f"{_MOST}."
        )
    return values

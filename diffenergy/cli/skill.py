"""The skill file of this version: what an agent has to know to ask and to read."""

import shlex

from .. import __version__
from ..keys import version
from ..requests import Argument, declared
from .app import QUESTIONS, names
from .flags import flag_name
from .refusal import KINDS
from .run import flags_of

_WORKED = (
    (
        "Which clock saves energy for a batch of 8?",
        "estimate gpt2 --gpu a100-sxm-80gb --batch 8 --sm-clock 900:1410:60 --json",
        "`points` has an entry for each clock; compare `energy_j` and `time_s`.",
    ),
    (
        "What does a token cost at 8 requests a second?",
        "serve qwen3-8b --rate 8 --json",
        "`energy_j_per_output_token` in J; status 3 names the highest rate that works.",
    ),
    (
        "Which GPU is better for the same work?",
        'compare "gpt2 --gpu l40s" "gpt2 --gpu h100-sxm" --json',
        "`ratios` are those of the second to the first.",
    ),
)


def skill_text() -> str:
    """Text of SKILL.md."""
    return "\n".join(
        [
            "---",
            "name: diffenergy",
            "description: Time, power and energy of AI workloads on GPUs, without a GPU. "
            "Use it for questions about cost, clocks, power limits, plans and fleets.",
            "---",
            "",
            f"# diffenergy {__version__}",
            "",
            "Add `--json` to every command; stdout is then one JSON document, or empty "
            "where the command is refused.",
            "",
            "## Commands",
            "",
            *_commands(),
            "",
            "`diffenergy COMMAND --help` explains every flag.",
            "",
            "## Units",
            "",
            "Keys end in their unit (`time_s`, `energy_j`, `avg_power_w`, "
            "`sm_clock_mhz`) or are in SI. Clocks of flags are in MHz and limits in W "
            "unless the value has a unit: `1.98GHz`, `700W`. Unknown values are null, "
            "never 0. Watts are of GPU boards alone unless `--node` is given.",
            "",
            "## Exit codes",
            "",
            "0 done",
            *(f"{status} {kind.replace('_', ' ')}" for status, kind in KINDS.items()),
            "",
            'With `--json` the last line on stderr is `{"error": {"kind", "field", '
            '"value", "message", "remedy"}}`; follow `remedy`.',
            "",
            "## Schema",
            "",
            "`diffenergy COMMAND --schema` prints the JSON Schema of its answer with "
            f"units; the version of the keys (`schema`) is {version()}.",
            "",
            "## Worked questions",
            *(
                f"\n{question}\n\n```sh\ndiffenergy {line}\n```\n\n{reading}"
                for question, line, reading in _WORKED
            ),
        ]
    )


def _commands() -> list[str]:
    """A line for each command: its arguments, what it answers, its flags."""
    lines = {name: x for group in QUESTIONS.values() for name, x in group.items()}
    rows = list[str]()
    for name in names():
        fields = list(declared(flags_of(name)))
        words = [x.name.upper() for x, flag in fields if isinstance(flag, Argument)]
        flags = [flag_name(*x) for x in fields if not isinstance(x[1], Argument)]
        usage = " ".join([name, *words])
        text = lines.get(name, "")
        rows.append(f"- `diffenergy {usage}`: {text} Flags: {shlex.join(flags)}.")
    return rows

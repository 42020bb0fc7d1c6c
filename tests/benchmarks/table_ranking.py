"""How far the ranking of plans is wrong, and whether its first twelve hold the best.

    python tests/benchmarks/table_ranking.py [--first N] [MODEL@GPUS@BATCH@TOKENS ...]

Each request is searched twice on H100s, with twelve and with N plans of the ranking
priced as `estimate` prices them; for both the largest error of the ranking, relative to
the best plan, and whether the two answers are the same plan.
"""

import argparse
import sys
import time

from diffenergy import parallel
from diffenergy.estimator import start_jax
from diffenergy.parallel import _search

USUAL = (
    "llama-3.1-70b@64@256@4096",
    "mixtral-8x7b@32@256@4096",
    "qwen3-30b-a3b@16@128@4096",
    "llama-3.1-8b@16@128@4096",
    "gpt2-xl@8@64@1024",
    "qwen3-0.6b@8@64@4096",
)


def main(requests: list[str], first: int) -> None:
    start_jax()
    for text in requests:
        model, *numbers = text.split("@")
        gpus, sequences, tokens = map(int, numbers)
        for objective in ("time", "energy"):
            began, actual = time.process_time(), []
            for _search._PRICED in (12, first):  # pyright: ignore[reportPrivateUsage]
                result = parallel.plan(
                    model,
                    "h100-sxm",
                    num_gpus=gpus,
                    global_batch=sequences,
                    input_len=tokens,
                    objective=objective,
                )
                actual.append(result.summary)
            few, many = (100 * x["ranking_error"] for x in actual)
            best = [x["best"]["plan"] for x in actual]
            said = "the same plan" if best[0] == best[1] else f"{best[0]} for {best[1]}"
            seconds = time.process_time() - began
            print(
                f"{text} {objective}: first twelve {few:.2f} %, first {first} "
                f"{many:.2f} %, {said} ({seconds:.0f} s of CPU)",
                flush=True,
            )


if __name__ == "__main__":
    sys.path.insert(0, ".")
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("requests", nargs="*", default=list(USUAL))
    parser.add_argument("--first", type=int, default=120)
    arguments = parser.parse_args()
    main(arguments.requests, arguments.first)

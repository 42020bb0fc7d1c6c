"""Latency of `diffenergy web` under load: 50 clients that together ask for 200 estimates
a second of one model at changing clocks.

    python tests/benchmarks/load_web.py [SECONDS] [STEP_MHZ]

The first line is of clocks that nobody has asked for, the second of the load.
"""

import http.client
import json
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from cli.web.conftest import serving  # noqa: E402

CLIENTS = 50
RATE = 200.0


def ask(connection: http.client.HTTPConnection, clock: float) -> float:
    """Seconds of one estimate."""
    body = json.dumps({"model": "gpt2", "gpu": "a100-sxm-80gb", "sm_clock": clock})
    begin = time.perf_counter()
    connection.request(
        "POST", "/api/v1/estimate", body, {"Content-Type": "application/json"}
    )
    answer = connection.getresponse()
    text = answer.read()
    assert answer.status == 200, text
    return time.perf_counter() - begin


def client(address: str, number: int, clocks: list[float], end: float, out: list[float]):
    """Asks every CLIENTS / RATE seconds; a late answer counts from when it was due."""
    connection = http.client.HTTPConnection(address)
    due = time.perf_counter() + number / RATE
    at = number
    while due < end:
        time.sleep(max(0.0, due - time.perf_counter()))
        late = max(0.0, time.perf_counter() - due)
        out.append(late + ask(connection, clocks[at % len(clocks)]))
        due += CLIENTS / RATE
        at += CLIENTS + 1


def shown(what: str, times: list[float]) -> str:
    """Percentiles in ms."""
    rows = sorted(times)
    p50, p99 = (1e3 * rows[int(share * (len(rows) - 1))] for share in (0.5, 0.99))
    return f"{what}: {len(rows)} estimates, p50 {p50:.1f} ms, p99 {p99:.1f} ms"


def main(seconds: float = 20.0, step: float = 15.0):
    clocks = [210 + step * i for i in range(int(1200 / step) + 1)]
    with serving() as server:
        address = server.url.removeprefix("http://")
        first = http.client.HTTPConnection(address)
        for clock in (1401.0, 1402.0, 1403.0, 1404.0):
            ask(first, clock)
        print(shown("first time", [ask(first, x + 1) for x in clocks[:20]]))
        begin = time.perf_counter()
        times = list[float]()
        threads = [
            threading.Thread(
                target=client, args=(address, n, clocks, begin + seconds, times)
            )
            for n in range(CLIENTS)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        rate = len(times) / (time.perf_counter() - begin)
        print(shown(f"{rate:.0f} a second from {CLIENTS} clients", times))


if __name__ == "__main__":
    main(*map(float, sys.argv[1:]))

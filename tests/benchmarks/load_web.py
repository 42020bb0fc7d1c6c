"""Latency of `diffenergy web` under load: 50 clients that together ask for 200
estimates a second of one model at changing clocks and power limits.

    python tests/benchmarks/load_web.py [SECONDS] [RATE]

First every setting is one that nobody has asked for; then those that come again
within the 1000 that the server remembers. The clients are of the same machine.
"""

import http.client
import itertools
import json
import os
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from cli.web.conftest import Server, serving  # noqa: E402

CLIENTS = 50
SETTINGS = [
    {"sm_clock": clock, "power_limit": limit}
    for limit, clock in itertools.product(range(400, 250, -1), range(210, 1411, 15))
]


def ask(connection: http.client.HTTPConnection, setting: dict[str, int]) -> float:
    """Seconds of one estimate."""
    body = json.dumps({"model": "gpt2", "gpu": "a100-sxm-80gb", **setting})
    begin = time.perf_counter()
    connection.request(
        "POST", "/api/v1/estimate", body, {"Content-Type": "application/json"}
    )
    answer = connection.getresponse()
    text = answer.read()
    assert answer.status == 200, text
    return time.perf_counter() - begin


def client(address: str, number: int, rate: float, end: float, out: list[float]):
    """Asks every CLIENTS / rate seconds; a late answer counts from when it was due."""
    connection = http.client.HTTPConnection(address)
    due, at = time.perf_counter() + number / rate, number
    while due < end:
        time.sleep(max(0.0, due - time.perf_counter()))
        late = max(0.0, time.perf_counter() - due)
        out.append(late + ask(connection, SETTINGS[at % len(SETTINGS)]))
        due += CLIENTS / rate
        at += CLIENTS


def cpu(processes: list[int]) -> float:
    """CPU time of processes so far, s."""
    stats = [Path(f"/proc/{x}/stat").read_text().split(")")[1] for x in processes]
    ticks = sum(sum(map(int, x.split()[11:13])) for x in stats)
    return ticks / os.sysconf("SC_CLK_TCK")


def load(server: Server, address: str, seconds: float, rate: float) -> str:
    """Rate that was reached, percentiles of the latency, CPU time of a request."""
    begin, times = time.perf_counter(), list[float]()
    groups = {
        "workers": server.children(),
        "server": [server.process.pid],
        "clients": [os.getpid()],
    }
    before = {name: cpu(x) for name, x in groups.items()}
    threads = [
        threading.Thread(target=client, args=(address, n, rate, begin + seconds, times))
        for n in range(CLIENTS)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    reached = len(times) / (time.perf_counter() - begin)
    times.sort()
    p50, p99 = (1e3 * times[int(share * (len(times) - 1))] for share in (0.5, 0.99))
    used = ", ".join(
        f"{name} {1e3 * (cpu(x) - before[name]) / len(times):.1f}"
        for name, x in groups.items()
    )
    return (
        f"{reached:.0f} a second, p50 {p50:.1f} ms, p99 {p99:.1f} ms; "
        f"ms of CPU a request: {used}"
    )


def main(seconds: float = 20.0, rate: float = 200.0):
    with serving() as server:
        address = server.url.removeprefix("http://")
        first = http.client.HTTPConnection(address)
        for limit in (401, 402):
            ask(first, {"sm_clock": 1410, "power_limit": limit - 4})
        print(f"new: {load(server, address, seconds, rate)}")
        print(f"again: {load(server, address, min(seconds, 4.0), rate)}")


if __name__ == "__main__":
    main(*map(float, sys.argv[1:]))

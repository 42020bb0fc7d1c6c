"""The clock of this machine."""

import threading

from diffenergy.measure._reading import Clock


def test_every_calls_beside_the_main_work():
    wall, called = Clock(), threading.Event()
    begin = wall.now()
    threads = []

    def step() -> None:
        threads.append(threading.current_thread())
        called.set()

    with wall.every(0.001, step):
        assert called.wait(10)
    count = len(threads)
    wall.sleep(0.005)
    assert len(threads) == count and threads[0] is not threading.main_thread()
    assert wall.now() > begin and wall.date().utcoffset() is not None

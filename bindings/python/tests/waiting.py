"""How tests wait for what happens soon."""

import time


def until(is_so):
    for _ in range(1_000):
        if is_so():
            return
        time.sleep(0.01)
    raise AssertionError("it does not become so")

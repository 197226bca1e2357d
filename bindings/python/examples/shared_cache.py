"""A cache that threads share: each name is looked up once, however many threads ask for it."""

import threading
import time

import larder

LOOKED_UP: list[str] = []


def look_up(name: object) -> str:
    """A slow source, such as a database."""
    LOOKED_UP.append(str(name))
    time.sleep(0.05)
    return f"{name} was looked up"


def main() -> None:
    cache = larder.Cache(16 << 20, ttl=60)

    def work() -> None:
        for number in range(10):
            name = f"host{number}.example"
            assert cache.get_or_load(name, look_up) == f"{name} was looked up"

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(LOOKED_UP) == 10, LOOKED_UP
    print(f"{len(LOOKED_UP)} loads for {8 * 10} lookups; {cache.stats['entries']} names in the cache")


if __name__ == "__main__":
    main()

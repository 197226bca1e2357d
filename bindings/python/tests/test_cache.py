"""`larder.Cache`, as its users call it."""

import collections
import datetime
import gc
import os
import subprocess
import sys
import threading
import time
import types
import unittest
import weakref

import larder
from waiting import until

BUDGET = 4 << 20


class Refused(Exception):
    """Of a function of the caller's."""


class Cache(unittest.TestCase):
    def setUp(self):
        self.cache = larder.Cache(BUDGET)

    def test_like_a_dict(self):
        cache = self.cache
        cache["lynx"] = "cat"
        cache[b"lynx"] = b"\x00\xff"
        cache["otter"] = bytearray(b"weasel")
        self.assertEqual((cache["lynx"], cache[b"lynx"], cache["otter"]), ("cat", b"\x00\xff", b"weasel"))
        self.assertEqual(dict(cache.items()), {"lynx": "cat", b"lynx": b"\x00\xff", "otter": b"weasel"})
        self.assertEqual(set(cache), {"lynx", b"lynx", "otter"})
        self.assertEqual(set(cache.keys()), set(cache))
        self.assertTrue("lynx" in cache and "badger" not in cache)
        self.assertEqual((len(cache), bool(larder.Cache(BUDGET))), (3, True))
        del cache["lynx"]
        self.assertEqual((cache.get("lynx"), cache.get("lynx", 7), cache.pop("lynx", 8)), (None, 7, 8))
        self.assertEqual((cache.pop(b"lynx"), cache.pop(b"lynx")), (b"\x00\xff", None))
        for wrong in [lambda: cache["lynx"], lambda: cache.__delitem__("lynx"), lambda: cache.ttl("lynx")]:
            with self.assertRaisesRegex(KeyError, "lynx"):
                wrong()
        cache.clear()
        self.assertEqual((len(cache), list(cache)), (0, []))

    def test_any_bytes(self):
        """Empty, long, and of every value; a key may be long, too."""
        values = [b"", "", bytes(range(256)), "\u00e9\U0001f9a6", "\x00", b"x" * 7_000]
        for value in values:
            for key in [value[:300], b"k" * 254, b"k" * 255, b"k" * 300, ""]:
                self.cache[key] = value
                self.assertEqual(self.cache[key], value)
                self.assertIs(type(self.cache[key]), type(value))
        with self.assertRaises(UnicodeEncodeError):
            self.cache["\ud800"] = "x"

    def test_many(self):
        cache = self.cache
        cache.put_many({f"k{n}": str(n) for n in range(100)})
        cache.put_many(((f"k{n}".encode(), b"%d" % n) for n in range(100, 200)), ttl=60)
        keys = [f"k{n}" for n in range(100)] + [f"k{n}".encode() for n in range(100, 201)]
        wanted = [str(n) for n in range(100)] + [b"%d" % n for n in range(100, 200)] + [None]
        self.assertEqual(cache.get_many(keys), wanted)
        self.assertEqual(cache.get_many(key for key in []), [])
        self.assertEqual((cache.ttl("k1"), cache.ttl(b"k100") in (59, 60)), (None, True))
        with self.assertRaises(TypeError):
            cache.put_many({"new": "1", "wrong": 2})
        self.assertNotIn("new", cache)
        with self.assertRaises((TypeError, ValueError)):
            cache.put_many(["xy"])
        # Mappings of any type, and pairs that are made one by one.
        cache.put_many(types.MappingProxyType({"proxy": "1"}))
        cache.put_many(collections.UserDict({"user": "2"}))
        self.assertEqual(cache.get_many(["proxy", "user"]), ["1", "2"])
        with self.assertRaises(TypeError):
            cache.put_many(types.MappingProxyType({("p", "q"): "3"}))
        self.assertNotIn("p", cache)
        cache.put_many((f"one{n}", str(n)) for n in range(3_000))
        self.assertEqual(cache["one2999"], "2999")

    def test_time_to_live(self):
        cache = larder.Cache(BUDGET, ttl=datetime.timedelta(hours=1))
        cache["a"] = "1"
        cache.put("b", "2", ttl=1)
        cache.put_many({"c": "3"})
        cache.get_or_load("d", str.upper)
        cache.compute("e", lambda _: "5")
        self.assertTrue(all(3_590 < cache.ttl(key) <= 3_600 for key in "acde"))
        self.assertTrue(cache.touch("a", ttl=10) and cache.ttl("a") <= 10)
        # A change keeps the time that is left.
        cache.compute("a", lambda value: value + "!")
        self.assertLessEqual(cache.ttl("a"), 10)
        cache.compute("a", lambda value: value, ttl=100)
        self.assertGreater(cache.ttl("a"), 90)
        self.assertFalse(cache.touch("none"))
        until(lambda: "b" not in cache)
        self.assertNotIn("b", list(cache))
        cache.put("x", "y", ttl=1e-10)
        for wrong in [0, -1, 1 << 32, 0.0, -0.5, float("nan"), float("inf"), 1e300, datetime.timedelta(seconds=-1)]:
            with self.assertRaisesRegex(ValueError, "ttl"):
                cache.put("x", "y", ttl=wrong)
            with self.assertRaisesRegex(ValueError, "idle"):
                larder.Cache(BUDGET, idle=wrong)
        for wrong in ["1", True, [1]]:
            with self.assertRaisesRegex(TypeError, "ttl"):
                cache.put("x", "y", ttl=wrong)
            with self.assertRaisesRegex(TypeError, "idle"):
                larder.Cache(BUDGET, idle=wrong)

    def test_short_times(self):
        """Milliseconds are exact: a value is never gone too early, and never there too late."""
        cache = larder.Cache(BUDGET)
        for ttl in [0.3, datetime.timedelta(milliseconds=300), 1.0]:
            seconds = ttl if isinstance(ttl, float) else ttl.total_seconds()
            before = time.monotonic()
            cache.put("a", "1", ttl=ttl)
            stored = time.monotonic()
            while True:
                asked = time.monotonic()
                is_there = "a" in cache
                if not is_there:
                    break
                self.assertLess(asked, stored + seconds + 0.01)
                time.sleep(0.002)
            self.assertGreater(time.monotonic(), before + seconds - 0.001)

    def test_time_to_idle(self):
        """What is read stays, what is not read goes, and a time to live ends both."""
        cache = larder.Cache(BUDGET, idle=1, ttl=3600)
        stored = time.monotonic()
        cache.put_many({"read": "1", "unread": "1"})
        self.assertLessEqual(cache.ttl("read"), 4)
        read = stored
        while "unread" in cache:
            self.assertLess(time.monotonic(), stored + 60)
            asked = time.monotonic()
            value = cache.get("read")
            # On a machine that had no time for this test for a second, it may be gone.
            if time.monotonic() < read + 1:
                self.assertEqual(value, "1")
            if value is None:
                cache.put("read", "1")
            read = asked
            time.sleep(0.05)
        self.assertGreaterEqual(time.monotonic(), stored + 1)
        cache.put("long", "1", ttl=(1 << 32) - 1)
        self.assertLessEqual(cache.ttl("long"), 4, "idle holds")
        forever = larder.Cache(BUDGET, ttl=60)
        forever.put("long", "1", ttl=(1 << 32) - 1)
        self.assertIsNone(forever.ttl("long"))
        cache.put("short", "1", ttl=1.5)
        stored = time.monotonic()
        while (asked := time.monotonic()) and cache.get("short") is not None:
            self.assertLess(asked, stored + 1.51)

    def test_loads(self):
        """One thread loads, the others wait; an error reaches all of them and is not stored."""
        for fails in [False, True]:
            loads, results, start = [], [], threading.Barrier(8)

            def load(key):
                loads.append(key)
                time.sleep(0.2)
                if fails:
                    raise Refused(key)
                return "loaded"

            def read(key):
                start.wait()
                try:
                    results.append(self.cache.get_or_load(key, load))
                except Refused as error:
                    results.append(str(error))

            key = f"key {fails}"
            readers = [threading.Thread(target=read, args=[key]) for _ in range(8)]
            for reader in readers:
                reader.start()
            for reader in readers:
                reader.join()
            self.assertEqual(loads, [key])
            self.assertEqual(results, [key if fails else "loaded"] * 8)
            self.assertEqual(key in self.cache, not fails)
        # Within a load: of another key, and of the same one.
        self.assertEqual(self.cache.get_or_load("a", lambda a: self.cache.get_or_load("b", lambda b: a + b)), "ab")
        self.assertEqual(self.cache.get_or_load("c", lambda c: self.cache.get_or_load("c", lambda c: "inner")), "inner")
        with self.assertRaises(TypeError):
            self.cache.get_or_load("d", lambda _: 3)
        with self.assertRaises(TypeError):
            self.cache.get_or_load("d", None)
        # A value that does not fit is still returned.
        self.assertEqual(len(self.cache.get_or_load("e", lambda _: "x" * 10_000_000)), 10_000_000)

    def test_the_end_of_a_thread_is_its_own(self):
        """SystemExit in a load ends that thread; one that waits loads itself."""
        begun = threading.Event()

        def leave(_):
            begun.set()
            time.sleep(0.2)
            sys.exit(3)

        leaver = threading.Thread(target=self.cache.get_or_load, args=["key", leave])
        leaver.start()
        begun.wait()
        self.assertEqual(self.cache.get_or_load("key", lambda _: "loaded"), "loaded")
        leaver.join()
        with self.assertRaises(KeyboardInterrupt):
            self.cache.get_or_load("other", lambda _: (_ for _ in ()).throw(KeyboardInterrupt()))
        self.assertEqual(self.cache.get_or_load("other", str.upper), "OTHER")

    def test_loads_and_writes_of_a_key_with_a_listener(self):
        """A load that evicts calls the listener, which needs the GIL; a write of the key, which has it, must not wait."""
        cache = larder.Cache(1 << 20, on_removed=lambda *_: None)
        cache.put_many((f"f{n}", "x" * 100) for n in range(20_000))
        current, end = ["x"], time.monotonic() + 1

        def load(key):
            current[0] = key
            return "x" * 100

        def read():
            turn = 0
            while time.monotonic() < end:
                turn += 1
                cache.get_or_load(f"k{turn}", load)

        def write():
            while time.monotonic() < end:
                cache.put(current[0], "y" * 100)

        workers = [threading.Thread(target=work, daemon=True) for work in [read, write]]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join(60)
            self.assertFalse(worker.is_alive())

    def test_changes_are_one_step(self):
        def count():
            for _ in range(2_000):
                self.cache.compute("count", lambda value: str(int(value or 0) + 1))

        counters = [threading.Thread(target=count) for _ in range(4)]
        for counter in counters:
            counter.start()
        for counter in counters:
            counter.join()
        self.assertEqual(self.cache["count"], "8000")
        self.assertEqual(self.cache.compute("count", lambda value: value), "8000")
        self.assertIsNone(self.cache.compute("count", lambda _: None))
        self.assertIsNone(self.cache.compute("count", lambda value: value))
        self.assertNotIn("count", self.cache)
        with self.assertRaises(Refused):
            self.cache.compute("count", lambda _: (_ for _ in ()).throw(Refused()))
        with self.assertRaises(TypeError):
            self.cache.compute("count", lambda _: 3)
        self.assertNotIn("count", self.cache)

    def test_listener(self):
        left = []
        cache = larder.Cache(1 << 20, on_removed=lambda *what: left.append(what))
        cache["a"] = "1"
        cache["a"] = "2"
        del cache["a"]
        self.assertEqual(left, [("a", "1", "replaced"), ("a", "2", "removed")])
        left.clear()
        for number in range(20_000):
            cache[f"k{number}"] = "x" * 100
        causes = {cause for _, _, cause in left}
        self.assertEqual(causes, {"budget"})
        self.assertEqual(cache.stats["evicted"], len(left))
        # It may use the cache.
        other = larder.Cache(1 << 20, on_removed=lambda key, value, cause: other.put(b"last", key))
        other["a"] = "1"
        other["a"] = "2"
        self.assertEqual(other[b"last"], "a")
        with self.assertRaises(TypeError):
            larder.Cache(1 << 20, on_removed=3)

    def test_listener_that_raises(self):
        """The call that evicts succeeds, and Python's hook hears of the error, each time."""
        heard = []
        before, sys.unraisablehook = sys.unraisablehook, heard.append
        try:
            cache = larder.Cache(1 << 20, on_removed=lambda *_: 1 / 0)
            for _ in range(3):
                cache["a"] = "1"
        finally:
            sys.unraisablehook = before
        self.assertEqual([event.exc_type for event in heard], [ZeroDivisionError] * 2)
        del heard

    def test_a_circle_is_garbage(self):
        class Owner:
            def __init__(self):
                self.cache = larder.Cache(1 << 20, on_removed=self.left)

            def left(self, *_):
                pass

        owner = Owner()
        owner.cache["a"] = "1"
        gone = weakref.ref(owner)
        del owner
        gc.collect()
        self.assertIsNone(gone())
        # A walk keeps the cache, and its listener.
        owner = Owner()
        owner.walk = owner.cache.keys()
        del owner.cache
        gone = weakref.ref(owner)
        del owner
        gc.collect()
        self.assertIsNone(gone())

    def test_mistakes(self):
        for wrong in [lambda: larder.Cache(1), lambda: larder.Cache(BUDGET, shards=3), lambda: larder.Cache(0),
                      lambda: larder.Cache(BUDGET, readers_max=0), lambda: larder.Cache(BUDGET, entry_bytes_mean=0),
                      lambda: larder.Cache(BUDGET, value_bytes_max=32768), lambda: self.cache.put("k", "x" * (1 << 20)),
                      lambda: larder.Cache(4 << 20).put("k", "x" * 16_101), lambda: larder.Cache(1 << 62)]:
            with self.assertRaises(larder.Error):
                wrong()
        # With the longest key that is not counted, and two times to live.
        stated = larder.Cache(4 << 20, value_bytes_max=16_100, idle=60)
        stated.put("k" * 253, "x" * 16_100, 3.5)
        self.assertEqual(len(stated.get("k" * 253)), 16_100)
        for wrong in [lambda: larder.Cache(-1), lambda: larder.Cache(1 << 64)]:
            with self.assertRaises(OverflowError):
                wrong()
        for wrong in [lambda: larder.Cache("1MiB"), lambda: self.cache.put("k"), lambda: self.cache.put(1, "v"),
                      lambda: self.cache.put("k", None), lambda: self.cache.get(memoryview(b"k")),
                      lambda: 3 in self.cache, lambda: self.cache.get_many(3), lambda: self.cache.get_many([None])]:
            with self.assertRaises(TypeError):
                wrong()
        self.assertEqual(len(self.cache), 0)

    def test_walk_while_it_changes(self):
        for number in range(5_000):
            self.cache[f"k{number}"] = str(number)
        walk = self.cache.items()
        found = [next(walk)]
        self.cache.clear()
        found += walk
        self.assertLessEqual(len(found), 5_000)
        self.assertTrue(all(key == f"k{value}" for key, value in found))
        self.assertEqual(list(walk), [])
        # It keeps its cache.
        walk = larder.Cache(BUDGET).keys()
        self.assertEqual(list(walk), [])

    def test_figures(self):
        self.cache["a"] = "1"
        self.cache["a"] = "2"
        self.cache.get("a")
        self.cache.get("b")
        figures = self.cache.stats
        wanted = dict(budget_bytes=BUDGET, entries=1, hits=1, misses=1, inserted=1, updated=1, removed=0, evicted=0)
        self.assertEqual({name: figures[name] for name in wanted}, wanted)

    def test_threads(self):
        """All calls at once, with functions of the caller's: no value of another key, and an end."""
        cache = larder.Cache(1 << 20, on_removed=lambda key, value, cause: check(key, value))
        wrong, end = [], time.monotonic() + float(os.environ.get("LARDER_SOAK_S", 2))

        def check(key, value):
            if value is not None and not value.startswith(key + ":"):
                wrong.append((key, value))

        def work(number):
            turn = number
            while time.monotonic() < end:
                turn += 1
                key = f"k{turn * 7919 % 20_000}"
                cache.put(key, key + ":" + "x" * (turn % 1_000), ttl=1 + turn % 3)
                keys = [f"k{(turn + step) * 104_729 % 20_000}" for step in range(40)]
                for one, value in zip(keys, cache.get_many(keys)):
                    check(one, value)
                check(keys[0], cache.get(keys[0]))
                check(keys[1], cache.get_or_load(keys[1], lambda key: key + ":loaded"))
                check(keys[2], cache.compute(keys[2], lambda value: (value or keys[2] + ":")[:100] + "c"))
                cache.pop(keys[3])
                cache.touch(keys[4], ttl=2)
                if turn % 50 == 0:
                    cache.put_many({key: key + ":" + "many" * 100 for key in keys})
                    for _, (key, value) in zip(range(100), cache.items()):
                        check(key, value)
                if turn % 500 == 0:
                    cache.clear()

        workers = [threading.Thread(target=work, args=[number * 1_000]) for number in range(6)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        self.assertEqual(wrong, [])
        self.assertGreater(cache.stats["evicted"], 0)

    def test_exit_while_threads_run(self):
        """Daemons in calls when the interpreter ends: it ends, with its status. Before Python 3.14 a thread must not be
        in a function of the caller's then, so these return at once."""
        program = """
import larder, sys, threading, time
cache = larder.Cache(1 << 20, on_removed=lambda *_: None)
def work():
    n = 0
    while True:
        n += 1
        cache.put_many({f"k{n * 31 % 9000 + i}": "x" * 90 for i in range(70)})
        cache.get_many([f"k{i}" for i in range(100)])
        cache.get_or_load(f"l{n}", lambda key: key)
        cache.compute("c", lambda value: "x")
        len(cache), list(zip(range(70), cache))
for _ in range(4):
    threading.Thread(target=work, daemon=True).start()
time.sleep(0.2)
sys.exit(7)
"""
        for _ in range(5):
            done = subprocess.run([sys.executable, "-c", program], stderr=subprocess.PIPE, timeout=60)
            self.assertEqual((done.returncode, done.stderr), (7, b""))

    def test_fork(self):
        """A child has its own copy."""
        self.cache.put("a", "1", ttl=100)
        child = os.fork()
        if child == 0:
            status = 1
            try:
                self.cache["a"] += "2"
                self.cache.put_many({"b": "3"}, ttl=1)
                until(lambda: "b" not in self.cache)
                status = 0 if self.cache.get_many(["a", "b"]) == ["12", None] else 2
            finally:
                os._exit(status)
        _, status = os.waitpid(child, 0)
        self.assertEqual(os.waitstatus_to_exitcode(status), 0)
        self.assertEqual(self.cache["a"], "1")


if __name__ == "__main__":
    unittest.main()

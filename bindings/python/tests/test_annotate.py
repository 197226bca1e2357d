"""`larder.annotate`, as its users call it. Needs pyarrow, polars and duckdb, or says SKIP."""

import datetime
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import larder
from waiting import until

DEMO = pathlib.Path(__file__).resolve().parents[3] / "crates/cli/demo/demo.pcapng"
PROGRAM = os.environ.get("LARDER_PROGRAM")
UTC = datetime.timezone.utc


def module(name):
    """A library that reads Arrow data."""
    try:
        return __import__(name)
    except ImportError:
        print(f"SKIP python: {name} is not installed, so it reads nothing here", file=sys.stderr)
        raise unittest.SkipTest(f"{name} is not installed") from None


def repeated(path, times):
    """A capture with many flows: the demo again and again, as sections of pcapng, each with the demo's times."""
    path.write_bytes(DEMO.read_bytes() * times)
    return path


class NoZone(datetime.tzinfo):
    """A time zone that has no offset, so that a time with it has no zone for Python."""

    def utcoffset(self, moment):
        return None


class Annotate(unittest.TestCase):
    def refused(self, kind, *paths, **settings):
        with self.assertRaises(kind) as caught:
            list(larder.annotate(*paths, **settings))
        return str(caught.exception)

    def test_records_are_those_of_the_program(self):
        """Every field of every record has the value that --format ecs writes."""
        records = list(larder.annotate(DEMO))
        self.assertEqual(len(records), 16)
        self.assertEqual(records[0]["destination.domain"], "www.shop.example")
        self.assertIs(type(records[0]["event.start"]), int)
        self.assertEqual(records[0]["related.ip"], ["192.0.2.10", "203.0.113.10"])
        if not PROGRAM:
            return
        command = [PROGRAM, "annotate", "-r", DEMO, "--format", "ecs", "--quiet"]
        lines = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
        self.assertEqual(len(lines), len(records))
        for line, record in zip(lines, records):
            for name, value in flat(json.loads(line)):
                given = record.pop(name)
                if isinstance(given, int) and isinstance(value, str) and value.endswith("Z"):
                    given = moment(given)
                self.assertEqual(given, value, name)
            self.assertEqual(record, {})

    def test_one_table_three_readers(self):
        """The same rows, whichever program reads them, and however often."""
        pyarrow, polars, duckdb = map(module, ["pyarrow", "polars", "duckdb"])
        flows = larder.annotate(DEMO)
        wanted = [record.get("destination.domain") for record in flows]
        table = pyarrow.table(flows)
        self.assertEqual(table.column("destination.domain").to_pylist(), wanted)
        self.assertEqual(table.schema.field("@timestamp").type, pyarrow.timestamp("ns", "UTC"))
        table.validate(full=True)
        self.assertEqual(pyarrow.schema(flows), table.schema)
        frame = polars.DataFrame(flows)
        self.assertEqual(frame["destination.domain"].to_list(), wanted)
        self.assertEqual(frame["related.ip"].to_list(), [record["related.ip"] for record in flows])
        found = duckdb.sql('SELECT "destination.domain" FROM flows').fetchall()
        self.assertEqual([name for (name,) in found], wanted)
        self.assertEqual(duckdb.sql("SELECT count(*) FROM flows").fetchall(), [(16,)])

    def test_more_flows_than_a_batch(self):
        """Batches have all rows once, in the order of the log, and records are the same."""
        pyarrow = module("pyarrow")
        with tempfile.TemporaryDirectory() as folder:
            many = repeated(pathlib.Path(folder) / "many.pcapng", 6_000)
            flows = larder.annotate(many, tcp_idle=1, udp_idle=1)
            reader = pyarrow.RecordBatchReader.from_stream(flows)
            batches = list(reader)
            ids = [row.as_py() for batch in batches for row in batch.column("event.id")]
            self.assertGreater(len(batches), 1)
            self.assertEqual(ids, [record["event.id"] for record in flows])
            self.assertEqual(len(ids), flows.stats["flows"])

    def test_settings_have_an_effect(self):
        def count(**settings):
            return sum(1 for _ in larder.annotate([DEMO], **settings))

        start = min(record["event.start"] for record in larder.annotate(DEMO))
        later = datetime.datetime.fromtimestamp(start / 1e9 + 3_600, UTC)
        self.assertEqual(count(from_=later), 0)
        self.assertEqual(count(to=later), 16)
        self.assertLess(count(filter="tcp port 443"), 16)
        self.assertEqual(count(filter=["tcp", "port", "443"]), count(filter="tcp port 443"))
        self.assertLess(count(count=20), 16)
        self.assertLess(count(unresolved=True), 16)
        self.assertEqual(count(unresolved=False, cores=None), 16)
        names = {record.get("larder.destination.name_source") for record in larder.annotate(DEMO, names=["sni"])}
        self.assertEqual(names, {None, "sni"})
        confident = larder.annotate(DEMO, min_confidence=90)
        self.assertTrue(all(record.get("larder.destination.name_confidence", 99) >= 90 for record in confident))
        by_time = [record["event.start"] for record in larder.annotate(DEMO, sort="start", tcp_idle="2m")]
        self.assertEqual(by_time, sorted(by_time))
        # These change how a run works, and not what it finds here.
        minute = datetime.timedelta(minutes=1)
        self.assertEqual(count(tcp_idle=minute, udp_idle=minute, names_budget="8MiB", cores=2, seed=7), 16)

    def test_outputs(self):
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            written = dict(names_save=folder / "names", stats=folder / "stats", write=folder / "named.pcapng")
            list(larder.annotate(DEMO, **written))
            self.assertEqual(json.loads((folder / "stats").read_text())["flows"], 16)
            self.assertGreater((folder / "named.pcapng").stat().st_size, DEMO.stat().st_size)
            def named(**settings):
                # Without lookups.
                flows = larder.annotate(DEMO, filter="not udp port 53", **settings)
                return sum("destination.domain" in record for record in flows)

            self.assertGreater(named(names_load=[folder / "names"]), named())

    def test_mistakes(self):
        """Each is an error that says what to do, before a packet is read."""
        self.assertIn("did you mean 'cores'?", self.refused(larder.Error, DEMO, core=1))
        self.assertIn("from 1 to 1024", self.refused(larder.Error, DEMO, cores=0))
        self.assertIn("only the program", self.refused(larder.Error, DEMO, interface="lo"))
        self.assertIn("only the program", self.refused(larder.Error, DEMO, output="x"))
        self.assertIn("no such file", self.refused(larder.Error, "no/such/file"))
        # On a command line, this would be a filter.
        self.assertIn("no such file", self.refused(larder.Error, [DEMO, "tcp"]))
        self.assertIn("is a directory", self.refused(larder.Error, DEMO.parent))
        self.assertIn("standard input", self.refused(larder.Error, "-"))
        for name in ["names_read", "zeek_dns", "dnstap", "flows_read"]:
            self.assertIn("standard input", self.refused(larder.Error, DEMO, **{name: "-"}))
        self.assertIn("no such setting", self.refused(larder.Error, DEMO, cores_=1))
        self.assertIn("standard output", self.refused(larder.Error, DEMO, write="-"))
        self.assertIn("no input", self.refused(larder.Error))
        self.assertIn("no input", self.refused(larder.Error, []))
        self.assertIn("this is an input", self.refused(larder.Error, DEMO, write=DEMO))
        self.assertIn("time zone", self.refused(TypeError, DEMO, from_=datetime.datetime(2026, 1, 1)))
        self.assertIn("time zone", self.refused(TypeError, DEMO, from_=datetime.datetime(2026, 1, 1, tzinfo=NoZone())))
        self.assertIn("milliseconds", self.refused(TypeError, DEMO, linger=datetime.timedelta(microseconds=400)))
        self.assertIn("date is no value", self.refused(TypeError, DEMO, from_=datetime.date(2026, 1, 1)))
        self.assertIn("float", self.refused(TypeError, DEMO, cores=1.5))
        self.assertIn("dict", self.refused(TypeError, DEMO, names={}))
        self.assertIn("bytes", self.refused(TypeError, b"x.pcap"))
        self.assertIn("int", self.refused(TypeError, 3))
        self.assertIn("int", self.refused(TypeError, [3]))
        self.refused(UnicodeEncodeError, DEMO, filter="\ud800")
        for wrong in [dict(stats=True), dict(names_save=False), dict(stats=5), dict(cores=True), dict(strict="true"),
                      dict(write=datetime.timedelta(minutes=1)), dict(tcp_idle=datetime.datetime.now(UTC))]:
            self.assertIn("expected", self.refused(larder.Error, DEMO, **wrong))
        self.assertIn("given twice", self.refused(larder.Error, DEMO, **{"names-budget": "2MiB", "names_budget": "1MiB"}))
        self.refused(TypeError, DEMO, DEMO)

    def test_neither_environment_nor_file_counts(self):
        program = "import larder, sys; print(len(list(larder.annotate(sys.argv[1]))))"
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "larder.toml").write_text("[annotate]\nunresolved = 'all'\nno_such = 1\n")
            environment = dict(os.environ, LARDER_ANNOTATE_UNRESOLVED="all", LARDER_ANNOTATE_WRONG="1")
            command = [sys.executable, "-c", program, DEMO]
            said = subprocess.run(command, cwd=folder, env=environment, check=True, stdout=subprocess.PIPE, text=True)
        self.assertEqual(said.stdout, "16\n")

    def test_damage(self):
        """A capture that is cut gives its flows and says so; strict makes it an error."""
        with tempfile.TemporaryDirectory() as folder:
            cut = pathlib.Path(folder) / "cut.pcapng"
            cut.write_bytes(DEMO.read_bytes()[:3_000])
            flows = larder.annotate(cut)
            self.assertIsNone(flows.summary)
            self.assertIsNone(flows.stats)
            self.assertEqual(len(list(flows)), 2)
            self.assertIn("capture_cut", flows.summary)
            self.assertEqual(flows.stats["damaged"]["capture_cut"]["count"], 1)
            self.assertIn("capture_cut", self.refused(larder.Error, cut, strict=True))
            polars = module("polars")
            with self.assertRaisesRegex(polars.exceptions.ComputeError, "capture_cut"):
                polars.DataFrame(larder.annotate(cut, strict=True))
            empty = pathlib.Path(folder) / "empty.pcap"
            empty.touch()
            self.assertIn("the file is empty", self.refused(larder.Error, empty))

    def test_a_reader_that_leaves_ends_the_run(self):
        with tempfile.TemporaryDirectory() as folder:
            many = repeated(pathlib.Path(folder) / "many.pcapng", 6_000)
            flows = larder.annotate(many, tcp_idle=1, udp_idle=1)
            before = threads()
            for _ in range(20):
                next(iter(flows))
            with iter(flows) as records:
                next(records)
            self.assertIsNone(next(records, None))
            records.close()
            until(lambda: threads() <= before)
            self.assertIsNone(flows.stats)

    def test_threads_share_records(self):
        """Each record goes to one of them."""
        with tempfile.TemporaryDirectory() as folder:
            many = repeated(pathlib.Path(folder) / "many.pcapng", 300)
            flows = larder.annotate(many, tcp_idle=1, udp_idle=1)
            wanted = sorted(record["event.id"] for record in flows)
            records, found = iter(flows), []

            def read():
                found.extend(record["event.id"] for record in records)

            readers = [threading.Thread(target=read) for _ in range(4)]
            for reader in readers:
                reader.start()
            for reader in readers:
                reader.join()
            self.assertEqual(sorted(found), wanted)

    def test_ctrl_c(self):
        """It reaches a program that waits for a record that does not come."""
        program = """
import larder, signal, sys
# A job in the background may begin with SIGINT ignored, and then Python leaves it so.
signal.signal(signal.SIGINT, signal.default_int_handler)
list(larder.annotate(sys.argv[1]))
"""
        with tempfile.TemporaryDirectory() as folder:
            pipe = pathlib.Path(folder) / "pipe"
            os.mkfifo(pipe)
            waiting = subprocess.Popen([sys.executable, "-c", program, pipe], stderr=subprocess.PIPE)
            # The writer's end is open, and nothing comes.
            with open(pipe, "wb"):
                time.sleep(0.5)
                waiting.send_signal(signal.SIGINT)
                _, said = waiting.communicate(timeout=30)
        self.assertIn(b"KeyboardInterrupt", said)

    def test_records_of_a_live_capture_come_at_once(self):
        """A pipe whose writer waits: the records of what it wrote are there before it closes."""
        with tempfile.TemporaryDirectory() as folder:
            pipe = pathlib.Path(folder) / "pipe"
            os.mkfifo(pipe)
            records = iter(larder.annotate(pipe, tcp_idle=1, udp_idle=1, linger=0))
            with open(pipe, "wb") as writer:
                writer.write(DEMO.read_bytes() * 60)
                writer.flush()
                self.assertIn("destination.ip", next(records))
            self.assertGreater(len(list(records)), 15)

    def test_a_closed_run_has_no_more_records(self):
        """Also while another thread is about to get some."""
        with tempfile.TemporaryDirectory() as folder:
            many = repeated(pathlib.Path(folder) / "many.pcapng", 2_000)
            for _ in range(10):
                records = iter(larder.annotate(many, tcp_idle=1, udp_idle=1))
                reader = threading.Thread(target=lambda: [None for _ in records])
                reader.start()
                next(records, None)
                records.close()
                self.assertIsNone(next(records, None))
                reader.join()

    def test_a_reader_of_packets_that_leaves(self):
        with tempfile.TemporaryDirectory() as folder:
            pipe = pathlib.Path(folder) / "pipe"
            os.mkfifo(pipe)
            many = repeated(pathlib.Path(folder) / "many.pcapng", 300)
            leaver = threading.Thread(target=lambda: open(pipe, "rb").close())
            leaver.start()
            self.assertIn("its reader closed it", self.refused(larder.Error, many, write=pipe))
            leaver.join()

    def test_exit_while_a_run_goes_on(self):
        program = "import larder, sys; r = iter(larder.annotate(sys.argv[1], tcp_idle=1)); next(r); sys.exit(7)"
        with tempfile.TemporaryDirectory() as folder:
            many = repeated(pathlib.Path(folder) / "many.pcapng", 2_000)
            for _ in range(10):
                done = subprocess.run([sys.executable, "-c", program, many], stderr=subprocess.PIPE, timeout=60)
                self.assertEqual((done.returncode, done.stderr), (7, b""))

    def test_fork(self):
        """A child hears that the run is its parent's, and can begin another one."""
        flows = larder.annotate(DEMO)
        records = iter(flows)
        next(records)
        child = os.fork()
        if child == 0:
            status = 1
            try:
                # What had come before the fork may still be read.
                [None for _ in records]
            except larder.Error as error:
                status = 0 if "forked" in str(error) and len(list(flows)) == 16 else 2
            finally:
                del records
                os._exit(status)
        _, status = os.waitpid(child, 0)
        self.assertEqual(os.waitstatus_to_exitcode(status), 0)
        self.assertEqual(len(list(records)), 15)


def flat(value, prefix=""):
    """The fields of an object of JSON, by their names with dots."""
    for name, inner in value.items():
        if isinstance(inner, dict):
            yield from flat(inner, f"{prefix}{name}.")
        else:
            yield prefix + name, inner


def moment(ns):
    return f"{datetime.datetime.fromtimestamp(ns // 10**9, UTC):%Y-%m-%dT%H:%M:%S}.{ns % 10**9:09}Z"


def threads():
    return len(os.listdir("/proc/self/task"))


if __name__ == "__main__":
    unittest.main()

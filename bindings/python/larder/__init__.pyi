"""Names for the addresses in captured traffic, and a cache for many threads."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from os import PathLike
from types import TracebackType
from typing import Any, Literal, Optional, TypeVar, Union, final, overload

__version__: str

__all__ = ["Cache", "Error", "Flows", "Records", "Walk", "__version__", "annotate"]

_Path = Union[str, PathLike[str]]
_Time = Union[str, datetime]
_Seconds = Union[int, str, timedelta]
_Bytes = Union[int, str]
_In = Union[bytes, bytearray, str]
_Out = Union[bytes, str]
_Cause = Literal["budget", "expired", "removed", "replaced", "conflict"]
_T = TypeVar("_T")

class Error(Exception):
    """What larder could not do, and what to do next: the program's text."""

def annotate(
    paths: Union[_Path, Iterable[_Path], None] = None,
    /,
    *,
    # Made from the table of settings by tests/stub.rs. The texts are those of the program's flags: here -r stands for
    # the captures, and strict raises Error.
    filter: Optional[Union[str, Iterable[str]]] = ...,  # Process only packets that match this tcpdump filter
    count: Optional[int] = ...,  # Stop after this many packets
    names_read: Optional[Union[_Path, Iterable[_Path]]] = ...,  # Read these capture files for their names only
    from_: Optional[_Time] = ...,  # Log the packets of -r from this time on
    to: Optional[_Time] = ...,  # Log the packets of -r before this time
    capture_began: Optional[_Time] = ...,  # Say when the capture began
    zeek_dns: Optional[Union[_Path, Iterable[_Path]]] = ...,  # Learn names from these Zeek dns.log files
    dnstap: Optional[_Path] = ...,  # Learn names from this dnstap file or socket
    flows_read: Optional[Union[_Path, Iterable[_Path]]] = ...,  # Name the flows that routers exported, from captures
    flows_delay: Optional[_Seconds] = ...,  # Let an exported flow wait this long for a name
    write: Optional[_Path] = ...,  # Write the packets as pcapng with names
    directory: Optional[_Path] = ...,  # Also write dns.log, names.log and stats.json here
    stats: Optional[_Path] = ...,  # Write the counters to this file, as JSON
    sort: Optional[Literal["end", "start"]] = ...,  # Order records by the end or the start of their flow
    unresolved: Optional[Union[bool, Literal["all"]]] = ...,  # Write only flows whose destination has no lookup
    strict: Optional[bool] = ...,  # Exit with 2 instead of 1 if the input is damaged
    names: Optional[Union[str, Iterable[str]]] = ...,  # Accept names from these sources
    min_confidence: Optional[int] = ...,  # Leave out names with a confidence below this
    candidates: Optional[int] = ...,  # Limit the candidate names of an address
    names_load: Optional[Union[_Path, Iterable[_Path]]] = ...,  # Load names that --names-save wrote
    names_save: Optional[_Path] = ...,  # Save the known names at the end of the run
    ignore_vlan: Optional[bool] = ...,  # Do not separate flows and names by VLAN, VNI or GRE key
    lookup: Optional[Literal["flow", "packet"]] = ...,  # Look names up once per flow, or for each packet
    cores: Optional[Union[int, Literal["all"]]] = ...,  # Set the number of worker threads
    names_budget: Optional[_Bytes] = ...,  # Limit the memory for names
    flows_max: Optional[int] = ...,  # Limit the number of open flows
    reassembly_budget: Optional[_Bytes] = ...,  # Limit the memory for TCP reassembly and IP fragments
    tcp_idle: Optional[_Seconds] = ...,  # End a TCP flow after this idle time
    udp_idle: Optional[_Seconds] = ...,  # End any other flow after this idle time
    linger: Optional[_Seconds] = ...,  # Accept late packets of a closed TCP flow for this long
    cut_every: Optional[_Seconds] = ...,  # Cut the records of all flows at multiples of this time
    seed: Optional[Union[int, str]] = ...,  # Set the seed of the hash functions
) -> Flows:
    """The flows in these captures (pcap or pcapng, also compressed), read as one in order of time, with names.

    The settings are those of `larder annotate`, which `docs/reference/larder-annotate.md` explains; `from_` is `--from`.
    No packet is read before the result is used. Raises `Error` for a setting out of range or a file that cannot be
    opened, and `TypeError` for a value of a wrong type.
    """

@final
class Flows:
    """Flows of captures, as a table: Polars, pyarrow, DuckDB and pandas read it as an Arrow C stream.

    Each use reads the captures again, from the beginning. The columns are the fields of `docs/guide/fields.md`.
    """

    def __iter__(self) -> Records: ...
    def __arrow_c_schema__(self) -> object: ...
    def __arrow_c_stream__(self, requested_schema: Optional[object] = None) -> object: ...
    @property
    def stats(self) -> Optional[dict[str, Any]]:
        """The counters of the last run that came to its end, as `--stats` writes them; None before that."""
    @property
    def summary(self) -> Optional[str]:
        """The lines that the program prints at the end of a run: packets, names, damage; None before that."""

@final
class Records(Iterator[dict[str, Any]]):
    """The flows as dictionaries; a field that is absent is not in its dictionary.

    Times are nanoseconds since 1970 UTC, as `time.time_ns()`. The captures are read up to three megabytes of records
    ahead, in threads that do not hold Python's lock.
    """

    def __next__(self) -> dict[str, Any]: ...
    def close(self) -> None:
        """Ends the run. The records that it has are dropped."""
    def __enter__(self) -> Records: ...
    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        exception: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None: ...

@final
class Cache:
    """A cache of `bytes` and `str` under keys of `bytes` and `str`, which takes at most `budget_bytes` of memory.

    Any number of threads may use it. What is used least is evicted (`docs/guide/cache.md`). A key or a value that is
    `str` comes back as `str`. Times to live are
    seconds, or a `timedelta`: an `int` counts whole seconds of the clock, a `float` ends at most two
    milliseconds late. After `os.fork`, a child has a copy; it can use it if no
    other thread was in a call at the fork.
    """

    def __new__(
        cls,
        budget_bytes: int = 67108864,
        *,
        ttl: Union[float, timedelta, None] = None,
        idle: Union[float, timedelta, None] = None,
        entry_bytes_mean: Optional[int] = None,
        value_bytes_max: Optional[int] = None,
        readers_max: Optional[int] = None,
        shards: Optional[int] = None,
        on_removed: Optional[Callable[[_Out, _Out, _Cause], object]] = None,
    ) -> Cache:
        """All memory is reserved now, and used as it fills.

        `ttl` is the time to live of values that are stored without one. A value that is not read for `idle` expires,
        too; that time is at most a fifteenth and three seconds longer, never shorter, and none above four years. `entry_bytes_mean` is the expected size of a key
        and its value together, which decides how much of the budget is index. Values of up to `value_bytes_max` bytes (at
        most 32,767) fit, and a budget that is too small for them is refused; if they are short, more threads can write
        at once. larder calls
        `on_removed(key, value, cause)` for each evicted, expired, removed or replaced value, on a thread that writes;
        what it raises is reported as unraisable.
        """
    @overload
    def get(self, key: _In) -> Optional[_Out]: ...
    @overload
    def get(self, key: _In, default: _T) -> Union[_Out, _T]: ...
    def put(self, key: _In, value: _In, ttl: Union[float, timedelta, None] = None) -> None:
        """Stores a value, for at most `ttl`."""
    @overload
    def pop(self, key: _In) -> Optional[_Out]: ...
    @overload
    def pop(self, key: _In, default: _T) -> Union[_Out, _T]: ...
    def get_many(self, keys: Iterable[_In]) -> list[Optional[_Out]]:
        """The values of many keys, in their order, None for a miss: faster than one by one."""
    def put_many(
        self,
        entries: Union[Mapping[Any, _In], Iterable[tuple[_In, _In]]],
        ttl: Union[float, timedelta, None] = None,
    ) -> None:
        """Stores the pairs of a mapping, or of an iterable, 1,024 at a time. After an error, some may be stored."""
    def get_or_load(
        self, key: _In, load: Callable[[Any], _In], ttl: Union[float, timedelta, None] = None
    ) -> _Out:
        """The value of a key; on a miss the result of `load(key)`, which is stored.

        Of many threads that miss a key at once, one loads and the others wait, up to 30 seconds, in which Ctrl-C waits,
        too. The `Exception` that `load` raises, each of them raises; nothing is stored then. If it raises something else,
        such as `SystemExit`, another thread loads.
        """
    def compute(
        self,
        key: _In,
        change: Callable[[Optional[_Out]], Optional[_In]],
        ttl: Union[float, timedelta, None] = None,
    ) -> Optional[_In]:
        """Replaces the value of a key by `change(value)`, as one step, and returns that.

        `change` gets None if there is no value, and removes the value by returning None. If another thread changes the
        key meanwhile, `change` is called again, and so it must not write that key itself. Without `ttl`, a value that is there expires as before.
        """
    def touch(self, key: _In, ttl: Union[float, timedelta, None] = None) -> bool:
        """Makes a value expire `ttl` from now; False if there is none.

        If that or what was there is exact, or in a cache with `idle`, the value is stored again, which `on_removed` hears of.
        """
    def ttl(self, key: _In) -> Optional[int]:
        """The seconds that a value has left; None if it does not expire. KeyError if there is none."""
    def clear(self) -> None: ...
    def keys(self) -> Iterator[_Out]:
        """The keys, in no order. What is changed meanwhile may come once, twice or not at all."""
    def items(self) -> Iterator[tuple[_Out, _Out]]: ...
    @property
    def stats(self) -> dict[str, int]:
        """Figures: entries, hits, misses, evicted and others."""
    def __getitem__(self, key: _In, /) -> _Out: ...
    def __setitem__(self, key: _In, value: _In, /) -> None: ...
    def __delitem__(self, key: _In, /) -> None: ...
    def __contains__(self, key: _In, /) -> bool: ...
    def __iter__(self) -> Iterator[_Out]: ...
    def __len__(self) -> int:
        """How many values there are. Expired ones count until their memory is needed."""

@final
class Walk(Iterator[Any]):
    """Keys or entries of a cache, as `Cache.keys` and `Cache.items` give them."""

    def __next__(self) -> Any: ...

"""Names for the addresses in captured traffic, and a cache for many threads.

`annotate` gives the flows of captures with the names of their addresses, as an Arrow stream or as records. `Cache` is a
cache with a budget of memory.
"""

from ._larder import Cache, Error, Flows, Records, Walk, __version__, annotate

__all__ = ["Cache", "Error", "Flows", "Records", "Walk", "__version__", "annotate"]

"""The names behind the traffic of a capture: python3 names.py CAPTURE"""

import sys

import larder


def main(capture: str) -> None:
    """Bytes by the name of the server, most first."""
    flows = larder.annotate(capture, min_confidence=50)
    total: dict[str, int] = {}
    for flow in flows:
        name = flow.get("destination.domain") or flow["destination.ip"]
        total[name] = total.get(name, 0) + flow["network.bytes"]
    for name, count in sorted(total.items(), key=lambda pair: -pair[1])[:10]:
        print(f"{count:>12,} bytes  {name}")
    print(flows.summary)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    try:
        main(sys.argv[1])
    except larder.Error as error:
        sys.exit(f"names: {error}")

#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Shows the services of a server, and asks its health.

    python3 examples/python/look.py 127.0.0.1:7473
"""

import argparse

import sluice

HEALTH = "sluice.health.v1.Health"


def shape(method):
    """Name(Request) -> Reply."""
    return f"{method.name}({method.input_type.full_name}) -> {method.output_type.full_name}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("server", help="host:port")
    parser.add_argument("--device", default="auto", help="RDMA device: auto, or a name that sluice_info shows")
    given = parser.parse_args()

    with sluice.Channel(given.server, device=given.device) as channel:
        for name in channel.services():
            print(name)
            for method in channel.describe(name).methods:
                print(f"  {shape(method)}")
        try:
            health = channel.call(f"{HEALTH}/Check", {"service": ""}, timeout=1.0)
            print("server:", sluice.to_dict(health)["status"])
        except sluice.Unimplemented:
            print("server: has no health service")
        except sluice.Error as error:
            print(f"server: {error}")
            print("what to do:", error.detail.remedy or "ask its operator")


if __name__ == "__main__":
    main()

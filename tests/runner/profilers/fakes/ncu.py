"""Stands in for `ncu`: runs the program, then writes a raw page in the format of the real one.

FAKE_PROFILER says what goes wrong: fail, denied, garbage, broken, hang, silent.
"""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
import time
from pathlib import Path

FLAGS = {"--csv", "--nvtx"}
RANGES = "thread Domain:Push/Pop_Range:PL_Type:PL_Value:CLR_Type:Color:Msg_Type:Msg"
# Column -> unit; the first ones describe the launch.
COLUMNS = {
    "ID": "",
    "Process ID": "",
    "Process Name": "",
    "Host Name": "",
    RANGES: "",
    "Id:Domain:Start/Stop_Range:PL_Type:PL_Value:CLR_Type:Color:Msg_Type:Msg": "",
    "Kernel Name": "",
    "Context": "",
    "Stream": "",
    "Block Size": "",
    "Grid Size": "",
    "Device": "",
    "CC": "",
    "device__attribute_clock_rate": "",
    "dram__bytes.sum": "byte",
    "gpu__time_duration.sum": "ns",
    "launch__func_cache_config": "",
    "launch__registers_per_thread": "register/thread",
    "sm__maximum_warps_per_active_cycle_pct": "%",
}


def split(arguments: list[str]) -> tuple[dict[str, list[str]], list[str]]:
    """(options with their values, the program)."""
    options: dict[str, list[str]] = {}
    place = 0
    while arguments[place].startswith("-"):
        option, place = arguments[place], place + 1
        values = options.setdefault(option, [])
        if option not in FLAGS:
            values.append(arguments[place])
            place += 1
    return options, arguments[place:]


def row(number: int, name: str, range_: str) -> list[str]:
    opened = f'543  "<default domain>:{range_}:none:none:none:none:none:none" ' if range_ else ""
    return [str(number), "543", "python3.12", "127.0.0.1", opened, "", name, "1", "7", "(128, 1, 1)", "(64, 1, 1)", "0",
            "9.0", "1,980,000", "1,069,056", "2,688", "CachePreferNone", "32", "37.50"]  # fmt: skip


def table(log: Path, ranges: list[str]) -> None:
    with log.open("w", newline="") as file:
        file.write("==PROF== Connected to process 543 (/usr/bin/python3.12)\n==PROF== Disconnected from process 543\n")
        writer = csv.writer(file, quoting=csv.QUOTE_ALL, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerow(COLUMNS.values())
        writer.writerow(row(0, "fill<float>", ""))
        for number, range_ in enumerate(ranges):
            writer.writerow(row(2 * number + 1, f"void work<{range_}, std::array<char *, 3>>(int, T2)", range_))
            writer.writerow(row(2 * number + 2, "split_k", range_))


def main() -> int:
    fault = os.environ.get("FAKE_PROFILER", "")
    options, program = split(sys.argv[1:])
    log = Path(options["--log-file"][0])
    if fault == "fail":
        print("the first line\nncu: the driver is too old", file=sys.stderr)
        return 9
    if fault == "denied":
        log.write_text("==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access the counters.\n")
        return 1
    code = subprocess.run(program, check=False).returncode
    if fault == "hang":
        time.sleep(600)
    done = [json.loads(line) for line in Path(program[program.index("--done") + 1]).read_text().splitlines()]
    asked = {value.removesuffix("/") for value in options["--nvtx-include"]}
    ran = [line["range"] for line in done if not line["reason"] and line["range"] in asked]
    if fault == "garbage":
        log.write_bytes(b"\x00\xffnothing that anybody could read")
    elif fault != "silent":
        table(log, ran)
    if fault == "broken":
        log.write_text(log.read_text()[:-40])
    return code


if __name__ == "__main__":
    sys.exit(main())

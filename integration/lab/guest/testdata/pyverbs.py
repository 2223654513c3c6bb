"""Runs the tests of rdma-core that are in the package DIRECTORY/tests, each in a process of its own, and prints for each

    @@ TEST OUTCOME SECONDS REASON

with tabs between. OUTCOME is pass, skip or fail; a crash and a test that does not end fail.

    pyverbs.py DIRECTORY [-k PART]... OPTION...

The options are those of rdma-core's run_tests.py; -k selects tests whose names contain PART.
"""

import os
import random
import select
import signal
import sys
import time
import unittest
import zlib

PATIENCE = 120  # seconds for one test: emulation is slow


def flat(tests):
    for test in tests:
        if isinstance(test, unittest.TestSuite):
            yield from flat(test)
        else:
            yield test


def outcome(test):
    """Runs a test here."""
    result = unittest.TestResult()
    # Tests draw sizes and keys: the same ones each time, whatever runs before.
    random.seed(zlib.crc32(test.id().encode()))
    unittest.TestSuite([test]).run(result)
    for kind, found in (("fail", result.errors), ("fail", result.failures), ("skip", result.skipped)):
        if found:
            return kind, found[0][1].strip()
    return "pass", ""


def run(test):
    """Runs a test in a process group of its own, which ends with it."""
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        os.setpgid(0, 0)
        os.close(ours)
        os.dup2(2, 1)
        kind, reason = outcome(test)
        os.write(theirs, f"{kind}\t{reason}".encode()[:4096])  # at once: see pipe(7)
        os._exit(0)
    os.close(theirs)
    readable, _, _ = select.select([ours], [], [], PATIENCE)
    text = os.read(ours, 4096).decode(errors="replace") if readable else "fail\tdid not end"
    os.close(ours)
    try:
        os.killpg(child, signal.SIGKILL)  # what the test has left behind, and itself if it hangs
    except ProcessLookupError:
        pass
    _, status = os.waitpid(child, 0)
    return text or f"fail\tdied with status {status}"


def main():
    directory = sys.argv.pop(1)
    parts = []
    while "-k" in sys.argv:
        at = sys.argv.index("-k")
        parts.append(sys.argv[at + 1])
        del sys.argv[at:at + 2]
    sys.path[:0] = [os.path.join(directory, "tests"), directory]
    from args_parser import parser
    parser.parse_args()
    import tests
    for test in flat(unittest.defaultTestLoader.loadTestsFromModule(tests)):
        if parts and not any(part in test.id() for part in parts):
            continue
        began = time.monotonic()
        kind, reason = run(test).split("\t", 1)
        reason = " | ".join(line.strip() for line in reason.splitlines())
        print(f"\n@@ {test.id()}\t{kind}\t{time.monotonic() - began:.1f}\t{reason}", flush=True)


main()

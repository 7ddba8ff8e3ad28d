# SPDX-License-Identifier: Apache-2.0
"""usage: run_tests.py MODULE

Runs the tests of a module, and writes one <testcase> for each to $XML_OUTPUT_FILE, so that tools/dev/count_cases counts them.
"""

import os
import sys
import unittest
from xml.sax.saxutils import quoteattr


class Result(unittest.TextTestResult):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.ended = []  # (test, element within its <testcase>)

    def addSuccess(self, test):
        super().addSuccess(test)
        self.ended.append((test, ""))

    def addFailure(self, test, error):
        super().addFailure(test, error)
        self.ended.append((test, f"<failure message={quoteattr(str(error[1]))}/>"))

    def addError(self, test, error):
        super().addError(test, error)
        self.ended.append((test, f"<error message={quoteattr(str(error[1]))}/>"))

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.ended.append((test, ""))


def main(module):
    suite = unittest.defaultTestLoader.loadTestsFromName(module)
    result = unittest.TextTestRunner(sys.stdout, verbosity=2, resultclass=Result).run(suite)
    path = os.environ.get("XML_OUTPUT_FILE")
    if path:
        with open(path, "w", encoding="utf-8") as file:
            file.write('<?xml version="1.0" encoding="UTF-8"?>\n<testsuites>\n')
            file.write(f'  <testsuite name={quoteattr(module)} tests="{len(result.ended)}">\n')
            skipped = {test for test, _ in result.skipped}
            for test, inside in result.ended:
                how = "skipped" if test in skipped else "completed"
                file.write(f"    <testcase name={quoteattr(test.id())} result=\"{how}\">{inside}</testcase>\n")
            file.write("  </testsuite>\n</testsuites>\n")
    # A module without tests tests nothing.
    return 0 if result.wasSuccessful() and result.testsRun > 0 else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))

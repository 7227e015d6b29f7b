"""The parts of docs/COMPATIBILITY.md: real programs, and the test suites of others."""
